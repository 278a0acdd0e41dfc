//! The events of a streamed message.

use podium_domain::run::{Progress, Run};
use serde::Serialize;
use serde_json::json;

use super::error::ErrorBody;
use super::response::{Block, Body, Ending, MessageWriter, SIGNATURE, UsageBody, text_of_run};
use crate::call_queue::{CallPiece, CallQueue};
use crate::json::text_of;
use crate::podium_object::RunBody;
use crate::{ApiError, StreamEvent, StreamEvents};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    MessageStart {
        message: Body<'a>,
    },
    ContentBlockStart {
        index: u32,
        content_block: Block<'a>,
    },
    ContentBlockDelta {
        index: u32,
        delta: Delta<'a>,
    },
    ContentBlockStop {
        index: u32,
    },
    MessageDelta {
        delta: Ending<'a>,
        usage: UsageBody,
        /// The object `podium`, which accompanies the usage.
        podium: RunBody,
    },
    MessageStop,
    Ping {
        /// Only if the policy shows what the run is doing.
        #[serde(skip_serializing_if = "Option::is_none")]
        podium: Option<PingBody>,
    },
}

#[derive(Serialize)]
struct PingBody {
    progress: String,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Delta<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'static str },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: &'a str },
}

impl Event<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping { .. } => "ping",
        }
    }

    fn written(&self) -> StreamEvent {
        StreamEvent::named(self.name(), text_of(self))
    }
}

/// Writes the events of one message in the order that the API promises: each block begins, continues and ends before the next one,
/// and its index is one higher.
///
/// A worker may write several tool calls at once. A block begins once the call before it is whole; until then its pieces wait.
#[derive(Debug)]
pub struct MessageStream {
    writer: MessageWriter,
    /// The index of the next block.
    next_index: u32,
    /// The index of the open block.
    open: Option<u32>,
    /// Whether the first block has what the worker thought.
    has_thinking: bool,
    calls: CallQueue,
    /// Text after the first call, which follows the calls.
    late_text: String,
}

impl MessageStream {
    /// The stream of a message.
    pub const fn new(writer: MessageWriter) -> Self {
        Self {
            writer,
            next_index: 0,
            open: None,
            has_thinking: false,
            calls: CallQueue::new(),
            late_text: String::new(),
        }
    }

    /// The fields of the message.
    pub const fn writer(&self) -> &MessageWriter {
        &self.writer
    }

    /// The message without content. The number of its input tokens is an estimate.
    pub fn open(&mut self, events: &mut StreamEvents) {
        events.push_back(Event::MessageStart { message: self.writer.empty() }.written());
    }

    /// The next thoughts of the worker, before its answer.
    pub fn thinking(&mut self, text: &str, events: &mut StreamEvents) {
        let index = self.open.unwrap_or_else(|| {
            self.has_thinking = true;
            self.begin_block(Block::Thinking { thinking: "", signature: "" }, events)
        });
        let delta = Delta::Thinking { thinking: text };
        events.push_back(Event::ContentBlockDelta { index, delta }.written());
    }

    /// The next text.
    pub fn text(&mut self, text: &str, events: &mut StreamEvents) {
        if self.calls.is_empty() {
            self.show_text(text, events);
        } else {
            self.late_text.push_str(text);
        }
    }

    /// A tool call begins.
    pub fn call_begun(&mut self, id: &str, name: &str, events: &mut StreamEvents) {
        let pieces = self.calls.begin(id, name);
        self.show_calls(pieces, events);
    }

    /// The next piece of the arguments of the call at position `index`.
    pub fn call_arguments(&mut self, index: usize, text: &str, events: &mut StreamEvents) {
        let pieces = self.calls.add(index, text);
        self.show_calls(pieces, events);
    }

    /// The end of the message of a run that succeeded.
    pub fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        let waiting = self.calls.finish();
        self.show_calls(waiting, events);
        let late = std::mem::take(&mut self.late_text);
        if !late.is_empty() {
            self.end_block(events);
            self.show_text(&late, events);
        }
        // A refusal without words has not been streamed.
        if self.next_index == u32::from(self.has_thinking)
            && let Some(text) = text_of_run(run)
        {
            self.show_text(text, events);
        }
        self.end_block(events);
        let (delta, usage, podium) = (Ending::of(run), UsageBody::of(run), RunBody::of(run));
        events.push_back(Event::MessageDelta { delta, usage, podium }.written());
        events.push_back(Event::MessageStop.written());
    }

    fn show_text(&mut self, text: &str, events: &mut StreamEvents) {
        if self.is_thinking() {
            self.end_block(events);
        }
        let index = match self.open {
            Some(index) => index,
            None => self.begin_block(Block::text(""), events),
        };
        events.push_back(Event::ContentBlockDelta { index, delta: Delta::Text { text } }.written());
    }

    fn show_calls(&mut self, pieces: Vec<CallPiece>, events: &mut StreamEvents) {
        for piece in pieces {
            match piece {
                CallPiece::Begun { id, name } => {
                    self.end_block(events);
                    self.begin_block(Block::ToolUse { id: &id, name: &name, input: json!({}) }, events);
                }
                CallPiece::Arguments(text) => {
                    let Some(index) = self.open else { continue };
                    let delta = Delta::InputJson { partial_json: &text };
                    events.push_back(Event::ContentBlockDelta { index, delta }.written());
                }
            }
        }
    }

    fn begin_block(&mut self, content_block: Block<'_>, events: &mut StreamEvents) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        self.open = Some(index);
        events.push_back(Event::ContentBlockStart { index, content_block }.written());
        index
    }

    /// Whether the open block has what the worker thinks.
    fn is_thinking(&self) -> bool {
        self.has_thinking && self.open == Some(0)
    }

    fn end_block(&mut self, events: &mut StreamEvents) {
        let is_thinking = self.is_thinking();
        if let Some(index) = self.open.take() {
            if is_thinking {
                let delta = Delta::Signature { signature: SIGNATURE };
                events.push_back(Event::ContentBlockDelta { index, delta }.written());
            }
            events.push_back(Event::ContentBlockStop { index }.written());
        }
    }
}

/// The event that is sent while there is nothing new of a message, with what the run is doing.
pub fn ping(progress: Option<&Progress>) -> StreamEvent {
    let podium = progress.map(|progress| PingBody { progress: progress.to_string() });
    Event::Ping { podium }.written()
}

/// The event for an error, which ends the stream.
pub fn error_event(error: &ApiError, request_id: Option<&str>) -> StreamEvent {
    StreamEvent::named("error", ErrorBody::new(error, request_id).to_json())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn data(event: &StreamEvent) -> Value {
        serde_json::from_str(&event.data).unwrap()
    }

    fn stream() -> MessageStream {
        MessageStream::new(MessageWriter::for_test("msg_1", "podium-mini", 42))
    }

    /// The events in short: `+0` begins block 0, `-0` ends it, and pieces stand between them.
    fn short(events: &StreamEvents) -> String {
        let short = events.iter().map(|event| {
            let data = data(event);
            let index = &data["index"];
            match event.name.unwrap() {
                "content_block_start" => format!("+{index}"),
                "content_block_stop" => format!("-{index}"),
                "content_block_delta" => {
                    let delta = &data["delta"];
                    delta["text"].as_str().or(delta["partial_json"].as_str()).unwrap().to_owned()
                }
                other => other.to_owned(),
            }
        });
        short.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_block_begins_once_and_every_event_has_its_name_as_type() {
        let (mut stream, mut events) = (stream(), StreamEvents::new());
        stream.open(&mut events);
        stream.text("blue ", &mut events);
        stream.text("light", &mut events);
        events.push_back(ping(None));
        let names: Vec<_> = events.iter().map(|event| event.name.unwrap()).collect();
        let expected =
            ["message_start", "content_block_start", "content_block_delta", "content_block_delta", "ping"];
        assert_eq!(names, expected);
        for event in &events {
            assert_eq!(data(event)["type"], event.name.unwrap());
        }
        let start = data(&events[0]);
        assert_eq!((&start["message"]["id"], &start["message"]["content"]), (&json!("msg_1"), &json!([])));
        assert_eq!(start["message"]["usage"]["input_tokens"], 42);
        assert_eq!(start["message"]["stop_reason"], Value::Null);
        let block = json!({"type": "text", "text": "", "citations": null});
        assert_eq!(
            data(&events[1]),
            json!({"type": "content_block_start", "index": 0, "content_block": block})
        );
        let delta = json!({"type": "text_delta", "text": "light"});
        assert_eq!(data(&events[3]), json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    }

    #[test]
    fn thinking_stands_before_the_text_and_is_signed() {
        let (mut stream, mut events) = (stream(), StreamEvents::new());
        stream.thinking("I ", &mut events);
        stream.thinking("count.", &mut events);
        stream.text("One.", &mut events);
        let names: Vec<_> =
            events.iter().map(|event| event.name.unwrap().trim_start_matches("content_block_")).collect();
        assert_eq!(names, ["start", "delta", "delta", "delta", "stop", "start", "delta"]);
        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
        assert_eq!(data(&events[0])["content_block"], block);
        assert_eq!(data(&events[1])["delta"], json!({"type": "thinking_delta", "thinking": "I "}));
        assert_eq!(data(&events[3])["delta"], json!({"type": "signature_delta", "signature": "podium"}));
        assert_eq!((&data(&events[4])["index"], &data(&events[6])["index"]), (&json!(0), &json!(1)));
    }

    #[test]
    fn a_call_follows_the_text_piece_by_piece() {
        let (mut stream, mut events) = (stream(), StreamEvents::new());
        stream.text("I look.", &mut events);
        stream.call_begun("c1", "look", &mut events);
        stream.call_arguments(0, "{\"a\":", &mut events);
        stream.call_arguments(0, "1}", &mut events);
        assert_eq!(short(&events), "+0 I look. -0 +1 {\"a\": 1}");
        let block = json!({"type": "tool_use", "id": "c1", "name": "look", "input": {}});
        assert_eq!(data(&events[3])["content_block"], block);
        let delta = json!({"type": "input_json_delta", "partial_json": "{\"a\":"});
        assert_eq!(data(&events[4])["delta"], delta);
    }

    #[test]
    fn a_call_waits_until_the_one_before_it_is_whole() {
        let (mut stream, mut events) = (stream(), StreamEvents::new());
        stream.call_begun("c1", "look", &mut events);
        stream.call_begun("c2", "find", &mut events);
        stream.call_arguments(1, "{}", &mut events);
        assert_eq!(short(&events), "+0");
        stream.call_arguments(0, "{\"a\":", &mut events);
        stream.call_arguments(0, "1}", &mut events);
        assert_eq!(short(&events), "+0 {\"a\": 1} -0 +1 {}");
        stream.call_begun("c3", "look", &mut events);
        assert_eq!(short(&events), "+0 {\"a\": 1} -0 +1 {} -1 +2");
    }
}
