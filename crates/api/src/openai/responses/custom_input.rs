//! Takes the text for a custom tool out of the arguments that a worker wrote for it.
//!
//! Workers know a custom tool as a function with one argument, `input`. The text depends on the arguments only, not on the parts in
//! which they arrive.

use serde_json::{Value, json};

/// The name of the argument.
pub(super) const INPUT: &str = "input";

/// The arguments for this text.
pub(super) fn arguments_of(text: &str) -> String {
    json!({ INPUT: text }).to_string()
}

/// The text in whole arguments.
pub(super) fn text_of(arguments: &str) -> String {
    let mut input = CustomInput::default();
    let mut text = input.push(arguments);
    text.push_str(&input.finish());
    text
}

/// The text of arguments that arrive in parts.
#[derive(Debug, Default)]
pub(super) struct CustomInput {
    arguments: String,
    /// The bytes of the arguments that are done with.
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The text has not begun.
    #[default]
    Before,
    Inside,
    After,
    /// The arguments begin differently. Their text is known at their end.
    Other,
}

/// The beginning of a text.
enum Escape {
    Char {
        decoded: char,
        bytes: usize,
    },
    /// More must arrive.
    Incomplete,
}

impl CustomInput {
    /// The text that these further arguments complete.
    pub(super) fn push(&mut self, arguments: &str) -> String {
        self.arguments.push_str(arguments);
        if self.state == State::Before {
            self.begin();
        }
        let mut text = String::new();
        while self.state == State::Inside {
            let rest = &self.arguments[self.at..];
            let (decoded, bytes) = match rest.chars().next() {
                None => break,
                Some('"') => {
                    self.state = State::After;
                    break;
                }
                Some('\\') => match escape(rest) {
                    Escape::Char { decoded, bytes } => (decoded, bytes),
                    Escape::Incomplete => break,
                },
                // JSON forbids line breaks here, and models write them.
                Some(plain) => (plain, plain.len_utf8()),
            };
            text.push(decoded);
            self.at += bytes;
        }
        text
    }

    /// The rest of the text, once the arguments are complete.
    pub(super) fn finish(&mut self) -> String {
        let state = std::mem::replace(&mut self.state, State::After);
        match state {
            State::After => String::new(),
            State::Inside => self.arguments[self.at..].to_owned(),
            State::Before | State::Other => {
                let read = serde_json::from_str::<Value>(&self.arguments).ok();
                let text = read.and_then(|read| read.get(INPUT)?.as_str().map(str::to_owned));
                // A worker may write the text itself in place of JSON.
                text.unwrap_or_else(|| std::mem::take(&mut self.arguments))
            }
        }
    }

    fn begin(&mut self) {
        let mut rest = self.arguments.as_str();
        for token in ["{", "\"input\"", ":", "\""] {
            rest = rest.trim_start();
            match rest.strip_prefix(token) {
                Some(behind) => rest = behind,
                None if token.starts_with(rest) => return,
                None => {
                    self.state = State::Other;
                    return;
                }
            }
        }
        self.at = self.arguments.len() - rest.len();
        self.state = State::Inside;
    }
}

/// Decodes the escape at the beginning of `text`. An invalid one stands for its backslash.
fn escape(text: &str) -> Escape {
    let simple = |decoded: char| Escape::Char { decoded, bytes: 2 };
    match text[1..].chars().next() {
        None => Escape::Incomplete,
        Some('n') => simple('\n'),
        Some('t') => simple('\t'),
        Some('r') => simple('\r'),
        Some('b') => simple('\u{8}'),
        Some('f') => simple('\u{c}'),
        Some(same @ ('"' | '\\' | '/')) => simple(same),
        Some('u') => unicode(text),
        Some(_) => Escape::Char { decoded: '\\', bytes: 1 },
    }
}

/// Decodes `\u` with its digits, and the one after it if both are one character.
fn unicode(text: &str) -> Escape {
    let broken = Escape::Char { decoded: '\\', bytes: 1 };
    let first = match digits(&text[2..]) {
        Digits::Unit(unit) => unit,
        Digits::Incomplete => return Escape::Incomplete,
        Digits::Invalid => return broken,
    };
    if let Some(decoded) = char::from_u32(first.into()) {
        return Escape::Char { decoded, bytes: 6 };
    }
    let alone = Escape::Char { decoded: char::REPLACEMENT_CHARACTER, bytes: 6 };
    let rest = &text[6..];
    let second = match rest.strip_prefix("\\u") {
        Some(behind) => match digits(behind) {
            Digits::Unit(unit) => unit,
            Digits::Incomplete => return Escape::Incomplete,
            Digits::Invalid => return alone,
        },
        None if "\\u".starts_with(rest) => return Escape::Incomplete,
        None => return alone,
    };
    match char::decode_utf16([first, second]).next() {
        Some(Ok(decoded)) => Escape::Char { decoded, bytes: 12 },
        _ => alone,
    }
}

enum Digits {
    Unit(u16),
    Incomplete,
    Invalid,
}

/// Reads four hexadecimal digits.
fn digits(text: &str) -> Digits {
    let count = text.bytes().take(4).take_while(u8::is_ascii_hexdigit).count();
    if count < 4 {
        return if count == text.len() { Digits::Incomplete } else { Digits::Invalid };
    }
    u16::from_str_radix(&text[..4], 16).map_or(Digits::Invalid, Digits::Unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_whatever_the_parts() {
        let patch = "*** Begin Patch\n+a \"b\" \\ \u{1F600}é\t/\n*** End Patch";
        let escaped = r#" { "input" : "\ud83d\ude00\u0041\/\b\f\r" } "#;
        let cases = [
            (arguments_of(patch), patch),
            (arguments_of(""), ""),
            (escaped.to_owned(), "\u{1F600}A/\u{8}\u{c}\r"),
            ("{\"input\": \"raw\nline\"}".to_owned(), "raw\nline"),
            (r#"{"input":"cut of"#.to_owned(), "cut of"),
            (r#"{"input":"cut\u00"#.to_owned(), "cut\\u00"),
            (
                r#"{"input":"\ud83d alone \ud83d\u0041 \q \u00zz"}"#.to_owned(),
                "\u{fffd} alone \u{fffd}A \\q \\u00zz",
            ),
            (r#"{"why": 1, "input": "late"}"#.to_owned(), "late"),
            (patch.to_owned(), patch),
            ("{}".to_owned(), "{}"),
            ("{".to_owned(), "{"),
            (String::new(), ""),
        ];
        for (arguments, expected) in cases {
            assert_eq!(text_of(&arguments), expected, "{arguments}");
            for size in [1, 2, 5] {
                let (mut input, mut text) = (CustomInput::default(), String::new());
                let all: Vec<char> = arguments.chars().collect();
                for part in all.chunks(size) {
                    text.push_str(&input.push(&part.iter().collect::<String>()));
                }
                text.push_str(&input.finish());
                assert_eq!(text, expected, "{arguments} in parts of {size}");
            }
        }
    }

    #[test]
    fn text_is_known_as_soon_as_its_arguments_are() {
        let mut input = CustomInput::default();
        assert_eq!(input.push(r#"{"input": "on"#), "on");
        assert_eq!(input.push(r"e\nt"), "e\nt");
        assert_eq!(input.push(r#"wo"}"#), "wo");
        assert_eq!(input.finish(), "");
    }
}
