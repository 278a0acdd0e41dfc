//! Parses one list, one character at a time: in the form of Python or JSON, or unquoted texts between commas.
//!
//! It does not interpret elements, except that unquoted subtasks may have any character but a comma and brackets.

use super::draft::Field;
use super::text::{Fed, TextLexer};
use super::{LIST_DEPTH_MAX, LIST_ELEMENTS_MAX, ParseError};

/// A value that is not a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    Quoted(String),
    /// Without surrounding blanks; not empty.
    Bare(String),
}

/// An element of the outermost list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Atom(Atom),
    List(Vec<Atom>),
    /// A list that contains lists.
    Nested,
}

/// The effect of a character.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lexed {
    More,
    /// An element is closed; the list continues.
    Element(Element),
    /// The list is closed, and with it its last element if that was open.
    End(Option<Element>),
}

/// The context of the next character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// Outside all quotes.
    Unquoted,
    /// In a text that should end on its line.
    Quoted,
    /// Where any character is allowed: a text in triple quotes, or a comment.
    Free,
}

/// One list, from after its opening bracket.
#[derive(Clone, Debug)]
pub(super) struct ListLexer {
    field: Field,
    opened_at: usize,
    /// The number of open lists, including this one.
    depth: usize,
    state: State,
    in_comment: bool,
    /// The number of closed elements.
    elements: usize,
    /// The position of the current element.
    element_at: usize,
    /// Elements of the nested list.
    inner: Vec<Atom>,
    /// Whether the nested list contains a list.
    nested: bool,
    /// Whether the elements are quoted; `None` until known.
    quoted: Option<bool>,
}

#[derive(Clone, Debug)]
enum State {
    /// Before an element.
    Start,
    Bare(String),
    Quoted(TextLexer),
    /// After a nested list.
    AfterList,
}

impl ListLexer {
    /// A list whose opening bracket is at byte `opened_at`.
    pub(super) fn new(field: Field, opened_at: usize) -> Self {
        Self {
            field,
            opened_at,
            depth: 1,
            state: State::Start,
            in_comment: false,
            elements: 0,
            element_at: opened_at,
            inner: Vec::new(),
            nested: false,
            quoted: None,
        }
    }

    /// The list's label.
    pub(super) fn field(&self) -> Field {
        self.field
    }

    /// The position of the element that was closed last.
    pub(super) fn element_at(&self) -> usize {
        self.element_at
    }

    /// The error if the text ends here.
    pub(super) fn unclosed(&self) -> ParseError {
        ParseError::UnclosedList { field: self.field, offset: self.opened_at }
    }

    /// The context of the next character.
    pub(super) fn context(&self) -> Context {
        match &self.state {
            _ if self.in_comment => Context::Free,
            State::Quoted(text) if text.is_triple() => Context::Free,
            State::Quoted(_) => Context::Quoted,
            State::Start | State::Bare(_) | State::AfterList => Context::Unquoted,
        }
    }

    /// Consumes the next character, which begins at byte `at`. After an error or the end, the list must not be used again.
    pub(super) fn feed(&mut self, c: char, at: usize) -> Result<Lexed, ParseError> {
        if self.in_comment {
            self.in_comment = c != '\n';
            return Ok(Lexed::More);
        }
        match &mut self.state {
            State::Start => self.start(c, at),
            State::Bare(_) => self.bare(c, at),
            State::Quoted(text) => match text.feed(c) {
                Fed::Taken => Ok(Lexed::More),
                Fed::Unexpected => Err(self.unexpected(c, at)),
                Fed::NotTaken if c == '#' => Ok(self.comment()),
                Fed::NotTaken => self.delimiter(c),
            },
            State::AfterList => match c {
                ',' | ']' => self.delimiter(c),
                '#' => Ok(self.comment()),
                _ if c.is_whitespace() => Ok(Lexed::More),
                _ => Err(self.unexpected(c, at)),
            },
        }
    }

    fn start(&mut self, c: char, at: usize) -> Result<Lexed, ParseError> {
        if c.is_whitespace() {
            return Ok(Lexed::More);
        }
        if c == '#' {
            return Ok(self.comment());
        }
        if c == ']' {
            return self.delimiter(c);
        }
        if self.depth == 1 {
            self.element_at = at;
        }
        match c {
            ',' => {
                return Err(ParseError::EmptyElement { field: self.field, index: self.elements, offset: at });
            }
            '[' => {
                self.check_room(self.elements, self.depth == 1, at)?;
                return self.open_inner(at);
            }
            '{' | '}' | '(' | ')' => return Err(self.unexpected(c, at)),
            _ => {}
        }
        self.check_room(if self.depth == 1 { self.elements } else { self.inner.len() }, self.depth <= 2, at)?;
        self.state = match TextLexer::open(c, false) {
            Some(text) => State::Quoted(text),
            None => State::Bare(c.into()),
        };
        Ok(Lexed::More)
    }

    fn bare(&mut self, c: char, at: usize) -> Result<Lexed, ParseError> {
        let State::Bare(text) = &mut self.state else {
            return Ok(Lexed::More);
        };
        let is_text = self.field == Field::Subtasks;
        match c {
            ',' | ']' => return self.delimiter(c),
            '[' => return Err(self.unexpected(c, at)),
            '#' if !is_text && text.ends_with(char::is_whitespace) => return Ok(self.comment()),
            _ => {}
        }
        if let Some(literal) = begins_literal(text, c) {
            self.state = State::Quoted(literal);
        } else if is_text && c == '"' {
            return Err(self.unexpected(c, at));
        } else {
            text.push(c);
        }
        Ok(Lexed::More)
    }

    fn comment(&mut self) -> Lexed {
        self.in_comment = true;
        Lexed::More
    }

    fn open_inner(&mut self, at: usize) -> Result<Lexed, ParseError> {
        if self.depth == LIST_DEPTH_MAX {
            return Err(ParseError::TooDeep { field: self.field, depth_max: LIST_DEPTH_MAX, offset: at });
        }
        self.nested |= self.depth > 1;
        self.depth += 1;
        Ok(Lexed::More)
    }

    /// Consumes a comma or a closing bracket outside all quotes.
    fn delimiter(&mut self, c: char) -> Result<Lexed, ParseError> {
        let atom = match std::mem::replace(&mut self.state, State::Start) {
            State::Start | State::AfterList => None,
            State::Bare(text) => Some(Atom::Bare(text.trim().to_owned())),
            State::Quoted(text) => Some(Atom::Quoted(text.finish())),
        };
        if self.depth > 1 {
            // An element nested deeper than two is rejected whatever its values.
            self.inner.extend(atom.filter(|_| self.depth == 2));
            return Ok(if c == ']' { self.close_inner() } else { Lexed::More });
        }
        self.check_quoting(atom.as_ref())?;
        let element = atom.map(Element::Atom);
        self.elements += usize::from(element.is_some());
        Ok(match (c, element) {
            (']', element) => Lexed::End(element),
            (_, Some(element)) => Lexed::Element(element),
            (_, None) => Lexed::More,
        })
    }

    fn close_inner(&mut self) -> Lexed {
        self.depth -= 1;
        self.state = State::AfterList;
        if self.depth > 1 {
            return Lexed::More;
        }
        self.elements += 1;
        let atoms = std::mem::take(&mut self.inner);
        Lexed::Element(if std::mem::take(&mut self.nested) { Element::Nested } else { Element::List(atoms) })
    }

    fn check_room(&self, elements: usize, kept: bool, at: usize) -> Result<(), ParseError> {
        if kept && elements == LIST_ELEMENTS_MAX {
            let elements_max = LIST_ELEMENTS_MAX;
            return Err(ParseError::TooManyElements { field: self.field, elements_max, offset: at });
        }
        Ok(())
    }

    /// If only some subtasks are quoted, a comma may separate two of them or be part of one, so it is an error.
    fn check_quoting(&mut self, atom: Option<&Atom>) -> Result<(), ParseError> {
        let (Field::Subtasks, Some(atom)) = (self.field, atom) else {
            return Ok(());
        };
        let quoted = matches!(atom, Atom::Quoted(_));
        if *self.quoted.get_or_insert(quoted) != quoted {
            return Err(ParseError::MixedQuoting { field: self.field, offset: self.element_at });
        }
        Ok(())
    }

    fn unexpected(&self, character: char, offset: usize) -> ParseError {
        ParseError::UnexpectedCharacter { field: self.field, character, offset }
    }
}

/// The text that `quote` begins after a prefix such as `r` or `f`.
fn begins_literal(prefix: &str, quote: char) -> Option<TextLexer> {
    const PREFIXES: [&str; 6] = ["r", "u", "b", "f", "rb", "rf"];
    let lower = |c: char| c.to_ascii_lowercase();
    let same = |known: &str| known.chars().eq(prefix.chars().map(lower));
    let reversed = |known: &str| known.chars().rev().eq(prefix.chars().map(lower));
    let is_prefix = prefix.len() <= 2 && PREFIXES.iter().any(|known| same(known) || reversed(known));
    is_prefix.then(|| TextLexer::open(quote, prefix.contains(['r', 'R'])))?
}
