//! Subtasks that are copied from the question, for conductors that are too small to spell reliably.

use std::fmt::Write as _;

use serde_json::json;

/// Most pieces of a question that subtasks are copied from; beyond it the grammar would be too large.
const CHUNKS_MAX: usize = 512;

/// A question in pieces that are copied whole: words and numbers with inner punctuation, blanks, single marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    chunks: Vec<String>,
}

impl Copied {
    /// Splits `question`; `None` if it has too many pieces.
    pub(super) fn of(question: &str) -> Option<Self> {
        let mut chunks: Vec<String> = Vec::new();
        let mut last = None;
        let mut rest = question.chars().peekable();
        while let Some(next) = rest.next() {
            let kind = match next {
                _ if next.is_whitespace() => Kind::Blank,
                _ if is_word(next) => Kind::Word,
                // `11.5`, `14:05`, `don't`, `follow-up`: a mark between two letters or digits belongs to the word.
                '.' | '\'' | '\u{2019}' | '/' | ':' | '-'
                    if last == Some(Kind::Word) && rest.peek().copied().is_some_and(is_word) =>
                {
                    Kind::Word
                }
                _ => Kind::Mark,
            };
            match (kind, chunks.last_mut()) {
                (Kind::Blank, Some(_)) if last == Some(Kind::Blank) => {}
                (Kind::Blank, _) => chunks.push(" ".to_owned()),
                (Kind::Word, Some(word)) if last == Some(Kind::Word) => word.push(next),
                (Kind::Mark, _) if matches!(next, '"' | '\\') => chunks.push(format!("\\{next}")),
                (Kind::Mark, _) if next.is_control() => {}
                (Kind::Word | Kind::Mark, _) => chunks.push(next.to_string()),
            }
            if chunks.len() > CHUNKS_MAX {
                return None;
            }
            last = Some(kind);
        }
        Some(Self { chunks })
    }

    /// The same pieces with lower-case letters at sentence beginnings, for use within a subtask.
    fn in_mid_sentence(&self) -> Vec<String> {
        let begins = |at: usize| {
            let before: Vec<_> = self.chunks[..at].iter().rev().take(2).map(String::as_str).collect();
            matches!(before[..], [] | [" "] | [" ", "." | "?" | "!" | ":" | ";"])
        };
        let lowered = |(at, chunk): (usize, &String)| {
            let mut letters = chunk.chars();
            match letters.next() {
                Some(first) if begins(at) => first.to_lowercase().chain(letters).collect(),
                _ => chunk.clone(),
            }
        };
        self.chunks.iter().enumerate().map(lowered).collect()
    }

    /// Writes the rules `FIRST` (a part of the question) and `SUBTASK` (which may also refer to earlier results).
    pub(super) fn write(&self, lark: &mut String) {
        for (name, chunks) in
            [("AS_IT_STANDS", self.chunks.clone()), ("IN_MID_SENTENCE", self.in_mid_sentence())]
        {
            let _ = writeln!(lark, "{name}: %regex {}", json!({ "substring_chunks": chunks }));
        }
        lark.push_str(concat!(
            "COPY: (AS_IT_STANDS | IN_MID_SENTENCE) & /[^ ](.|\\n)*/\n",
            "REFERENCE: /(the result|result [1-9])('s)?/\n",
            "FIRST: \"\\\"\" COPY \"\\\"\"\n",
            "SUBTASK: \"\\\"\" (COPY | (COPY \" \")? REFERENCE (\" \"? COPY)? (\" \" REFERENCE (\" \"? COPY)?)?) \"\\\"\"\n",
        ));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Word,
    Mark,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
