//! The output of a call so far: text, tool calls, the reasoning that the worker expects back, and the reasoning that the client sees.

use podium_domain::content::{Reasoning, Seal, ToolCall};
use podium_domain::run::{Run, StepRef};
use podium_domain::tools::{CallsAtOnce, ToolUse};

use crate::live_text::{Form, LiveWriter, Piece};

/// Most bytes of sealed reasoning that are stored with a step. Beyond it none is, and the worker continues without its reasoning.
const REASONING_BYTES_MAX: usize = 512 << 10;

/// Most bytes of reasoning that are shown.
const SHOWN_BYTES_MAX: usize = 256 << 10;

/// The output of a worker.
#[derive(Debug)]
pub(super) struct Written {
    text: String,
    /// The reasoning that is shown.
    shown: String,
    /// Whether the next reasoning is shown: the client wants it, and the worker has written nothing else.
    shows_reasoning: bool,
    calls: Vec<ToolCall>,
    /// Bytes of the calls: of those that are complete, or of their pieces if that is more.
    call_bytes: usize,
    streamed_bytes: usize,
    /// Bytes of output that nobody is shown: reasoning, and output that broke off before it could be read.
    hidden_bytes: usize,
    reasoning: Vec<Reasoning>,
    unsealed: String,
    reasoning_bytes: usize,
    /// Most calls that count; the others are dropped.
    calls_max: usize,
    live: LiveWriter,
    live_bytes: u64,
}

/// The output of a worker, as the run records it.
pub(super) struct WrittenParts {
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) reasoning: Vec<Reasoning>,
    pub(super) reasoning_text: String,
}

impl Written {
    /// The output of a call for a step.
    pub(super) fn of_step(run: &Run, step: StepRef) -> Self {
        let shows_reasoning = run.shows_reasoning_of(step);
        let live = LiveWriter::new(Form::of(run, step));
        Self { shows_reasoning, live, ..Self::of_call(run.tools_of(step).as_deref()) }
    }

    /// The output of a call that offers `tools`.
    ///
    /// A worker that cannot be told to make one call at a time may make several. Only the first counts then.
    pub(super) fn of_call(tools: Option<&ToolUse>) -> Self {
        let tools = tools.filter(|tools| tools.may_call());
        let calls_max = tools.map_or(0, |tools| match tools.at_once {
            CallsAtOnce::Several => usize::MAX,
            CallsAtOnce::One => 1,
        });
        Self {
            text: String::new(),
            shown: String::new(),
            shows_reasoning: false,
            calls: Vec::new(),
            call_bytes: 0,
            streamed_bytes: 0,
            hidden_bytes: 0,
            reasoning: Vec::new(),
            unsealed: String::new(),
            reasoning_bytes: 0,
            calls_max,
            live: LiveWriter::new(if calls_max > 0 { Form::Records } else { Form::Plain }),
            live_bytes: 0,
        }
    }

    /// Whether the position of a call is among those that count.
    pub(super) const fn takes_call(&self, index: usize) -> bool {
        index < self.calls_max
    }

    /// Adds a piece. Returns its live text with the offset of that.
    pub(super) fn add(&mut self, piece: &Piece) -> (u64, String) {
        self.shows_reasoning &= matches!(piece, Piece::Reasoning(_));
        match piece {
            Piece::Text(text) => self.text.push_str(text),
            Piece::Reasoning(text) => self.shown.push_str(text),
            Piece::CallBegun { name, .. } => self.streamed_bytes += name.len(),
            Piece::Arguments { text, .. } => self.streamed_bytes += text.len(),
        }
        let (offset, live) = (self.live_bytes, self.live.write(piece));
        self.live_bytes += live.len() as u64;
        (offset, live)
    }

    /// Adds a complete call.
    pub(super) fn add_call(&mut self, call: ToolCall) {
        self.shows_reasoning = false;
        if self.takes_call(self.calls.len()) {
            self.call_bytes += call.bytes();
            self.calls.push(call);
        }
    }

    /// Adds reasoning. Returns whether it is shown, and must be added as a piece, too.
    pub(super) fn think(&mut self, text: &str) -> bool {
        self.hidden_bytes += text.len();
        if self.calls_max > 0 && self.reasoning_bytes <= REASONING_BYTES_MAX {
            self.reasoning_bytes += text.len();
            self.unsealed.push_str(text);
        }
        self.shows_reasoning &= self.shown.len() + text.len() <= SHOWN_BYTES_MAX;
        self.shows_reasoning && !text.is_empty()
    }

    /// Seals the reasoning since the last seal.
    pub(super) fn seal(&mut self, seal: Seal) {
        if self.calls_max > 0 {
            self.reasoning_bytes += seal.mark.len();
            let text = std::mem::take(&mut self.unsealed);
            if self.reasoning_bytes <= REASONING_BYTES_MAX {
                self.reasoning.push(Reasoning { text, seal: Some(seal) });
            }
        }
    }

    /// Adds bytes that broke off before they could be read.
    pub(super) const fn add_unread(&mut self, bytes: usize) {
        self.hidden_bytes += bytes;
    }

    /// Bytes of text and calls, for the limit of the output.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.call_bytes.max(self.streamed_bytes)
    }

    /// All bytes that the worker wrote, for an estimate of its tokens.
    pub(super) fn all_bytes(&self) -> usize {
        self.bytes().saturating_add(self.hidden_bytes)
    }

    /// Whether there is output that nobody is shown.
    pub(super) const fn has_hidden(&self) -> bool {
        self.hidden_bytes > 0
    }

    /// Whether there is neither text nor a call.
    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty()
    }

    /// The text and the calls. The reasoning is kept only if the calls may need it.
    pub(super) fn into_parts(self) -> WrittenParts {
        let needs_reasoning = !self.calls.is_empty() && self.reasoning_bytes <= REASONING_BYTES_MAX;
        let reasoning = if needs_reasoning { self.reasoning } else { Vec::new() };
        WrittenParts { text: self.text, calls: self.calls, reasoning, reasoning_text: self.shown }
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::ids::WorkerId;
    use podium_domain::tools::{Tool, ToolChoice};

    use super::*;

    fn offering(at_once: CallsAtOnce) -> ToolUse {
        let (name, schema) = ("look".to_owned(), Tool::no_parameters());
        let tools = vec![Tool { name, description: String::new(), schema, strict: None }];
        ToolUse { tools, choice: ToolChoice::Auto, at_once }
    }

    fn seal(bytes: usize) -> Seal {
        Seal { worker: WorkerId::new("w").unwrap(), mark: "x".repeat(bytes) }
    }

    #[test]
    fn only_the_first_call_counts_if_one_is_allowed() {
        let mut written = Written::of_call(Some(&offering(CallsAtOnce::One)));
        assert!(written.takes_call(0) && !written.takes_call(1));
        written.add_call(ToolCall::new("a", "look", "{}"));
        written.add_call(ToolCall::new("b", "look", "{}"));
        assert_eq!(written.into_parts().calls, [ToolCall::new("a", "look", "{}")]);
        let mut written = Written::of_call(None);
        written.add_call(ToolCall::new("a", "look", "{}"));
        assert!(written.is_blank());
    }

    #[test]
    fn reasoning_is_kept_with_calls_only_and_within_its_limit() {
        let kept = |calls: usize, bytes: usize| {
            let mut written = Written::of_call(Some(&offering(CallsAtOnce::Several)));
            written.think("hm");
            written.seal(seal(bytes));
            written.seal(seal(1));
            (0..calls).for_each(|_| written.add_call(ToolCall::new("a", "look", "{}")));
            written.into_parts().reasoning.into_iter().map(|reasoning| reasoning.text).collect::<Vec<_>>()
        };
        assert_eq!(kept(1, 10), ["hm", ""]);
        assert_eq!(kept(0, 10), [""; 0]);
        assert_eq!(kept(1, REASONING_BYTES_MAX), [""; 0]);
    }

    #[test]
    fn reasoning_is_shown_until_the_worker_writes_something_else() {
        let shown = |pieces: &[&str]| {
            let mut written = Written { shows_reasoning: true, ..Written::of_call(None) };
            for text in pieces {
                let piece = match text.strip_prefix('=') {
                    Some(answer) => Piece::Text(answer.to_owned()),
                    None if written.think(text) => Piece::Reasoning((*text).to_owned()),
                    None => continue,
                };
                written.add(&piece);
            }
            let parts = written.into_parts();
            (parts.reasoning_text, parts.text)
        };
        let of = |reasoning: &str, text: &str| (reasoning.to_owned(), text.to_owned());
        assert_eq!(
            shown(&["First, ", "I count.", "=One.", "Then", "=Two."]),
            of("First, I count.", "One.Two.")
        );
        assert_eq!(shown(&["=One."]), of("", "One."));
        let long = "x".repeat(SHOWN_BYTES_MAX);
        assert_eq!(shown(&["a", &long, "b", "=One."]), of("a", "One."), "no part is left out before another");
        let mut hidden = Written::of_call(None);
        assert!(!hidden.think("hm"));
    }

    #[test]
    fn pieces_and_complete_calls_count_once() {
        let mut written = Written::of_call(Some(&offering(CallsAtOnce::Several)));
        written.add(&Piece::Text("hello".to_owned()));
        written.add(&Piece::CallBegun { index: 0, name: "look".to_owned() });
        written.add(&Piece::Arguments { index: 0, text: "{}".to_owned() });
        assert_eq!(written.bytes(), 11);
        written.add_call(ToolCall::new("a", "look", "{}"));
        assert_eq!(written.bytes(), 12);
        written.think("hm");
        assert_eq!(written.all_bytes(), 14);
    }
}
