//! Splits English text into words, numbers, dates, clock times, quotations and symbols. Every token keeps its byte range, so
//! that a clause can be quoted as written.

use crate::skills::calendar::{Date, month_number};

/// Longer quotations are read as plain words. This also bounds the search for a closing mark.
const QUOTE_BYTES_MAX: usize = 4_000;

/// The kind of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// Letters, in lower case. Hyphens between letters separate words and are dropped.
    Word(String),
    /// A number in digits.
    Number,
    /// `3rd`, `21st`.
    Ordinal(i64),
    /// A day in one of the three accepted forms.
    Date(Date),
    /// Minutes since midnight of a time such as `09:40`.
    Clock(i64),
    /// Text between quotation marks, without them.
    Quote(String),
    /// Numbers separated by commas, as written, without the commas.
    List(Vec<String>),
    /// The output of an operation, by its index.
    Result(usize),
    /// Any other visible character.
    Symbol(char),
}

/// A token with its byte range in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// The text as written.
    pub(crate) written: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    /// The word, if this is one.
    pub(crate) fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    /// The number as written, if this is one.
    pub(crate) fn number(&self) -> Option<&str> {
        (self.kind == Kind::Number).then_some(self.written.as_str())
    }

    /// Whether this is that symbol.
    pub(crate) fn is_symbol(&self, symbol: char) -> bool {
        self.kind == Kind::Symbol(symbol)
    }
}

/// Splits `text` in linear time.
pub(crate) fn tokenise(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, position: 0, tokens: Vec::new() };
    while lexer.position < text.len() {
        lexer.step();
    }
    gather_lists(text, &gather_dates(text, &lexer.tokens))
}

struct Lexer<'a> {
    text: &'a str,
    position: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let end = self.position + length;
        let written = self.text.get(self.position..end).unwrap_or_default().to_owned();
        self.tokens.push(Token { kind, written, start: self.position, end });
        self.position = end;
    }

    fn previous_char(&self) -> Option<char> {
        self.text.get(..self.position).and_then(|before| before.chars().next_back())
    }

    fn step(&mut self) {
        let Some(first) = self.rest().chars().next() else {
            self.position = self.text.len();
            return;
        };
        if first.is_whitespace() || first.is_control() {
            self.position += first.len_utf8();
        } else if first.is_ascii_digit() {
            self.take_number(0);
        } else if self.begins_negative_number(first) {
            self.take_number(first.len_utf8());
        } else if first.is_alphabetic() {
            self.take_word();
        } else if let Some(length) = self.quotation_length(first) {
            let inner = self.rest().get(first.len_utf8()..first.len_utf8() + length).unwrap_or_default();
            let closing = self.rest().get(first.len_utf8() + length..).and_then(|rest| rest.chars().next());
            let total = first.len_utf8() + length + closing.map_or(0, char::len_utf8);
            self.push(Kind::Quote(inner.to_owned()), total);
        } else {
            self.take_symbol(first);
        }
    }

    fn take_symbol(&mut self, first: char) {
        let length = first.len_utf8();
        let after = self.rest().get(length..).and_then(|rest| rest.chars().next());
        let before = self.previous_char();
        let joins_words = first == '-'
            && before.is_some_and(char::is_alphanumeric)
            && after.is_some_and(char::is_alphabetic);
        if joins_words {
            self.position += length;
        } else if first == '\u{b0}' {
            let word = match after {
                Some('C' | 'c') => "celsius",
                Some('F' | 'f') => "fahrenheit",
                _ => return self.push(Kind::Word("degrees".to_owned()), length),
            };
            self.push(Kind::Word(word.to_owned()), length + 1);
        } else if let (true, Some('s' | 'S')) =
            (is_apostrophe(first) && before.is_some_and(char::is_alphanumeric), after)
        {
            let question_word = self.tokens.last().and_then(Token::word).is_some_and(|word| {
                matches!(word, "what" | "it" | "that" | "who" | "which" | "where" | "there" | "here")
            });
            self.push(Kind::Word(if question_word { "is" } else { "'s" }.to_owned()), length + 1);
        } else if is_apostrophe(first) && before.is_some_and(char::is_alphanumeric) {
            self.position += length;
        } else {
            self.push(Kind::Symbol(first), length);
        }
    }

    /// A minus sign belongs to the number unless an operand stands before it.
    fn begins_negative_number(&self, first: char) -> bool {
        let digit_follows = || self.rest().chars().nth(1).is_some_and(|next| next.is_ascii_digit());
        let operand_before = || {
            self.tokens.last().is_some_and(|token| match &token.kind {
                Kind::Number | Kind::Symbol(')') => true,
                Kind::Word(word) => matches!(word.as_str(), "it" | "result" | "that" | "answer"),
                _ => false,
            })
        };
        matches!(first, '-' | '\u{2212}') && digit_follows() && !operand_before()
    }

    fn take_number(&mut self, sign_length: usize) {
        let rest = self.rest();
        let digits = rest.get(sign_length..).unwrap_or_default();
        if sign_length == 0
            && let Some((kind, length)) = iso_date(digits).or_else(|| clock_time(digits))
        {
            return self.push(kind, length);
        }
        let length = number_length(digits);
        let suffix = digits.get(length..length + 2).unwrap_or_default().to_ascii_lowercase();
        let ends_word = !digits.get(length + 2..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        if sign_length == 0
            && ends_word
            && matches!(suffix.as_str(), "st" | "nd" | "rd" | "th")
            && let Ok(ordinal) = digits.get(..length).unwrap_or_default().parse()
        {
            return self.push(Kind::Ordinal(ordinal), length + 2);
        }
        self.push(Kind::Number, sign_length + length);
    }

    fn take_word(&mut self) {
        let length = self.rest().find(|next: char| !next.is_alphabetic()).unwrap_or(self.rest().len());
        let word = self.rest().get(..length).unwrap_or_default().to_lowercase();
        self.push(Kind::Word(word), length);
    }

    /// The length of the quoted text that begins here, if a closing mark follows.
    fn quotation_length(&self, first: char) -> Option<usize> {
        let closing = match first {
            '"' => '"',
            '\u{201c}' => '\u{201d}',
            '\u{2018}' => '\u{2019}',
            '\u{ab}' => '\u{bb}',
            '`' => '`',
            '\'' => '\'',
            _ => return None,
        };
        if is_apostrophe(first) && self.previous_char().is_some_and(char::is_alphanumeric) {
            return None;
        }
        let inner = self.rest().get(first.len_utf8()..)?;
        let mut previous = ' ';
        for (offset, character) in inner.char_indices().take_while(|(offset, _)| *offset < QUOTE_BYTES_MAX) {
            // An apostrophe within a word does not close a quotation.
            let inside_word = is_apostrophe(character)
                && previous.is_alphabetic()
                && inner
                    .get(offset + character.len_utf8()..)
                    .is_some_and(|rest| rest.starts_with(char::is_alphabetic));
            if character == closing && !inside_word {
                return (offset > 0).then_some(offset);
            }
            previous = character;
        }
        None
    }
}

fn is_apostrophe(character: char) -> bool {
    matches!(character, '\'' | '\u{2019}' | '\u{2018}')
}

/// The length of an unsigned number: digits, groups of three after commas, decimals.
fn number_length(text: &str) -> usize {
    let digits =
        |from: usize| text.get(from..).unwrap_or_default().bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(0);
    if length <= 3 {
        while text.as_bytes().get(length) == Some(&b',') && digits(length + 1) == 3 {
            length += 4;
        }
    }
    let decimals = digits(length + 1);
    if text.as_bytes().get(length) == Some(&b'.') && decimals > 0 { length + 1 + decimals } else { length }
}

/// `2024-03-03`
fn iso_date(text: &str) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes().get(..10)?;
    let shaped = bytes.iter().enumerate().all(|(index, byte)| match index {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let ends = !text.as_bytes().get(10).is_some_and(u8::is_ascii_alphanumeric);
    let part = |from: usize, to: usize| text.get(from..to)?.parse().ok();
    let date = (shaped && ends).then(|| Date::new(part(0, 4)?, part(5, 7)?, part(8, 10)?))??;
    Some((Kind::Date(date), 10))
}

/// `9:40`, `14:05`, `2:05 pm`
fn clock_time(text: &str) -> Option<(Kind, usize)> {
    let colon = text.as_bytes().iter().take(3).position(|byte| *byte == b':')?;
    let minutes_text = text.get(colon + 1..colon + 3)?;
    let whole = minutes_text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.as_bytes().get(colon + 3).is_some_and(u8::is_ascii_digit);
    let hours: i64 = text.get(..colon)?.parse().ok()?;
    let minutes: i64 = minutes_text.parse().ok()?;
    if !whole || minutes > 59 || hours > 24 {
        return None;
    }
    let rest = text.get(colon + 3..).unwrap_or_default();
    let trimmed = rest.trim_start_matches(' ');
    let letters: String = trimmed.chars().take(4).collect::<String>().to_ascii_lowercase();
    let (half, marker) = ["a.m.", "p.m.", "am", "pm"]
        .iter()
        .find(|marker| letters.starts_with(**marker))
        .filter(|marker| {
            !trimmed.get(marker.len()..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric))
        })
        .map_or((None, 0), |marker| (marker.chars().next(), rest.len() - trimmed.len() + marker.len()));
    let hours = match half {
        Some(_) if !(1..=12).contains(&hours) => return None,
        Some('p') => hours % 12 + 12,
        Some(_) => hours % 12,
        None => hours,
    };
    let total = hours * 60 + minutes;
    (total <= 24 * 60).then_some((Kind::Clock(total), colon + 3 + marker))
}

/// Joins `3 March 2024`, `3rd of March, 2024` and `March 3, 2024` into one token.
fn gather_dates(text: &str, tokens: &[Token]) -> Vec<Token> {
    let mut gathered = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        if let Some((date, length)) = written_date(&tokens[index..]) {
            gathered.push(joined(text, Kind::Date(date), &tokens[index..index + length]));
            index += length;
        } else {
            gathered.push(tokens[index].clone());
            index += 1;
        }
    }
    gathered
}

fn written_date(tokens: &[Token]) -> Option<(Date, usize)> {
    let month_at = |index: usize| tokens.get(index).and_then(Token::word).and_then(month_number);
    let number_at = |index: usize| match tokens.get(index)? {
        Token { kind: Kind::Ordinal(ordinal), .. } => Some(*ordinal),
        Token { kind: Kind::Number, written, .. } => written.parse().ok(),
        _ => None,
    };
    let is_filler = |index: usize, filler: &str| {
        tokens
            .get(index)
            .is_some_and(|token| token.word() == Some(filler) || (filler == "," && token.is_symbol(',')))
    };
    let (day, month, next) = if let Some(month) = month_at(0) {
        let at = 1 + usize::from(is_filler(1, "the"));
        (number_at(at)?, month, at + 1)
    } else {
        let at = 1 + usize::from(is_filler(1, "of"));
        (number_at(0)?, month_at(at)?, at + 1)
    };
    let year_at = next + usize::from(is_filler(next, ",") || is_filler(next, "of") || is_filler(next, "in"));
    Some((Date::new(number_at(year_at)?, month, day)?, year_at + 1))
}

fn joined(text: &str, kind: Kind, parts: &[Token]) -> Token {
    let start = parts.first().map_or(0, |token| token.start);
    let end = parts.last().map_or(start, |token| token.end);
    Token { kind, written: text.get(start..end).unwrap_or_default().to_owned(), start, end }
}

/// Joins two or more numbers with commas between them, and a last one after "and", into one token.
fn gather_lists(text: &str, tokens: &[Token]) -> Vec<Token> {
    let mut gathered = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        let length = number_list_length(tokens.get(index..).unwrap_or_default());
        if length < 3 {
            gathered.push(tokens[index].clone());
            index += 1;
            continue;
        }
        let items =
            tokens[index..index + length].iter().filter_map(Token::number).map(str::to_owned).collect();
        gathered.push(joined(text, Kind::List(items), &tokens[index..index + length]));
        index += length;
    }
    gathered
}

fn number_list_length(tokens: &[Token]) -> usize {
    let is_number = |index: usize| tokens.get(index).is_some_and(|token| token.number().is_some());
    let is_comma =
        |index: usize| tokens.get(index).is_some_and(|token| token.is_symbol(',') || token.is_symbol(';'));
    let is_and = |index: usize| tokens.get(index).and_then(Token::word) == Some("and");
    if !is_number(0) {
        return 0;
    }
    let mut length = 1;
    while is_comma(length) && is_number(length + 1) {
        length += 2;
    }
    let last = length + usize::from(is_comma(length));
    if length > 1 && is_and(last) && is_number(last + 1) {
        return last + 2;
    }
    // "2, and 3" and "2 and 3" are two numbers, not a list.
    length
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokenise};
    use crate::skills::calendar::Date;

    fn kinds(text: &str) -> Vec<Kind> {
        tokenise(text).into_iter().map(|token| token.kind).collect()
    }

    fn word(text: &str) -> Kind {
        Kind::Word(text.to_owned())
    }

    #[test]
    fn dates_are_read_in_every_accepted_form() {
        let date = Date::new(2024, 3, 3).expect("exists");
        for text in [
            "3 March 2024",
            "March 3, 2024",
            "2024-03-03",
            "3rd of March 2024",
            "March 3rd 2024",
            "03 mar 2024",
        ] {
            assert_eq!(kinds(text), [Kind::Date(date)], "{text}");
        }
        assert_ne!(kinds("31 February 2024").len(), 1);
    }

    #[test]
    fn times_lists_and_quotations_are_one_token_each() {
        assert_eq!(kinds("09:40"), [Kind::Clock(580)]);
        assert_eq!(kinds("2:05 p.m."), [Kind::Clock(845)]);
        assert_eq!(
            kinds("4, -9, 2.5 and 7"),
            [Kind::List(["4", "-9", "2.5", "7"].map(str::to_owned).to_vec())]
        );
        assert_eq!(
            kinds("'it's fine' \u{201c}x\u{201d}"),
            [Kind::Quote("it's fine".into()), Kind::Quote("x".into())]
        );
    }

    #[test]
    fn signs_hyphens_and_apostrophes_are_distinguished() {
        assert_eq!(kinds("17 -4"), [Kind::Number, Kind::Symbol('-'), Kind::Number]);
        assert_eq!(kinds("by -4"), [word("by"), Kind::Number]);
        assert_eq!(kinds("forty-two"), [word("forty"), word("two")]);
        assert_eq!(kinds("what's France's"), [word("what"), word("is"), word("france"), word("'s")]);
        assert_eq!(kinds("1,234 12,34"), [Kind::Number, Kind::List(vec!["12".into(), "34".into()])]);
        assert_eq!(kinds("20\u{b0}C"), [Kind::Number, word("celsius")]);
    }
}
