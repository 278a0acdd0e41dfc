//! The errors of a conductor's text. Each names the list, the position, and the bound if there is one.

use super::draft::Field;

/// A text contains no plan draft. `offset` counts bytes from the beginning of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is too long.
    #[error("text is longer than {bytes_max} bytes")]
    TextTooLong {
        /// Most bytes that are parsed.
        bytes_max: usize,
    },
    /// The list was not found, or does not belong to the last `model_id`.
    #[error("{field} has no list, searched up to byte {offset}")]
    MissingList {
        /// The missing list.
        field: Field,
        /// The end of the text.
        offset: usize,
    },
    /// The text ends inside the model's thinking.
    #[error("text ends inside <think>, opened at byte {offset}")]
    UnclosedThought {
        /// The position of the opening tag.
        offset: usize,
    },
    /// A list is never closed.
    #[error("{field} is never closed, opened at byte {offset}")]
    UnclosedList {
        /// The list.
        field: Field,
        /// The position of its opening bracket.
        offset: usize,
    },
    /// A list occurs twice after the same `model_id`, which is ambiguous.
    #[error("{field} is given twice, again at byte {offset}")]
    RepeatedList {
        /// The list.
        field: Field,
        /// The position of the second one.
        offset: usize,
    },
    /// Lists are nested too deeply.
    #[error("{field} is nested deeper than {depth_max} lists, at byte {offset}")]
    TooDeep {
        /// The list.
        field: Field,
        /// The deepest permitted nesting.
        depth_max: usize,
        /// The position of the list that is too deep.
        offset: usize,
    },
    /// A list has too many elements.
    #[error("{field} has more than {elements_max} elements, at byte {offset}")]
    TooManyElements {
        /// The list.
        field: Field,
        /// The largest permitted number.
        elements_max: usize,
        /// The position of the first extra element.
        offset: usize,
    },
    /// Two commas have nothing between them.
    #[error("{field} has an empty element at index {index}, at byte {offset}")]
    EmptyElement {
        /// The list.
        field: Field,
        /// The index of the element, from 0.
        index: usize,
        /// The position where the element is missing.
        offset: usize,
    },
    /// A character is not permitted at its position.
    #[error("{field} has an unexpected {character:?} at byte {offset}")]
    UnexpectedCharacter {
        /// The list.
        field: Field,
        /// The character.
        character: char,
        /// Its position.
        offset: usize,
    },
    /// Only some elements are quoted, so a comma is ambiguous.
    #[error("{field} mixes quoted and unquoted elements, at byte {offset}")]
    MixedQuoting {
        /// The list.
        field: Field,
        /// The position of the element that differs.
        offset: usize,
    },
    /// An element has the wrong type for its list.
    #[error("{field} must have {expected} at index {index}, at byte {offset}")]
    WrongElement {
        /// The list.
        field: Field,
        /// The index of the element, from 0.
        index: usize,
        /// The expected type.
        expected: &'static str,
        /// The position of the element.
        offset: usize,
    },
}
