//! Parses a plan while it is being written. A whole text is parsed as a stream of one part, with the same scanner.

use super::draft::{PlanDraft, PlanPiece};
use super::group::Groups;
use super::label::{Label, LabelMatcher, TagMatcher, ThinkTag};
use super::literal::{Context, Lexed, ListLexer};
use super::{ParseError, TEXT_BYTES_MAX};

/// Parses a conductor's text in parts of any size.
///
/// These rules decide which plan of a text counts:
///
/// - A plan is a `model_id` list with a `subtasks` and an `access_list` after it, before the next `model_id`. The last plan
///   counts, even if its lists are invalid. Labels without a list, or of an incomplete plan, are running text.
/// - Text between `<think>` and `</think>`, or before a `</think>` without an opening tag, does not count.
/// - A text that ends inside a list has no plan, even after a complete one: that one was an example.
/// - A list that is never closed ends at the next label with a list. Inside a quoted text, the label must be at the beginning of a
///   later line; inside triple quotes it does not count.
///
/// Text beyond [`TEXT_BYTES_MAX`] is not parsed.
#[derive(Clone, Debug)]
pub struct PlanStream {
    mode: Mode,
    label: LabelMatcher,
    tag: TagMatcher,
    /// In a quoted text: whether a label here would be at the beginning of a later line.
    at_line_start: bool,
    /// The number of parsed bytes.
    offset: usize,
    too_long: bool,
    groups: Groups,
}

impl PlanDraft {
    /// Parses a whole text, exactly as [`PlanStream`] parses it in parts.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut stream = PlanStream::new();
        stream.push(text);
        stream.finish()
    }
}

#[derive(Clone, Debug)]
enum Mode {
    Prose,
    Thought { at: usize },
    List(Box<ListLexer>),
}

impl Default for PlanStream {
    fn default() -> Self {
        Self::new()
    }
}

impl PlanStream {
    /// A stream at the beginning of a text.
    pub fn new() -> Self {
        Self {
            mode: Mode::Prose,
            label: LabelMatcher::default(),
            tag: TagMatcher::default(),
            at_line_start: false,
            offset: 0,
            too_long: false,
            groups: Groups::default(),
        }
    }

    /// Parses the next part. Returns the elements that it closes, in the order in which they were written; a number or a text is
    /// closed by the comma or bracket after it.
    pub fn push(&mut self, text: &str) -> Vec<PlanPiece> {
        for c in text.chars() {
            self.too_long |= self.offset + c.len_utf8() > TEXT_BYTES_MAX;
            if self.too_long {
                break;
            }
            self.feed(c);
            self.offset += c.len_utf8();
        }
        self.groups.take_pieces()
    }

    /// Whether the text contains a plan if it ends here: all lists of the last one are closed. Later text may still void the plan,
    /// but a caller that pays for each token may stop here.
    pub fn is_complete(&self) -> bool {
        !self.too_long && matches!(self.mode, Mode::Prose) && self.groups.is_complete()
    }

    /// Ends the text. A successful result equals the draft built from the pieces.
    pub fn finish(self) -> Result<PlanDraft, ParseError> {
        self.finish_located().map(|(draft, _)| draft)
    }

    /// As [`Self::finish`], with the position of the plan's `model_id`; the text before it is reasoning.
    pub fn finish_located(self) -> Result<(PlanDraft, usize), ParseError> {
        if self.too_long {
            return Err(ParseError::TextTooLong { bytes_max: TEXT_BYTES_MAX });
        }
        let cut_off = match &self.mode {
            Mode::Prose => None,
            Mode::Thought { at } => Some(ParseError::UnclosedThought { offset: *at }),
            Mode::List(list) => Some(list.unclosed()),
        };
        self.groups.finish(cut_off, self.offset).map(|found| (found.draft, found.at))
    }

    fn feed(&mut self, c: char) {
        match self.mode {
            Mode::Prose => self.prose(c),
            Mode::Thought { .. } => {
                if self.tag.feed(c) == Some(ThinkTag::Close) {
                    self.go_on_as_prose();
                }
            }
            Mode::List(_) => self.list(c),
        }
    }

    fn prose(&mut self, c: char) {
        match self.tag.feed(c) {
            Some(ThinkTag::Open) => self.mode = Mode::Thought { at: self.offset + 1 },
            Some(ThinkTag::Close) => self.groups.forget(),
            None => {}
        }
        if let Some(label) = self.label.feed(c, self.offset) {
            self.enter_list(label);
        }
    }

    fn list(&mut self, c: char) {
        if self.escapes_list(c) {
            return;
        }
        let Mode::List(list) = &mut self.mode else { return };
        let field = list.field();
        let (element, ended) = match list.feed(c, self.offset) {
            Ok(Lexed::More) => return,
            Ok(Lexed::Element(element)) => (Some(element), false),
            Ok(Lexed::End(element)) => (element, true),
            Err(error) => {
                self.groups.end(field, Some(error));
                return self.go_on_as_prose();
            }
        };
        let at = list.element_at();
        let failure = element.and_then(|element| self.groups.element(field, element, at).err());
        if ended || failure.is_some() {
            self.groups.end(field, failure);
            self.go_on_as_prose();
        }
    }

    /// Whether the character shows that the list was abandoned without being closed, because another label begins.
    fn escapes_list(&mut self, c: char) -> bool {
        let Mode::List(list) = &self.mode else {
            return false;
        };
        let context = list.context();
        let watched = match context {
            Context::Unquoted => true,
            Context::Quoted => self.at_line_start,
            Context::Free => false,
        };
        if !watched {
            self.label.reset();
            self.tag.reset();
        } else if self.tag.feed(c) == Some(ThinkTag::Close) {
            self.groups.forget();
            self.go_on_as_prose();
            return true;
        } else if let Some(label) = self.label.feed(c, self.offset) {
            let (field, unclosed) = (list.field(), list.unclosed());
            self.groups.end(field, Some(unclosed));
            self.enter_list(label);
            return true;
        }
        match context {
            Context::Quoted if c == '\n' => self.at_line_start = true,
            Context::Quoted => self.at_line_start &= !self.label.is_in_other_word(),
            Context::Unquoted | Context::Free => self.at_line_start = false,
        }
        false
    }

    fn enter_list(&mut self, label: Label) {
        self.go_on_as_prose();
        if self.groups.open(label) {
            self.mode = Mode::List(Box::new(ListLexer::new(label.field, self.offset)));
        }
    }

    fn go_on_as_prose(&mut self) {
        self.mode = Mode::Prose;
        self.label.reset();
        self.tag.reset();
        self.at_line_start = false;
    }
}
