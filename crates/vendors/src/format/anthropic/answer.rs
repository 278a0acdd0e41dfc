//! Decodes events, or one whole message.

use std::collections::BTreeMap;

use podium_domain::content::Seal;
use podium_domain::ids::WorkerId;
use podium_domain::usage::Usage;
use podium_ports::vendor::FinishReason;
use serde::Deserialize;
use serde_json::Value;

use super::request::Mark;
use crate::answer::{Answer, Decoder};
use crate::errors::json_or_text;
use crate::lenient::{Tokens, null_as_default, or_default};
use crate::sse::SseEvent;

/// Bytes that a block counts for in addition to its content.
const BLOCK_BYTES: usize = 64;

/// Decoder of the Messages format.
#[derive(Debug)]
pub(super) struct MessagesDecoder {
    worker: WorkerId,
    /// Blocks that have begun and not ended, by number: they may be interleaved.
    open: BTreeMap<u64, Open>,
    usage: Tally,
}

/// An unfinished block other than text.
#[derive(Debug)]
enum Open {
    /// `index` is the call's position in the answer, `None` if it is dropped. `whole` is the input that the block began with: a
    /// server that sends no deltas puts everything there.
    Tool {
        index: Option<usize>,
        whole: Value,
        has_pieces: bool,
    },
    Thinking {
        signature: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Started,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: Ending,
        #[serde(default, deserialize_with = "or_default")]
        usage: Option<UsageBody>,
    },
    MessageStop,
    Error {
        #[serde(default)]
        error: Value,
    },
    /// Pings and unknown events.
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Started {
    #[serde(default, deserialize_with = "or_default")]
    usage: Option<UsageBody>,
}

/// A content block of a message.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default, deserialize_with = "null_as_default")]
        text: String,
    },
    ToolUse {
        #[serde(default, deserialize_with = "null_as_default")]
        id: String,
        #[serde(default, deserialize_with = "null_as_default")]
        name: String,
        #[serde(default)]
        input: Value,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    #[serde(other)]
    Other,
}

/// A delta of a block.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Ending {
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_sequence: Option<String>,
}

/// A message that was not streamed.
#[derive(Debug, Deserialize)]
struct Whole {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    content: Vec<Block>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_sequence: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    usage: Option<UsageBody>,
    #[serde(default)]
    error: Value,
}

/// Token counts. A number that is missing or unknown in an event keeps its previous value.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct UsageBody {
    input_tokens: Tokens,
    cache_creation_input_tokens: Tokens,
    cache_read_input_tokens: Tokens,
    output_tokens: Tokens,
    #[serde(deserialize_with = "or_default")]
    output_tokens_details: OutputTokens,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputTokens {
    thinking_tokens: Tokens,
}

/// The token counts so far.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    fresh: u64,
    written: u64,
    read: u64,
    output: u64,
    thinking: u64,
}

impl Tally {
    fn update(&mut self, body: Option<UsageBody>) {
        let Some(body) = body else { return };
        for (count, new) in [
            (&mut self.fresh, body.input_tokens),
            (&mut self.written, body.cache_creation_input_tokens),
            (&mut self.read, body.cache_read_input_tokens),
            (&mut self.output, body.output_tokens),
            (&mut self.thinking, body.output_tokens_details.thinking_tokens),
        ] {
            *count = new.known().unwrap_or(*count);
        }
    }

    /// The vendor counts cache reads and writes separately; both are part of the prompt.
    fn usage(self) -> Usage {
        Usage {
            prompt_tokens: self.fresh.saturating_add(self.written).saturating_add(self.read),
            cached_tokens: self.read,
            cache_write_tokens: self.written,
            completion_tokens: self.output,
            reasoning_tokens: self.thinking.min(self.output),
        }
    }
}

impl Decoder for MessagesDecoder {
    fn event(&mut self, event: &SseEvent, answer: &mut Answer) {
        match serde_json::from_slice(&event.data) {
            Ok(event) => self.read(event, answer),
            Err(_) if event.name == b"error" => {
                answer.fail(answer.errors.in_stream(&json_or_text(&event.data)));
            }
            Err(error) => answer.garbled(&format!("an event that cannot be decoded, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8], answer: &mut Answer) {
        let whole = match serde_json::from_slice::<Whole>(json) {
            Ok(whole) => whole,
            Err(error) => return answer.garbled(&format!("a body that cannot be decoded, {error}")),
        };
        if whole.kind == "error" || !whole.error.is_null() {
            return answer.fail(answer.errors.in_stream(&whole.error));
        }
        self.usage.update(whole.usage);
        note_end(Ending { stop_reason: whole.stop_reason, stop_sequence: whole.stop_sequence }, answer);
        for (index, block) in (0..).zip(whole.content) {
            self.begin(index, block, answer);
            self.end(index, answer);
        }
        answer.usage = whole.usage.map(|_| self.usage.usage());
    }
}

impl MessagesDecoder {
    pub(super) fn new(worker: WorkerId) -> Self {
        Self { worker, open: BTreeMap::new(), usage: Tally::default() }
    }

    fn read(&mut self, event: Event, answer: &mut Answer) {
        match event {
            Event::MessageStart { message } => self.usage.update(message.usage),
            Event::ContentBlockStart { index, content_block } => self.begin(index, content_block, answer),
            Event::ContentBlockDelta { index, delta } => self.delta(index, delta, answer),
            Event::ContentBlockStop { index } => self.end(index, answer),
            Event::MessageDelta { delta, usage } => {
                self.usage.update(usage);
                answer.usage = Some(self.usage.usage());
                note_end(delta, answer);
            }
            Event::MessageStop if answer.reason.is_none() => {
                answer.garbled("an answer that ended without a stop reason");
            }
            Event::MessageStop => answer.is_complete = true,
            Event::Error { error } => answer.fail(answer.errors.in_stream(&error)),
            Event::Other => {}
        }
    }

    fn begin(&mut self, index: u64, block: Block, answer: &mut Answer) {
        if !answer.gather(BLOCK_BYTES) {
            return;
        }
        match block {
            Block::Text { text } => answer.text(text),
            Block::ToolUse { id, name, input } => {
                let tool = Open::Tool { index: answer.begin_call(id, name), whole: input, has_pieces: false };
                self.open.insert(index, tool);
            }
            Block::Thinking { thinking, signature } => {
                answer.reasoning(thinking);
                self.open.insert(index, Open::Thinking { signature });
            }
            Block::RedactedThinking { data } => self.seal(&Mark::Redacted(data), answer),
            Block::Other => {}
        }
    }

    fn delta(&mut self, index: u64, delta: Delta, answer: &mut Answer) {
        match (delta, self.open.get_mut(&index)) {
            (Delta::Text { text }, _) => answer.text(text),
            (Delta::Thinking { thinking }, _) => answer.reasoning(thinking),
            (Delta::InputJson { partial_json }, Some(Open::Tool { index, has_pieces, .. })) => {
                *has_pieces |= !partial_json.is_empty();
                if let (true, Some(index)) = (answer.gather(partial_json.len()), *index) {
                    answer.call_arguments(index, &partial_json);
                }
            }
            (Delta::Signature { signature: more }, Some(Open::Thinking { signature })) => {
                if answer.gather(more.len()) {
                    signature.push_str(&more);
                }
            }
            (Delta::InputJson { .. } | Delta::Signature { .. } | Delta::Other, _) => {}
        }
    }

    fn end(&mut self, index: u64, answer: &mut Answer) {
        match self.open.remove(&index) {
            Some(Open::Tool { index: Some(index), whole, has_pieces: false }) if whole.is_object() => {
                answer.call_arguments(index, &whole.to_string());
            }
            Some(Open::Thinking { signature }) if !signature.is_empty() => {
                self.seal(&Mark::Signature(signature), answer);
            }
            Some(Open::Tool { .. } | Open::Thinking { .. }) | None => {}
        }
    }

    fn seal(&self, mark: &Mark, answer: &mut Answer) {
        if let Ok(mark) = serde_json::to_string(mark) {
            answer.seal(Seal { worker: self.worker.clone(), mark });
        }
    }
}

/// Records why the answer ends, if the vendor reports it.
fn note_end(ending: Ending, answer: &mut Answer) {
    answer.stop_sequence = ending.stop_sequence.or(answer.stop_sequence.take());
    answer.reason = match ending.stop_reason.as_deref() {
        None => return,
        Some("end_turn" | "stop_sequence") => Some(FinishReason::Stop),
        Some("max_tokens" | "model_context_window_exceeded") => Some(FinishReason::Length),
        Some("tool_use") => Some(FinishReason::ToolCalls),
        Some("refusal") => Some(FinishReason::ContentFilter),
        Some(word) => return answer.fail(answer.errors.aborted(word)),
    };
}
