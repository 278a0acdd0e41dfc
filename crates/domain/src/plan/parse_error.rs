//! What can be wrong with a conductor's text. Each error names the list, the bound if there is one, and the place.

use super::draft::Field;

/// Why a text holds no plan draft. `offset` counts bytes from the beginning of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is longer than may be read.
    #[error("text is longer than {bytes_max} bytes")]
    TextTooLong {
        /// Most bytes that are read.
        bytes_max: usize,
    },
    /// No list of that name was found, or none that belongs to the last `model_id`.
    #[error("{field} has no list, looked until byte {offset}")]
    MissingList {
        /// The list that is missing.
        field: Field,
        /// Where the text ends.
        offset: usize,
    },
    /// The text ends while the model was still thinking.
    #[error("text ends inside <think>, opened at byte {offset}")]
    UnclosedThought {
        /// Where the thought begins.
        offset: usize,
    },
    /// A list was begun and never closed.
    #[error("{field} is never closed, opened at byte {offset}")]
    UnclosedList {
        /// The list.
        field: Field,
        /// Where it begins.
        offset: usize,
    },
    /// A list occurs twice after the same `model_id`; which one is meant cannot be known.
    #[error("{field} is given twice, again at byte {offset}")]
    RepeatedList {
        /// The list.
        field: Field,
        /// Where it begins again.
        offset: usize,
    },
    /// Lists are nested too deeply.
    #[error("{field} is nested deeper than {depth_max} lists, at byte {offset}")]
    TooDeep {
        /// The list.
        field: Field,
        /// Deepest nesting that is read.
        depth_max: usize,
        /// Where the list that is too deep begins.
        offset: usize,
    },
    /// A list has too many elements.
    #[error("{field} has more than {elements_max} elements, at byte {offset}")]
    TooManyElements {
        /// The list.
        field: Field,
        /// Most elements that are read.
        elements_max: usize,
        /// Where the first one too many begins.
        offset: usize,
    },
    /// There is nothing between two commas.
    #[error("{field} has an empty element at index {index}, at byte {offset}")]
    EmptyElement {
        /// The list.
        field: Field,
        /// Which element of it, from 0.
        index: usize,
        /// Where the element should have been.
        offset: usize,
    },
    /// A character that no list can have there.
    #[error("{field} has an unexpected {character:?} at byte {offset}")]
    UnexpectedCharacter {
        /// The list.
        field: Field,
        /// The character.
        character: char,
        /// Where it is.
        offset: usize,
    },
    /// Some elements are quoted and some are not, so that a comma may be part of a text or not.
    #[error("{field} mixes quoted and unquoted elements, at byte {offset}")]
    MixedQuoting {
        /// The list.
        field: Field,
        /// Where the element that differs begins.
        offset: usize,
    },
    /// An element is not what the list is made of.
    #[error("{field} must have {expected} at index {index}, at byte {offset}")]
    WrongElement {
        /// The list.
        field: Field,
        /// Which element of it, from 0.
        index: usize,
        /// What should be there.
        expected: &'static str,
        /// Where the element begins.
        offset: usize,
    },
}
