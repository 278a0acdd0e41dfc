//! Reads a plan while it is being written. The one scanner there is: a whole text is read as a stream of one part.

use super::draft::{PlanDraft, PlanPiece};
use super::group::Groups;
use super::label::{Label, LabelMatcher, TagMatcher, ThinkTag};
use super::literal::{Context, Lexed, ListLexer};
use super::{ParseError, TEXT_BYTES_MAX};

/// Reads a conductor's text in parts of any size.
///
/// Which plan counts is decided as the text goes by:
///
/// - A plan is a `model_id` list and, after it and before the next `model_id`, a `subtasks` and an `access_list`. The
///   last one of a text counts, be its lists right or wrong; labels without a list, or of an incomplete plan, are
///   running text.
/// - What is between `<think>` and `</think>`, or before a `</think>` that nothing opened, does not count.
/// - A text that ends inside a list has no plan, even if an earlier one in it was complete: that was an example.
/// - A list that is never closed ends where the next label's list begins. Inside a quoted text, that is so only at the
///   beginning of a later line, and inside triple quotes never.
///
/// Text beyond [`TEXT_BYTES_MAX`] is not read.
#[derive(Clone, Debug)]
pub struct PlanStream {
    mode: Mode,
    label: LabelMatcher,
    tag: TagMatcher,
    /// In a quoted text: whether a label here would be at the beginning of a later line.
    at_line_start: bool,
    /// Bytes read.
    offset: usize,
    too_long: bool,
    groups: Groups,
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
    /// A stream that has read nothing.
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

    /// Reads the next part. Gives the elements that are closed by it, in the order in which they were written; a number
    /// or a text is closed by the comma or bracket after it.
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

    /// Whether the text holds a plan if it ends here: the lists of the last one are all closed. What follows may still
    /// void it, but a caller that pays for each token need not wait for more.
    pub fn is_complete(&self) -> bool {
        !self.too_long && matches!(self.mode, Mode::Prose) && self.groups.is_complete()
    }

    /// Ends the text. If the result is a draft, it is what the pieces make.
    pub fn finish(self) -> Result<PlanDraft, ParseError> {
        self.finish_located().map(|(draft, _)| draft)
    }

    /// As [`Self::finish`], with the byte at which the plan's `model_id` begins: what is before it is reasoning.
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

    /// Whether the character shows that the list was left without being closed, and what it begins instead.
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
