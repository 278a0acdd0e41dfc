//! Text of models, users and vendors, made safe to write to a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

/// Whether a character does more on a terminal than being shown: C0 and C1 controls, which begin escape sequences, and the marks
/// and overrides that change the direction of text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with such characters made visible, such as `^[` for escape or `<U+202E>` for an override. Line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_hidden(c) && !matches!(c, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        // Writing to a string cannot fail.
        let _ = match (c, u8::try_from(u32::from(c))) {
            ('\n' | '\t', _) => shown.write_char(c),
            (c, _) if !is_hidden(c) => shown.write_char(c),
            ('\u{7f}', _) => shown.write_str("^?"),
            (_, Ok(control @ 0..0x20)) => write!(shown, "^{}", char::from(control + b'@')),
            _ => write!(shown, "<U+{:04X}>", u32::from(c)),
        };
    }
    Cow::Owned(shown)
}

/// JSON with such characters as `\u` escapes. In valid JSON they stand inside strings only, apart from line breaks.
pub(crate) fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether standard output is a terminal. A file or a pipe gets every byte as it is.
pub(crate) fn is_stdout() -> bool {
    io::stdout().is_terminal()
}

/// Writes a line to standard error, which people read.
pub(crate) fn note(text: &str) {
    eprintln!("podium: {}", visible(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        for (sent, shown) in [
            ("\u{1b}]52;c;aGk=\u{7}", "^[]52;c;aGk=^G"),
            ("\u{1b}]0;TITLE\u{1b}\\", "^[]0;TITLE^[\\"),
            ("\u{1b}[2J\u{1b}[H", "^[[2J^[[H"),
            ("\u{9b}2J", "<U+009B>2J"),
            ("a\u{202e}b\u{2066}c", "a<U+202E>b<U+2066>c"),
            ("over\rwritten\u{8}\u{7f}", "over^Mwritten^H^?"),
            ("a\r\nb\u{0}", "a\nb^@"),
        ] {
            assert_eq!(visible(sent), shown);
        }
        for plain in ["", "two\nlines\tand a tab", "日本語 🎉 é"] {
            assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[test]
    fn json_stays_the_same_value_without_control_characters() {
        let value = serde_json::json!({"answer": "\u{1b}[2J\u{9b}2J\u{202e}\u{7f}é"});
        let shown = visible_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!shown.contains(|c| is_hidden(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
