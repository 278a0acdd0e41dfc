//! Halves of characters. A server that cuts texts as JavaScript counts them may cut a character such as `🙂` in two and send each
//! half in a piece of its own, as an escape that JSON's grammar allows and no text can hold.
//!
//! Such a half goes through the parser as a stand-in, a character that Unicode leaves to everybody's own use, and is put together
//! with the other half where the pieces meet. One that stays alone becomes the sign for what cannot be shown.

/// The first of as many characters for private use as there are halves, which are the surrogates of UTF-16.
const STAND_INS: u32 = 0x10_F800;
const SURROGATES: u32 = 0xD800;
const LOW_SURROGATES: u32 = 0xDC00;
const SURROGATES_END: u32 = 0xE000;

/// JSON with a stand-in for each half that stands alone; `None` where there is none, which is nearly always.
pub(crate) fn with_stand_ins(json: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::new();
    let (mut kept_to, mut at) = (0, 0);
    while let Some(backslash) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += backslash;
        let Some(half) = surrogate(&json[at..]) else {
            // Whatever is escaped, such as another backslash, is passed over with it.
            at = (at + 2).min(json.len());
            continue;
        };
        let next = if half < LOW_SURROGATES { surrogate(&json[at + 6..]) } else { None };
        if next.is_some_and(|next| next >= LOW_SURROGATES) {
            at += 12;
            continue;
        }
        mended.extend_from_slice(&json[kept_to..at]);
        at += 6;
        kept_to = at;
        if let Some(stand_in) = char::from_u32(STAND_INS + (half - SURROGATES)) {
            mended.extend_from_slice(stand_in.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    (kept_to > 0).then(|| {
        mended.extend_from_slice(&json[kept_to..]);
        mended
    })
}

/// The surrogate for which `escaped` begins with the escape.
fn surrogate(escaped: &[u8]) -> Option<u32> {
    let digits = escaped.strip_prefix(b"\\u")?.get(..4)?;
    let code = digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))?;
    (SURROGATES..SURROGATES_END).contains(&code).then_some(code)
}

/// The half for which a character stands.
fn half(stand_in: char) -> Option<u32> {
    u32::from(stand_in).checked_sub(STAND_INS).map(|half| SURROGATES + half)
}

/// A text whose halves are put together.
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

/// The seams of an answer's texts.
#[derive(Debug, Default)]
pub(crate) struct Seams {
    pub(crate) text: Seam,
    pub(crate) reasoning: Seam,
}

/// Puts halves together that come in different pieces of one text.
#[derive(Debug, Default)]
pub(crate) struct Seam {
    first_half: Option<char>,
}

impl Seam {
    /// What can be said once this piece is there. A first half at its end waits for the next piece.
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

    /// What is left once no more pieces come.
    pub(crate) fn end(&mut self) -> String {
        self.first_half.take().map(|_| char::REPLACEMENT_CHARACTER).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> String {
        let mended = with_stand_ins(json.as_bytes());
        serde_json::from_slice(mended.as_deref().unwrap_or(json.as_bytes())).unwrap()
    }

    #[test]
    fn json_without_a_half_stays_as_it_is() {
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
            assert_eq!(with_stand_ins(json.as_bytes()), None, "{json}");
        }
    }

    #[test]
    fn halves_are_put_together_where_pieces_meet() {
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
    fn a_half_that_stays_alone_is_shown_as_such() {
        let mut seam = Seam::default();
        assert_eq!(seam.join(&read(r#""\ude42 \\\ud83d\ud83d""#)), "\u{fffd} \\\u{fffd}");
        assert_eq!(seam.join("a"), "\u{fffd}a");
        assert_eq!(seam.join(&read(r#""\ud83d""#)), "");
        assert_eq!(seam.end(), "\u{fffd}");
    }
}
