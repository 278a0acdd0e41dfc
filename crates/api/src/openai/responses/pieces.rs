//! Cuts an answer into the pieces that a stream sends.

/// Longest minimum of a piece, in bytes. Until an answer is 16 times as long, its pieces grow with it.
const LEAST_BYTES_MAX: usize = 64;
/// Bytes after the minimum in which a piece ends at a blank, or else at their end.
const SLACK_BYTES: usize = 32;

/// Cuts text into pieces that depend on the text only, not on the parts in which it arrives. So a stream that is written again has
/// the same events with the same numbers.
///
/// The first pieces are single words, so that a client sees the beginning at once; later ones have about 64 bytes.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The bytes of the pieces so far.
    sent: usize,
    /// Text of a piece whose end is not known yet.
    held: String,
}

impl Pieces {
    /// The pieces that `text` completes.
    pub(super) fn push(&mut self, text: &str) -> Vec<String> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while let Some(end) = self.end() {
            let rest = self.held.split_off(end);
            self.sent += end;
            pieces.push(std::mem::replace(&mut self.held, rest));
        }
        pieces
    }

    /// The last piece, once the text is complete.
    pub(super) fn finish(&mut self) -> Option<String> {
        let last = std::mem::take(&mut self.held);
        (!last.is_empty()).then_some(last)
    }

    /// The end of the next piece, if the text reaches it.
    fn end(&self) -> Option<usize> {
        let least = (self.sent / 16).min(LEAST_BYTES_MAX);
        let most = least + SLACK_BYTES;
        let blank = self.held.char_indices().find(|(at, c)| (least..most).contains(at) && c.is_whitespace());
        if let Some((at, blank)) = blank {
            return Some(at + blank.len_utf8());
        }
        (self.held.len() >= most).then(|| self.held.ceil_char_boundary(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a text that arrives in parts of so many characters.
    fn cut(text: &str, chars: usize) -> Vec<String> {
        let (mut pieces, mut cut) = (Pieces::default(), Vec::new());
        let all: Vec<char> = text.chars().collect();
        for part in all.chunks(chars) {
            cut.extend(pieces.push(&part.iter().collect::<String>()));
        }
        cut.extend(pieces.finish());
        cut
    }

    #[test]
    fn pieces_depend_on_the_text_only() {
        let words = (0..400).map(|n| format!("word{n} ")).collect::<Vec<_>>().concat();
        let unbroken = "天空是蓝色的".repeat(200);
        for text in [words.as_str(), unbroken.as_str(), "", "one", " leading\n\nlines\n", "é"] {
            let whole = cut(text, usize::MAX);
            assert_eq!(whole.concat(), text);
            for chars in [1, 2, 7, 100] {
                assert_eq!(cut(text, chars), whole);
            }
        }
    }

    #[test]
    fn the_first_pieces_are_words_and_no_piece_is_long() {
        let words = (0..2000).map(|n| format!("word{n} ")).collect::<Vec<_>>().concat();
        let pieces = cut(&words, 5);
        assert_eq!(pieces[..2], ["word0 ", "word1 "]);
        assert!(pieces.len() < 300, "{}", pieces.len());
        let longest = pieces.iter().map(String::len).max().unwrap();
        assert!(longest <= LEAST_BYTES_MAX + SLACK_BYTES + 3, "{longest}");
        let unbroken = cut(&"x".repeat(10_000), 3);
        assert!(unbroken.iter().all(|piece| piece.len() <= LEAST_BYTES_MAX + SLACK_BYTES));
    }
}
