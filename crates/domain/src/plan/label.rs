//! Finds labels such as `model_id = [` and tags such as `</think>` in running text, one character at a time.
//!
//! Both matchers have a state of constant size and visit each character of any text once.

use super::draft::Field;

/// A label whose list was just opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) field: Field,
    /// The position of its name.
    pub(super) at: usize,
}

/// Matches a label's name as a whole word in any case, then `=` or `:`, then `[`. Blanks, and quotes and emphasis of JSON and
/// Markdown, may stand between them.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelMatcher {
    state: LabelState,
    word_at: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum LabelState {
    /// Not in a word.
    #[default]
    Between,
    /// In a word that matches the beginning of a label's name so far.
    Name { field: Field, matched: usize },
    /// In a word that is not a label's name.
    OtherWord,
    /// After a label's name.
    Named(Field),
    /// After its `=` or `:`.
    Assigned(Field),
}

impl LabelMatcher {
    /// Consumes the next character, which begins at byte `at`. Returns the label when the character opens its list.
    pub(super) fn feed(&mut self, c: char, at: usize) -> Option<Label> {
        if c.is_alphanumeric() || c == '_' {
            self.state = self.in_word(c, at);
            return None;
        }
        self.state = match self.state {
            LabelState::Name { field, matched } if matched == field.label().len() => after_name(field, c),
            LabelState::Named(field) => after_name(field, c),
            LabelState::Assigned(field) if c == '[' => {
                self.state = LabelState::Between;
                return Some(Label { field, at: self.word_at });
            }
            LabelState::Assigned(field) if c.is_whitespace() || matches!(c, '*' | '`') => {
                LabelState::Assigned(field)
            }
            _ => LabelState::Between,
        };
        None
    }

    /// Resets the matcher to the beginning of a text.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether the current word is not a label's name.
    pub(super) fn is_in_other_word(&self) -> bool {
        matches!(self.state, LabelState::OtherWord)
    }

    fn in_word(&mut self, c: char, at: usize) -> LabelState {
        let (field, matched) = match self.state {
            LabelState::OtherWord => return LabelState::OtherWord,
            LabelState::Name { field, matched } => (Some(field), matched),
            LabelState::Between | LabelState::Named(_) | LabelState::Assigned(_) => {
                self.word_at = at;
                // The first letters of the three names differ.
                (Field::ALL.into_iter().find(|field| continues(*field, 0, c)), 0)
            }
        };
        match field {
            Some(field) if continues(field, matched, c) => LabelState::Name { field, matched: matched + 1 },
            _ => LabelState::OtherWord,
        }
    }
}

fn continues(field: Field, matched: usize, c: char) -> bool {
    field.label().as_bytes().get(matched).is_some_and(|letter| c.eq_ignore_ascii_case(&char::from(*letter)))
}

fn after_name(field: Field, c: char) -> LabelState {
    match c {
        '=' | ':' => LabelState::Assigned(field),
        '"' | '\'' | '`' | '*' => LabelState::Named(field),
        _ if c.is_whitespace() => LabelState::Named(field),
        _ => LabelState::Between,
    }
}

/// Whether a `<think>` tag opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkTag {
    Open,
    Close,
}

/// Matches `<think>`, `<thinking>` and their closing forms, in any case.
#[derive(Clone, Debug, Default)]
pub(super) struct TagMatcher {
    state: TagState,
}

#[derive(Clone, Copy, Debug, Default)]
enum TagState {
    #[default]
    Outside,
    Inside {
        closing: bool,
        matched: usize,
    },
}

const TAG: &[u8] = b"thinking";
const TAG_LEN: usize = TAG.len();
const TAG_SHORT_LEN: usize = "think".len();

impl TagMatcher {
    /// Consumes the next character. Returns the tag when the character ends it.
    pub(super) fn feed(&mut self, c: char) -> Option<ThinkTag> {
        let state = std::mem::take(&mut self.state);
        self.state = match (state, c) {
            (_, '<') => TagState::Inside { closing: false, matched: 0 },
            (TagState::Inside { closing: false, matched: 0 }, '/') => {
                TagState::Inside { closing: true, matched: 0 }
            }
            (TagState::Inside { closing, matched: TAG_SHORT_LEN | TAG_LEN }, '>') => {
                return Some(if closing { ThinkTag::Close } else { ThinkTag::Open });
            }
            (TagState::Inside { closing, matched }, _)
                if TAG.get(matched).is_some_and(|letter| c.eq_ignore_ascii_case(&char::from(*letter))) =>
            {
                TagState::Inside { closing, matched: matched + 1 }
            }
            _ => TagState::Outside,
        };
        None
    }

    /// Resets the matcher.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}
