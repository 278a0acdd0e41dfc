//! The events of a streamed message.

use podium_domain::run::Run;
use serde::Serialize;

use super::error::ErrorBody;
use super::response::{Block, Body, Ending, MessageWriter, UsageBody, text_of_run};
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
    Ping,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Delta<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
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
            Self::Ping => "ping",
        }
    }

    fn written(&self) -> StreamEvent {
        StreamEvent::named(self.name(), text_of(self))
    }
}

/// Writes the events of one message in the order that the API promises: each block begins, continues and ends before the next one,
/// and its index is one higher.
#[derive(Debug)]
pub struct MessageStream {
    writer: MessageWriter,
    /// The index of the next block.
    next_index: u32,
    /// The index of the open text block.
    open: Option<u32>,
}

impl MessageStream {
    /// The stream of a message.
    pub const fn new(writer: MessageWriter) -> Self {
        Self { writer, next_index: 0, open: None }
    }

    /// The fields of the message.
    pub const fn writer(&self) -> &MessageWriter {
        &self.writer
    }

    /// The message without content. The number of its input tokens is an estimate.
    pub fn open(&mut self, events: &mut StreamEvents) {
        events.push_back(Event::MessageStart { message: self.writer.empty() }.written());
    }

    /// The next text.
    pub fn text(&mut self, text: &str, events: &mut StreamEvents) {
        let index = self.open.unwrap_or_else(|| {
            let index = self.next_index;
            self.next_index += 1;
            let content_block = Block::text("");
            events.push_back(Event::ContentBlockStart { index, content_block }.written());
            index
        });
        self.open = Some(index);
        events.push_back(Event::ContentBlockDelta { index, delta: Delta::Text { text } }.written());
    }

    /// The end of the message of a run that succeeded.
    pub fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        // A refusal without words has not been streamed.
        if self.next_index == 0
            && let Some(text) = text_of_run(run)
        {
            self.text(text, events);
        }
        if let Some(index) = self.open.take() {
            events.push_back(Event::ContentBlockStop { index }.written());
        }
        let (delta, usage, podium) = (Ending::of(run), UsageBody::of(run), RunBody::of(run));
        events.push_back(Event::MessageDelta { delta, usage, podium }.written());
        events.push_back(Event::MessageStop.written());
    }
}

/// The event that is sent while a message makes no progress.
pub fn ping() -> StreamEvent {
    Event::Ping.written()
}

/// The event for an error, which ends the stream.
pub fn error_event(error: &ApiError, request_id: Option<&str>) -> StreamEvent {
    StreamEvent::named("error", ErrorBody::new(error, request_id).to_json())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn data(event: &StreamEvent) -> Value {
        serde_json::from_str(&event.data).unwrap()
    }

    #[test]
    fn a_block_begins_once_and_every_event_has_its_name_as_type() {
        let writer = MessageWriter::for_test("msg_1", "podium-mini", 42);
        let (mut stream, mut events) = (MessageStream::new(writer), StreamEvents::new());
        stream.open(&mut events);
        stream.text("blue ", &mut events);
        stream.text("light", &mut events);
        events.push_back(ping());
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
}
