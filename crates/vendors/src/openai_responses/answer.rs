//! From events, or one whole response, to what they say.
//!
//! The event at the end repeats the whole response. What came before it is not told twice; what did not come is told then.

use std::collections::BTreeSet;

use podium_domain::content::{Seal, ToolCall};
use podium_domain::ids::WorkerId;
use podium_domain::usage::Usage;
use podium_ports::vendor::FinishReason;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::answer::{Answer, Decoder};
use crate::faults::json_or_text;
use crate::sse::SseEvent;

/// What an item is counted as, beside its text.
const ITEM_BYTES: usize = 64;

/// Reads Responses.
#[derive(Debug)]
pub(super) struct ResponsesDecoder {
    worker: WorkerId,
    /// Items whose text came in pieces, by their position.
    begun: BTreeSet<u64>,
    /// Items that were told when they were done, by their position.
    told: BTreeSet<u64>,
}

/// An event. Which fields it has depends on its type.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "text_or_nothing")]
    delta: String,
    #[serde(default)]
    output_index: u64,
    #[serde(default)]
    item: Option<Item>,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Option<Value>,
}

/// A response, so far or whole.
#[derive(Debug, Deserialize)]
struct Response {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
    #[serde(default)]
    output: Option<Vec<Item>>,
    #[serde(default)]
    usage: Option<UsageBody>,
}

#[derive(Debug, Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

/// A piece of the output.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item {
    Message {
        #[serde(default)]
        content: Vec<Content>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        #[serde(default)]
        arguments: String,
    },
    /// Kept with every field that the vendor sends, since it goes back as it came.
    Reasoning(Map<String, Value>),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content {
    OutputText {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageBody {
    input_tokens: u64,
    input_tokens_details: Option<InputTokens>,
    output_tokens: u64,
    output_tokens_details: Option<OutputTokens>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputTokens {
    cached_tokens: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputTokens {
    reasoning_tokens: u64,
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: &SseEvent, answer: &mut Answer) {
        match serde_json::from_slice::<Event>(&event.data) {
            Ok(Event { kind, error: None, .. }) if kind == "error" => {
                answer.fail(answer.faults.in_stream(&json_or_text(&event.data)));
            }
            Ok(Event { error: Some(error), .. }) => answer.fail(answer.faults.in_stream(&error)),
            Ok(event) => self.read(event, answer),
            Err(_) if event.name == b"error" => {
                answer.fail(answer.faults.in_stream(&json_or_text(&event.data)));
            }
            Err(error) => answer.garbled(&format!("an event, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8], answer: &mut Answer) {
        match serde_json::from_slice::<Response>(json) {
            Ok(response) if response.status.is_some() || response.error.is_some() => {
                self.response(response, answer);
            }
            Ok(_) => answer.garbled("an answer in one piece that is no response"),
            Err(error) => answer.garbled(&format!("an answer in one piece, {error}")),
        }
    }
}

impl ResponsesDecoder {
    pub(super) fn new(worker: WorkerId) -> Self {
        Self { worker, begun: BTreeSet::new(), told: BTreeSet::new() }
    }

    fn read(&mut self, event: Event, answer: &mut Answer) {
        let Event { kind, delta, output_index, item, response, .. } = event;
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                if self.begun.insert(output_index) && !answer.gather(ITEM_BYTES) {
                    return;
                }
                let declines = kind == "response.refusal.delta";
                if declines { answer.refusal(delta) } else { answer.text(delta) }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                answer.reasoning(delta);
            }
            "response.output_item.done" => {
                if let Some(item) = item {
                    self.item(output_index, item, answer);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                if let Some(response) = response {
                    self.response(response, answer);
                }
            }
            // Beginnings, ends of parts, and news of tools that nobody offered.
            _ => {}
        }
    }

    fn item(&mut self, index: u64, item: Item, answer: &mut Answer) {
        if !self.told.insert(index) || !answer.gather(ITEM_BYTES) {
            return;
        }
        match item {
            Item::Message { content } if !self.begun.contains(&index) => {
                for content in content {
                    match content {
                        Content::OutputText { text } => answer.text(text),
                        Content::Refusal { refusal } => answer.refusal(refusal),
                        Content::Other => {}
                    }
                }
            }
            Item::FunctionCall { call_id, name, arguments } if answer.gather(arguments.len()) => {
                answer.tool_call(ToolCall { id: call_id, name, arguments, seal: None });
            }
            Item::Reasoning(mut item) if item.get("encrypted_content").is_some_and(Value::is_string) => {
                item.insert("type".to_owned(), Value::from("reasoning"));
                // What only an answer has.
                item.retain(|name, value| name != "status" && !value.is_null());
                let mark = Value::Object(item).to_string();
                answer.seal(Seal { worker: self.worker.clone(), mark });
            }
            Item::Message { .. } | Item::FunctionCall { .. } | Item::Reasoning(_) | Item::Other => {}
        }
    }

    /// The response as it is at the end.
    fn response(&mut self, response: Response, answer: &mut Answer) {
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return answer.fail(answer.faults.in_stream(&error));
        }
        let word = response.incomplete_details.and_then(|details| details.reason);
        let reason = match (response.status.as_deref(), word.as_deref()) {
            (Some("completed"), _) => FinishReason::Stop,
            (Some("incomplete"), Some("max_output_tokens")) => FinishReason::Length,
            (Some("incomplete"), Some("content_filter")) => FinishReason::ContentFilter,
            (status, word) => {
                let word = word.or(status).unwrap_or("no status").to_owned();
                return answer.fail(answer.faults.gave_up(&word));
            }
        };
        answer.reason = Some(reason);
        for (index, item) in (0..).zip(response.output.unwrap_or_default()) {
            self.item(index, item, answer);
        }
        answer.usage = response.usage.as_ref().map(usage_of);
        answer.is_complete = true;
    }
}

fn usage_of(body: &UsageBody) -> Usage {
    let cached = body.input_tokens_details.as_ref().map_or(0, |details| details.cached_tokens);
    let reasoning = body.output_tokens_details.as_ref().map_or(0, |details| details.reasoning_tokens);
    Usage {
        prompt_tokens: body.input_tokens,
        cached_tokens: cached.min(body.input_tokens),
        cache_write_tokens: 0,
        completion_tokens: body.output_tokens,
        reasoning_tokens: reasoning.min(body.output_tokens),
    }
}

/// Events of other kinds have deltas that are no text.
fn text_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        _ => Ok(String::new()),
    }
}
