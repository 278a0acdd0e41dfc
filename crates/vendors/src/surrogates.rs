//! Lone surrogates in JSON. A server that cuts text as JavaScript counts it may cut a character such as `🙂` in two and send
//! each UTF-16 surrogate in its own chunk, as an escape that JSON's grammar allows but no Rust string can hold.
//!
//! Such a surrogate passes through the parser as a placeholder from Unicode's private use area. Where two chunks meet, a
//! high and a low one are joined into the character. One without a partner becomes U+FFFD, the replacement character.

/// The first private-use character that serves as a placeholder; there is one for each surrogate.
const PLACEHOLDERS: u32 = 0x10_F800;
const SURROGATES: u32 = 0xD800;
const LOW_SURROGATES: u32 = 0xDC00;
const SURROGATES_END: u32 = 0xE000;

/// JSON with a placeholder for each lone surrogate; `None` if it has none, which is nearly always the case.
pub(crate) fn with_placeholders(json: &[u8]) -> Option<Vec<u8>> {
    let mut replaced = Vec::new();
    let (mut kept_to, mut at) = (0, 0);
    while let Some(backslash) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += backslash;
        let Some(half) = surrogate(&json[at..]) else {
            // Skip the backslash together with the character that it escapes (such as another backslash).
            at = (at + 2).min(json.len());
            continue;
        };
        let next = if half < LOW_SURROGATES { surrogate(&json[at + 6..]) } else { None };
        if next.is_some_and(|next| next >= LOW_SURROGATES) {
            at += 12;
            continue;
        }
        replaced.extend_from_slice(&json[kept_to..at]);
        at += 6;
        kept_to = at;
        if let Some(placeholder) = char::from_u32(PLACEHOLDERS + (half - SURROGATES)) {
            replaced.extend_from_slice(placeholder.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    (kept_to > 0).then(|| {
        replaced.extend_from_slice(&json[kept_to..]);
        replaced
    })
}

/// The surrogate whose `\u` escape `escaped` begins with.
fn surrogate(escaped: &[u8]) -> Option<u32> {
    let digits = escaped.strip_prefix(b"\\u")?.get(..4)?;
    let code = digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))?;
    (SURROGATES..SURROGATES_END).contains(&code).then_some(code)
}

/// The surrogate that a placeholder represents.
fn half(placeholder: char) -> Option<u32> {
    u32::from(placeholder).checked_sub(PLACEHOLDERS).map(|half| SURROGATES + half)
}

/// The text with its pairs of placeholders joined into characters, and U+FFFD for lone ones.
pub(crate) fn joined(text: &str) -> String {
    let mut characters = text.chars().peekable();
    let mut whole = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        let Some(high) = half(character) else {
            whole.push(character);
            continue;
        };
        let low = characters.peek().and_then(|next| half(*next)).filter(|low| *low >= LOW_SURROGATES);
        let together = low
            .filter(|_| high < LOW_SURROGATES)
            .and_then(|low| char::from_u32(0x1_0000 + ((high - SURROGATES) << 10) + (low - LOW_SURROGATES)));
        if together.is_some() {
            characters.next();
        }
        whole.push(together.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    whole
}

/// Joins surrogates across the chunks of an answer's two texts.
#[derive(Debug, Default)]
pub(crate) struct Seams {
    pub(crate) text: Seam,
    pub(crate) reasoning: Seam,
}

/// Joins surrogates that come in different chunks of one text.
#[derive(Debug, Default)]
pub(crate) struct Seam {
    first_half: Option<char>,
}

impl Seam {
    /// The text that is complete with this chunk. A high surrogate at its end is kept for the next one.
    pub(crate) fn join(&mut self, piece: &str) -> String {
        let mut text: String = self.first_half.take().into_iter().collect();
        text.push_str(piece);
        let last = text.chars().next_back();
        if let Some(last) = last.filter(|last| half(*last).is_some_and(|half| half < LOW_SURROGATES)) {
            text.truncate(text.len() - last.len_utf8());
            self.first_half = Some(last);
        }
        joined(&text)
    }

    /// The rest of the text after the last chunk: U+FFFD for a high surrogate without a partner, or nothing.
    pub(crate) fn end(&mut self) -> String {
        self.first_half.take().map(|_| char::REPLACEMENT_CHARACTER).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> String {
        let replaced = with_placeholders(json.as_bytes());
        serde_json::from_slice(replaced.as_deref().unwrap_or(json.as_bytes())).unwrap()
    }

    #[test]
    fn json_without_lone_surrogates_is_unchanged() {
        for json in [
            r#""""#,
            r#""\n\\ud83d""#,
            r#""\ud83d\ude42 \u00e9""#,
            r#""\\\\ud83d""#,
            r#""🙂""#,
            "\\",
            r"\u",
            r"\ud8",
        ] {
            assert_eq!(with_placeholders(json.as_bytes()), None, "{json}");
        }
    }

    #[test]
    fn surrogates_are_joined_across_chunks() {
        let mut seam = Seam::default();
        assert_eq!(seam.join(&read(r#""a\ud83d""#)), "a");
        assert_eq!(seam.join(&read(r#""\ude42b\uD83C""#)), "🙂b");
        assert_eq!(seam.join(""), "");
        assert_eq!(seam.join(&read(r#""\uDF0D""#)), "🌍");
        assert_eq!(seam.end(), "");
        let argument = read(r#""x\ud83d""#) + &read(r#""\ude42y""#);
        assert_eq!(joined(&argument), "x🙂y");
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        let mut seam = Seam::default();
        assert_eq!(seam.join(&read(r#""\ude42 \\\ud83d\ud83d""#)), "\u{fffd} \\\u{fffd}");
        assert_eq!(seam.join("a"), "\u{fffd}a");
        assert_eq!(seam.join(&read(r#""\ud83d""#)), "");
        assert_eq!(seam.end(), "\u{fffd}");
    }
}
