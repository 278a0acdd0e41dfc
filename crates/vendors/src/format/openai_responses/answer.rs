//! Decodes events, or one whole response.
//!
//! The last event repeats the whole response. Items that the stream already had are not published again; missing ones are.

use podium_domain::content::Seal;
use podium_domain::ids::WorkerId;
use podium_domain::usage::Usage;
use podium_ports::vendor::FinishReason;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::answer::{Answer, Decoder};
use crate::errors::json_or_text;
use crate::lenient::{Tokens, null_as_default, or_default};
use crate::sse::SseEvent;

/// Bytes that an item counts for in addition to its text.
const ITEM_BYTES: usize = 64;

/// Where the text goes that a model writes between its reasoning and its answer (`phase: commentary`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commentary {
    /// Into the answer, as a separate paragraph.
    Answer,
    /// To the reasoning: it would break the answer's response format.
    Reasoning,
}

/// Decoder of the Responses format.
#[derive(Debug)]
pub(super) struct ResponsesDecoder {
    worker: WorkerId,
    commentary: Commentary,
    /// Messages that have begun, in order.
    messages: Vec<Message>,
    /// Index of the message that the last text belongs to.
    last: Option<usize>,
    /// The tool calls that have begun, in order.
    calls: Vec<BegunCall>,
    /// Number of reasoning items that were published.
    reasonings: usize,
}

/// A message of the output. Servers number messages differently: some stream every message as number 0 and then list other
/// items before it in the final response.
#[derive(Debug)]
struct Message {
    id: Option<String>,
    index: u64,
    is_commentary: bool,
    has_text: bool,
    is_done: bool,
}

/// How pieces of a tool call name it.
#[derive(Debug)]
struct CallNames {
    call_id: String,
    item_id: Option<String>,
    output_index: u64,
}

/// A tool call that has begun.
#[derive(Debug)]
struct BegunCall {
    names: CallNames,
    /// Its position in the answer; `None` if it is dropped.
    index: Option<usize>,
    /// Bytes of its arguments that came.
    bytes: usize,
    is_done: bool,
}

/// An event. Its fields depend on its type.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "text_or_nothing")]
    delta: String,
    #[serde(default, deserialize_with = "or_default")]
    output_index: u64,
    #[serde(default, deserialize_with = "or_default")]
    item_id: Option<String>,
    #[serde(default)]
    item: Option<Item>,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Option<Value>,
}

/// A partial or complete response.
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
    #[serde(default, deserialize_with = "or_default")]
    usage: Option<UsageBody>,
}

#[derive(Debug, Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

/// An item of the output.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item {
    Message {
        #[serde(default, deserialize_with = "or_default")]
        id: Option<String>,
        #[serde(default, deserialize_with = "or_default")]
        phase: Option<String>,
        #[serde(default, deserialize_with = "null_as_default")]
        content: Vec<Content>,
    },
    FunctionCall {
        #[serde(default, deserialize_with = "or_default")]
        id: Option<String>,
        #[serde(default, deserialize_with = "null_as_default")]
        call_id: String,
        #[serde(default, deserialize_with = "null_as_default")]
        name: String,
        #[serde(default, deserialize_with = "null_as_default")]
        arguments: String,
    },
    /// Kept with every field that the vendor sends, because it is sent back unchanged.
    Reasoning(Map<String, Value>),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content {
    OutputText {
        #[serde(default, deserialize_with = "null_as_default")]
        text: String,
    },
    Refusal {
        #[serde(default, deserialize_with = "null_as_default")]
        refusal: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UsageBody {
    input_tokens: Tokens,
    #[serde(deserialize_with = "or_default")]
    input_tokens_details: InputTokens,
    output_tokens: Tokens,
    #[serde(deserialize_with = "or_default")]
    output_tokens_details: OutputTokens,
    total_tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputTokens {
    cached_tokens: Tokens,
    cache_write_tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputTokens {
    reasoning_tokens: Tokens,
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: &SseEvent, answer: &mut Answer) {
        match serde_json::from_slice::<Event>(&event.data) {
            Ok(Event { kind, error: None, .. }) if kind == "error" => {
                answer.fail(answer.errors.in_stream(&json_or_text(&event.data)));
            }
            Ok(Event { error: Some(error), .. }) => answer.fail(answer.errors.in_stream(&error)),
            Ok(event) => self.read(event, answer),
            Err(_) if event.name == b"error" => {
                answer.fail(answer.errors.in_stream(&json_or_text(&event.data)));
            }
            Err(error) => answer.garbled(&format!("an event that cannot be decoded, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8], answer: &mut Answer) {
        match serde_json::from_slice::<Response>(json) {
            Ok(response) if response.status.is_some() || response.error.is_some() => {
                self.response(response, answer);
            }
            Ok(_) => answer.garbled("a body that is not a response"),
            Err(error) => answer.garbled(&format!("a body that cannot be decoded, {error}")),
        }
    }
}

impl ResponsesDecoder {
    pub(super) fn new(worker: WorkerId, commentary: Commentary) -> Self {
        Self { worker, commentary, messages: Vec::new(), last: None, calls: Vec::new(), reasonings: 0 }
    }

    fn read(&mut self, event: Event, answer: &mut Answer) {
        let Event { kind, delta, output_index, item_id, item, response, .. } = event;
        match kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                let declines = kind == "response.refusal.delta";
                if let Some(message) = self.message(item_id, output_index, answer) {
                    self.text(message, delta, declines, answer);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                answer.reasoning(delta);
            }
            "response.function_call_arguments.delta" => {
                self.arguments(item_id.as_deref(), output_index, &delta, answer);
            }
            "response.output_item.added" => match item {
                Some(Item::Message { id, phase, .. }) => {
                    if let Some(message) = self.message(id, output_index, answer) {
                        self.messages[message].is_commentary = is_commentary(phase.as_deref());
                    }
                }
                // A call without an id or a name begins when it is done.
                Some(Item::FunctionCall { id, call_id, name, .. })
                    if !call_id.is_empty() && !name.is_empty() =>
                {
                    let names = CallNames { call_id, item_id: id, output_index };
                    self.begin_call(names, name, answer);
                }
                _ => {}
            },
            "response.output_item.done" => {
                if let Some(item) = item {
                    self.item_done(output_index, item, answer);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                if let Some(response) = response {
                    self.response(response, answer);
                }
            }
            // Start events, end events of parts, and events of tools that were not offered.
            _ => {}
        }
    }

    /// The message with this id or number; starts a new one if none is in progress. `None` above the limit.
    fn message(&mut self, id: Option<String>, index: u64, answer: &mut Answer) -> Option<usize> {
        let is_it = |message: &Message| match (&id, &message.id) {
            (Some(id), Some(other)) => id == other,
            _ => message.index == index && !message.is_done,
        };
        if let Some(known) = self.messages.iter().rposition(is_it) {
            return Some(known);
        }
        let bytes = ITEM_BYTES + id.as_ref().map_or(0, String::len);
        answer.gather(bytes).then(|| {
            let message = Message { id, index, is_commentary: false, has_text: false, is_done: false };
            self.messages.push(message);
            self.messages.len() - 1
        })
    }

    /// Adds text to a message. Messages are separate paragraphs of the answer.
    fn text(&mut self, message: usize, text: String, declines: bool, answer: &mut Answer) {
        if text.is_empty() {
            return;
        }
        self.messages[message].has_text = true;
        if self.messages[message].is_commentary && self.commentary == Commentary::Reasoning {
            return answer.reasoning(text);
        }
        let is_other = self.last.replace(message).is_some_and(|last| last != message);
        if is_other && answer.has_text() {
            answer.text("\n\n".to_owned());
        }
        if declines { answer.refusal(text) } else { answer.text(text) }
    }

    /// Reads a complete item of the stream.
    fn item_done(&mut self, index: u64, item: Item, answer: &mut Answer) {
        if let Item::Message { id, phase, content } = item {
            // A message in progress is this one, whatever its number: items do not overlap.
            let under_way = self.messages.iter().rposition(|message| message.has_text && !message.is_done);
            let by_id = self.messages.iter().rposition(|message| id.is_some() && message.id == id);
            let Some(message) = by_id.or(under_way).or_else(|| self.message(id, index, answer)) else {
                return;
            };
            self.messages[message].is_commentary |= is_commentary(phase.as_deref());
            self.message_done(message, content, answer);
        } else {
            self.other_item(item, answer);
        }
    }

    /// Publishes the text of a message unless it was streamed.
    fn message_done(&mut self, message: usize, content: Vec<Content>, answer: &mut Answer) {
        if std::mem::replace(&mut self.messages[message].is_done, true) || self.messages[message].has_text {
            return;
        }
        for content in content {
            match content {
                Content::OutputText { text } => self.text(message, text, false, answer),
                Content::Refusal { refusal } => self.text(message, refusal, true, answer),
                Content::Other => {}
            }
        }
    }

    /// Begins a tool call, unless it has begun. Returns its place in [`Self::calls`]; `None` above the limit.
    fn begin_call(&mut self, names: CallNames, tool: String, answer: &mut Answer) -> Option<usize> {
        if let Some(known) = self.calls.iter().position(|call| call.names.call_id == names.call_id) {
            return Some(known);
        }
        answer.gather(ITEM_BYTES).then(|| {
            let index = answer.begin_call(names.call_id.clone(), tool);
            self.calls.push(BegunCall { names, index, bytes: 0, is_done: false });
            self.calls.len() - 1
        })
    }

    /// Adds a piece of arguments to its call, if that has begun.
    fn arguments(&mut self, item: Option<&str>, output_index: u64, text: &str, answer: &mut Answer) {
        let is_it = |call: &&mut BegunCall| match (item, &call.names.item_id) {
            (Some(id), Some(other)) => id == other,
            _ => call.names.output_index == output_index && !call.is_done,
        };
        if let Some(call) = self.calls.iter_mut().rev().find(is_it)
            && answer.gather(text.len())
        {
            call.bytes += text.len();
            if let Some(index) = call.index {
                answer.call_arguments(index, text);
            }
        }
    }

    /// Adds what is missing of a call's arguments.
    fn call_done(&mut self, call: usize, arguments: &str, answer: &mut Answer) {
        let call = &mut self.calls[call];
        let rest = arguments.get(call.bytes..).filter(|_| !call.is_done).unwrap_or_default();
        call.is_done = true;
        if let (true, Some(index)) = (answer.gather(rest.len()), call.index) {
            answer.call_arguments(index, rest);
        }
    }

    fn other_item(&mut self, item: Item, answer: &mut Answer) {
        match item {
            Item::FunctionCall { id, call_id, name, arguments } => {
                // The number matters only to pieces of arguments, of which no more will come.
                let names = CallNames { call_id, item_id: id, output_index: u64::MAX };
                if let Some(call) = self.begin_call(names, name, answer) {
                    self.call_done(call, &arguments, answer);
                }
            }
            Item::Reasoning(mut item) if item.get("encrypted_content").is_some_and(Value::is_string) => {
                item.insert("type".to_owned(), Value::from("reasoning"));
                // These fields exist in answers only.
                item.retain(|name, value| name != "status" && !value.is_null());
                let mark = Value::Object(item).to_string();
                self.reasonings += 1;
                if answer.gather(ITEM_BYTES) {
                    answer.seal(Seal { worker: self.worker.clone(), mark });
                }
            }
            Item::Message { .. } | Item::Reasoning(_) | Item::Other => {}
        }
    }

    /// Publishes the items of the final response that the stream did not have, matched by their order among items of their kind.
    fn rest(&mut self, output: Vec<Item>, answer: &mut Answer) {
        let messages_known =
            self.messages.iter().filter(|message| message.has_text || message.is_done).count();
        let reasonings_known = self.reasonings;
        let (mut messages, mut reasonings) = (0, 0);
        for item in output {
            match item {
                Item::Message { phase, content, .. } => {
                    messages += 1;
                    if messages > messages_known && answer.gather(ITEM_BYTES) {
                        let is_commentary = is_commentary(phase.as_deref());
                        let message =
                            Message { id: None, index: 0, is_commentary, has_text: false, is_done: false };
                        self.messages.push(message);
                        self.message_done(self.messages.len() - 1, content, answer);
                    }
                }
                Item::Reasoning(ref reasoning) => {
                    reasonings += usize::from(reasoning.contains_key("encrypted_content"));
                    if reasonings > reasonings_known {
                        self.other_item(item, answer);
                    }
                }
                item => self.other_item(item, answer),
            }
        }
    }

    /// Reads the final response.
    fn response(&mut self, response: Response, answer: &mut Answer) {
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return answer.fail(answer.errors.in_stream(&error));
        }
        let word = response.incomplete_details.and_then(|details| details.reason);
        let reason = match (response.status.as_deref(), word.as_deref()) {
            (Some("completed"), _) => FinishReason::Stop,
            (Some("incomplete"), Some("content_filter")) => FinishReason::ContentFilter,
            // Servers that do not report a reason have only this one.
            (Some("incomplete"), None | Some("" | "max_output_tokens")) => FinishReason::Length,
            (status, word) => {
                let word = word.or(status).unwrap_or("no status").to_owned();
                return answer.fail(answer.errors.aborted(&word));
            }
        };
        answer.reason = Some(reason);
        self.rest(response.output.unwrap_or_default(), answer);
        answer.usage = response.usage.as_ref().map(usage_of);
        answer.is_complete = true;
    }
}

fn usage_of(body: &UsageBody) -> Usage {
    let prompt = body.input_tokens.count();
    let completion = body.output_tokens.or_rest_of(body.total_tokens, prompt);
    let cached = body.input_tokens_details.cached_tokens.count().min(prompt);
    Usage {
        prompt_tokens: prompt,
        cached_tokens: cached,
        cache_write_tokens: body.input_tokens_details.cache_write_tokens.count().min(prompt - cached),
        completion_tokens: completion,
        reasoning_tokens: body.output_tokens_details.reasoning_tokens.count().min(completion),
    }
}

fn is_commentary(phase: Option<&str>) -> bool {
    phase == Some("commentary")
}

/// Deltas of other event types are not text and are read as empty.
fn text_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        _ => Ok(String::new()),
    }
}
