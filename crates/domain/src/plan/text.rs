//! Parses one quoted text of a list, one character at a time.
//!
//! It supports the forms of Python and JSON: single, double, triple and curly quotes, raw texts, adjacent texts joined, and
//! escapes. Two rules follow what models mean instead of Python:
//!
//! - A quote closes a text only where a text can end. So `'Solve Bob's task'` and `"Explain "entropy" briefly"` are one text each.
//! - `\a`, `\b`, `\f` and `\v` stand for themselves: a model that writes `"\frac{1}{2}"` means LaTeX, not a form feed. The same
//!   holds for octal, named and malformed escapes.

/// The effect of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// It was consumed.
    Taken,
    /// The text ended before it.
    NotTaken,
    /// It cannot follow the text.
    Unexpected,
}

/// One text with the adjacent texts that are joined to it.
#[derive(Clone, Debug)]
pub(super) struct TextLexer {
    text: String,
    /// The quote that closes the text.
    quote: char,
    raw: bool,
    triple: bool,
    state: State,
    /// Characters that belong to the text if the next characters show it.
    pending: String,
    /// The first half of a surrogate pair that was written as an escape.
    high_surrogate: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// After one quote.
    Opened,
    /// After two quotes: an empty text, or the beginning of a triple quote.
    OpenedTwice,
    Inside,
    /// After a backslash.
    Escape,
    /// In a hexadecimal escape.
    Hex {
        digits_left: u8,
        value: u32,
    },
    /// After a quote that closes the text if the text can end there; the quote and the blanks after it are pending.
    MaybeClosed,
    /// After this many of three closing quotes.
    TripleClosing(u8),
    /// After the end of the text.
    Closed,
}

impl TextLexer {
    /// A text after its opening quote; `None` if `quote` is not a quote.
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

    /// Whether the text is triple-quoted and so may contain line breaks.
    pub(super) fn is_triple(&self) -> bool {
        self.triple
    }

    /// Consumes the next character.
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

    /// Whether `c` opens a text with the same quotes. Other quotes are more likely a quotation inside the text.
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

    /// Drops half a surrogate pair.
    fn flush_surrogate(&mut self) {
        if self.high_surrogate.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// The closing quote of a text that `quote` opens. Curly quotes are never tripled, so an empty text is unambiguous.
fn opened(quote: char) -> Option<(char, State)> {
    match quote {
        '"' | '\'' => Some((quote, State::Opened)),
        '“' => Some(('”', State::Inside)),
        '‘' => Some(('’', State::Inside)),
        _ => None,
    }
}
