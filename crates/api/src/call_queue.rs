//! The tool calls of a streamed answer, one after the other.

use serde::de::IgnoredAny;

/// A piece of the calls of an answer, in the order in which a stream shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallPiece {
    /// The next call begins. The one before it has ended.
    Begun {
        /// Identifies the call.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// The next text of the arguments of the call that began last.
    Arguments(String),
}

/// Puts the calls of an answer in order. A worker may write several calls at once, and streams show one after the other: a call
/// waits until the one before it is whole.
#[derive(Debug)]
pub(crate) struct CallQueue {
    calls: Vec<Call>,
    /// The number of calls that have begun to be shown.
    shown: usize,
}

/// A call, as far as it is known.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    /// Whether the arguments are a whole object, to which only blanks can be added.
    fn is_whole(&self) -> bool {
        let arguments = self.arguments.trim();
        arguments.starts_with('{')
            && arguments.ends_with('}')
            && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
    }
}

impl CallQueue {
    /// A queue without calls.
    pub(crate) const fn new() -> Self {
        Self { calls: Vec::new(), shown: 0 }
    }

    /// Whether no call has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A call begins. Returns the pieces that can be shown.
    pub(crate) fn begin(&mut self, id: &str, name: &str) -> Vec<CallPiece> {
        self.calls.push(Call { id: id.to_owned(), name: name.to_owned(), arguments: String::new() });
        let mut pieces = Vec::new();
        self.show_ready(&mut pieces);
        pieces
    }

    /// The next text of the arguments of the call at position `index`. Returns the pieces that can be shown.
    pub(crate) fn add(&mut self, index: usize, text: &str) -> Vec<CallPiece> {
        let mut pieces = Vec::new();
        let Some(call) = self.calls.get_mut(index) else { return pieces };
        call.arguments.push_str(text);
        if index + 1 == self.shown && !text.is_empty() {
            pieces.push(CallPiece::Arguments(text.to_owned()));
        }
        self.show_ready(&mut pieces);
        pieces
    }

    /// The pieces that still wait, once the answer has ended.
    pub(crate) fn finish(&mut self) -> Vec<CallPiece> {
        let mut pieces = Vec::new();
        while self.shown < self.calls.len() {
            self.show_next(&mut pieces);
        }
        pieces
    }

    /// Shows the calls that wait, as long as the one before them is whole.
    fn show_ready(&mut self, pieces: &mut Vec<CallPiece>) {
        while self.shown < self.calls.len() && self.calls[..self.shown].last().is_none_or(Call::is_whole) {
            self.show_next(pieces);
        }
    }

    fn show_next(&mut self, pieces: &mut Vec<CallPiece>) {
        let Some(Call { id, name, arguments }) = self.calls.get(self.shown) else { return };
        pieces.push(CallPiece::Begun { id: id.clone(), name: name.clone() });
        if !arguments.is_empty() {
            pieces.push(CallPiece::Arguments(arguments.clone()));
        }
        self.shown += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces in short: `+c1` begins the call `c1`, and arguments stand as they are.
    fn short(pieces: Vec<CallPiece>) -> String {
        let short = pieces.into_iter().map(|piece| match piece {
            CallPiece::Begun { id, .. } => format!("+{id}"),
            CallPiece::Arguments(text) => text,
        });
        short.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_waits_until_the_one_before_it_is_whole() {
        let mut queue = CallQueue::new();
        assert_eq!(short(queue.begin("c1", "look")), "+c1");
        assert_eq!(short(queue.begin("c2", "find")), "");
        assert_eq!(short(queue.add(1, "{}")), "");
        assert_eq!(short(queue.add(0, "{\"a\":")), "{\"a\":");
        assert_eq!(short(queue.add(0, "1}")), "1} +c2 {}");
        assert_eq!(short(queue.begin("c3", "look")), "+c3");
        assert_eq!(short(queue.finish()), "");
    }

    #[test]
    fn the_end_of_the_answer_shows_calls_that_wait() {
        let mut queue = CallQueue::new();
        assert!(queue.is_empty());
        queue.begin("c1", "look");
        assert_eq!(short(queue.add(0, "{\"a\":")), "{\"a\":");
        queue.begin("c2", "look");
        queue.add(1, "{broken");
        queue.begin("c3", "look");
        assert_eq!(short(queue.finish()), "+c2 {broken +c3");
        assert!(queue.add(7, "{}").is_empty());
    }
}
