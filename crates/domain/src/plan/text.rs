//! Reads one quoted text of a list, one character at a time.
//!
//! Python's and JSON's forms are read: single, double, triple and curly quotes, raw texts, adjacent texts joined, and
//! escapes. Two things are read as models mean them and not as Python would:
//!
//! - A quote closes a text only where a text can end. So `'Solve Bob's task'` and `"Explain "entropy" briefly"` are
//!   each one text.
//! - `\a`, `\b`, `\f` and `\v` stand for themselves: a model that writes `"\frac{1}{2}"` means LaTeX and no form feed.
//!   So do octal, named and malformed escapes.

/// What became of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// It was taken.
    Taken,
    /// The text has ended before it.
    NotTaken,
    /// Nothing like it can follow the text.
    Unexpected,
}

/// One text, and the texts that are joined to it.
#[derive(Clone, Debug)]
pub(super) struct TextLexer {
    text: String,
    /// What closes the text.
    quote: char,
    raw: bool,
    triple: bool,
    state: State,
    /// Characters that are part of the text if what follows them says so.
    pending: String,
    /// The first half of a UTF-16 pair, written as an escape.
    high_surrogate: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// After one quote.
    Opened,
    /// After two quotes: an empty text, or two thirds of a triple quote.
    OpenedTwice,
    Inside,
    /// After a backslash.
    Escape,
    /// In a hexadecimal escape.
    Hex {
        digits_left: u8,
        value: u32,
    },
    /// After a quote that closes the text if the text can end there; it and the blanks since are pending.
    MaybeClosed,
    /// After so many of three closing quotes.
    TripleClosing(u8),
    /// After the text, for good.
    Closed,
}

impl TextLexer {
    /// Begins a text after its opening quote; none if `quote` is no quote.
    pub(super) fn open(quote: char, raw: bool) -> Option<Self> {
        let (quote, state) = opened(quote)?;
        Some(Self {
            text: String::new(),
            quote,
            raw,
            triple: false,
            state,
            pending: String::new(),
            high_surrogate: None,
        })
    }

    /// Whether the text may go over several lines by right.
    pub(super) fn is_triple(&self) -> bool {
        self.triple
    }

    /// Takes the next character.
    pub(super) fn feed(&mut self, c: char) -> Fed {
        match self.state {
            State::Opened if c == self.quote => self.state = State::OpenedTwice,
            State::OpenedTwice if c == self.quote => {
                self.triple = true;
                self.state = State::Inside;
            }
            State::OpenedTwice => {
                self.pending.push(self.quote);
                self.state = State::MaybeClosed;
                return self.after_quote(c);
            }
            State::Opened | State::Inside => self.inside(c),
            State::Escape => self.escape(c),
            State::Hex { digits_left, value } => self.hex(c, digits_left, value),
            State::MaybeClosed => return self.after_quote(c),
            State::TripleClosing(quotes) => self.triple_closing(c, quotes),
            State::Closed => return self.after_close(c),
        }
        Fed::Taken
    }

    /// Ends the text, after [`Fed::NotTaken`].
    pub(super) fn finish(mut self) -> String {
        self.flush_surrogate();
        self.text
    }

    fn inside(&mut self, c: char) {
        self.state = State::Inside;
        if c == '\\' {
            self.state = State::Escape;
        } else if c != self.quote {
            self.push(c);
        } else if self.triple {
            self.state = State::TripleClosing(1);
        } else {
            self.pending.push(c);
            self.state = State::MaybeClosed;
        }
    }

    fn escape(&mut self, c: char) {
        self.state = State::Inside;
        if self.raw {
            self.push('\\');
            self.push(c);
            return;
        }
        match c {
            'n' => self.push('\n'),
            't' => self.push('\t'),
            'r' => self.push('\r'),
            '\\' | '\'' | '"' | '/' | '“' | '”' | '‘' | '’' => self.push(c),
            '\n' => {}
            'x' => self.begin_hex(c, 2),
            'u' => self.begin_hex(c, 4),
            'U' => self.begin_hex(c, 8),
            _ => {
                self.push('\\');
                self.push(c);
            }
        }
    }

    fn begin_hex(&mut self, letter: char, digits: u8) {
        self.pending.push('\\');
        self.pending.push(letter);
        self.state = State::Hex { digits_left: digits, value: 0 };
    }

    fn hex(&mut self, c: char, digits_left: u8, value: u32) {
        let Some(digit) = c.to_digit(16) else {
            self.push_pending();
            return self.inside(c);
        };
        self.pending.push(c);
        let value = (value << 4) | digit;
        self.state = State::Hex { digits_left: digits_left - 1, value };
        if digits_left == 1 {
            self.pending.clear();
            self.state = State::Inside;
            self.push_code_point(value);
        }
    }

    fn push_code_point(&mut self, value: u32) {
        match (value, self.high_surrogate) {
            (0xD800..=0xDBFF, _) => {
                self.flush_surrogate();
                self.high_surrogate = Some(value);
            }
            (0xDC00..=0xDFFF, Some(high)) => {
                self.high_surrogate = None;
                let joined = 0x1_0000 + ((high - 0xD800) << 10) + (value - 0xDC00);
                self.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            _ => self.push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }

    fn after_quote(&mut self, c: char) -> Fed {
        let blanks = self.pending.len() > self.quote.len_utf8();
        if c.is_whitespace() {
            self.pending.push(c);
        } else if matches!(c, ',' | ']') {
            self.pending.clear();
            return Fed::NotTaken;
        } else if c == '#' && blanks {
            self.pending.clear();
            self.state = State::Closed;
            return Fed::NotTaken;
        } else if self.opens_same(c) {
            self.pending.clear();
            self.open_next(c);
        } else {
            self.push_pending();
            self.inside(c);
        }
        Fed::Taken
    }

    fn triple_closing(&mut self, c: char, quotes: u8) {
        if c != self.quote {
            (0..quotes).for_each(|_| self.push(self.quote));
            self.inside(c);
        } else if quotes == 2 {
            self.triple = false;
            self.state = State::Closed;
        } else {
            self.state = State::TripleClosing(quotes + 1);
        }
    }

    fn after_close(&mut self, c: char) -> Fed {
        match c {
            ',' | ']' | '#' => return Fed::NotTaken,
            _ if c.is_whitespace() => {}
            _ if self.opens_same(c) => self.open_next(c),
            _ => return Fed::Unexpected,
        }
        Fed::Taken
    }

    /// Whether `c` begins a text with the quotes of this one. One with others is likelier a quotation inside it.
    fn opens_same(&self, c: char) -> bool {
        opened(c).is_some_and(|(quote, _)| quote == self.quote)
    }

    fn open_next(&mut self, c: char) {
        if let Some((_, state)) = opened(c) {
            self.raw = false;
            self.state = state;
        }
    }

    fn push_pending(&mut self) {
        self.flush_surrogate();
        self.text.push_str(&self.pending);
        self.pending.clear();
    }

    fn push(&mut self, c: char) {
        self.flush_surrogate();
        self.text.push(c);
    }

    /// Half a pair stands for nothing.
    fn flush_surrogate(&mut self) {
        if self.high_surrogate.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// What closes a text that `quote` opens. Curly quotes are never tripled, so an empty text cannot be mistaken.
fn opened(quote: char) -> Option<(char, State)> {
    match quote {
        '"' | '\'' => Some((quote, State::Opened)),
        '“' => Some(('”', State::Inside)),
        '‘' => Some(('’', State::Inside)),
        _ => None,
    }
}
