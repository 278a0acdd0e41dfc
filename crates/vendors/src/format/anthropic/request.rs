//! Converts the internal request to the one on the wire.

use podium_domain::content::{Attachment, Image, Part, Pdf, PdfSource, Reasoning, Seal, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::policy::Effort;
use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::{AnswerForm, CallsAtOnce, ChatRequest, ReasoningText, Tool, ToolChoice, ToolUse};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::shared_fields::{object, strict, thinking_budget};

/// The smallest thinking budget that the vendor accepts. If the token limit allows less, thinking is not requested.
const BUDGET_TOKENS_MIN: u32 = 1024;

#[derive(Debug, Serialize)]
pub(super) struct MessagesBody<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<MessageBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ChoiceBody<'a>>,
    stream: bool,
}

#[derive(Debug, Serialize)]
struct MessageBody<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A content block of a turn.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheBody>,
    },
    Image {
        source: SourceBody<'a>,
    },
    Document {
        source: SourceBody<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: ResultBody<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Thinking {
        thinking: &'a str,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
}

/// The content of a tool's result: a plain string if it is text only.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ResultBody<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

/// Marks the end of the prefix that the vendor may cache.
#[derive(Debug, Serialize)]
struct CacheBody {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl CacheBody {
    const EPHEMERAL: Self = Self { kind: "ephemeral" };
}

/// The source of an image or a document.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SourceBody<'a> {
    Base64 { media_type: &'static str, data: &'a str },
    Url { url: &'a str },
}

/// Whether and how the model reasons.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ThinkingBody {
    /// As much as the effort allows.
    Adaptive {
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
    /// At most `budget_tokens`.
    Enabled {
        budget_tokens: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
}

#[derive(Debug, Serialize)]
struct OutputBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<FormatBody<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FormatBody<'a> {
    JsonSchema { schema: &'a Value },
}

#[derive(Debug, Serialize)]
struct ToolBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheBody>,
}

#[derive(Debug, Serialize)]
struct ChoiceBody<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

/// Content of the mark in a seal of this format's reasoning.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    /// Proves that the model wrote this reasoning.
    Signature(String),
    /// Encrypted reasoning.
    Redacted(String),
}

/// The body of a streamed call. A worker is never asked for more tokens than it can write.
pub(super) fn body<'a>(worker: &'a Worker, request: &'a ChatRequest) -> MessagesBody<'a> {
    let caches = request.cache_hint.is_some() && worker.takes(Feature::CacheHint);
    let mut system: Vec<_> =
        request.messages.iter().filter(|m| m.role == Role::System).flat_map(texts).collect();
    let mut tools: Vec<_> =
        request.tools.iter().flat_map(|tools| &tools.tools).map(|t| tool(t, worker)).collect();
    if caches {
        mark_cached(&mut system, &mut tools);
    }
    MessagesBody {
        model: &worker.model,
        max_tokens: tokens_max(worker, request),
        system,
        messages: turns(worker, request),
        temperature: request.temperature,
        top_p: request.top_p,
        stop_sequences: &request.stops,
        thinking: thinking(worker, request),
        output_config: output(worker, request),
        tools,
        tool_choice: request.tools.as_ref().and_then(choice),
        stream: true,
    }
}

fn tokens_max(worker: &Worker, request: &ChatRequest) -> u32 {
    request.output_tokens_max.min(worker.output_tokens_max)
}

/// Marks the last system text, or else the last tool, as the end of the cached prefix. Tools come before texts.
fn mark_cached(system: &mut [Block<'_>], tools: &mut [ToolBody<'_>]) {
    match (system.last_mut(), tools.last_mut()) {
        (Some(Block::Text { cache_control, .. }), _) => *cache_control = Some(CacheBody::EPHEMERAL),
        (_, Some(tool)) => tool.cache_control = Some(CacheBody::EPHEMERAL),
        (_, None) => {}
    }
}

fn texts(message: &Message) -> impl Iterator<Item = Block<'_>> {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    // The vendor rejects blank texts.
    std::iter::once(message.text.as_str()).chain(parts).filter(|text| !text.trim().is_empty()).map(text)
}

fn text(text: &str) -> Block<'_> {
    Block::Text { text, cache_control: None }
}

fn turns<'a>(worker: &Worker, request: &'a ChatRequest) -> Vec<MessageBody<'a>> {
    let turns = request.messages.iter().filter(|message| message.role != Role::System);
    let turns = turns.map(|message| {
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        MessageBody { role, content: blocks(message, worker) }
    });
    turns.filter(|turn| !turn.content.is_empty()).collect()
}

/// A message as blocks: reasoning and tool results must come first, tool calls last.
fn blocks<'a>(message: &'a Message, worker: &Worker) -> Vec<Block<'a>> {
    let (mut first, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
    if !message.text.trim().is_empty() {
        middle.push(text(&message.text));
    }
    for part in &message.parts {
        match part {
            Part::Reasoning(reasoning) => first.extend(reasoning_block(reasoning, worker)),
            Part::ToolResult(result) => first.push(Block::ToolResult {
                tool_use_id: &result.call_id,
                content: result_body(result),
                is_error: result.is_error,
            }),
            Part::Text(words) if words.trim().is_empty() => {}
            Part::Text(words) => middle.push(text(words)),
            Part::Image(image) => middle.push(attachment(Attachment::Image(image))),
            Part::Pdf(pdf) => middle.push(attachment(Attachment::Pdf(pdf))),
            Part::ToolCall(call) => {
                last.push(Block::ToolUse { id: &call.id, name: &call.name, input: object(&call.arguments) });
            }
        }
    }
    first.append(&mut middle);
    first.append(&mut last);
    first
}

fn attachment(attachment: Attachment<'_>) -> Block<'_> {
    match attachment {
        Attachment::Image(Image::Url(url)) => Block::Image { source: SourceBody::Url { url } },
        Attachment::Image(Image::Data { media_type, base64 }) => {
            Block::Image { source: SourceBody::Base64 { media_type: media_type.as_str(), data: base64 } }
        }
        Attachment::Pdf(Pdf { name, source }) => {
            let source = match source {
                PdfSource::Url(url) => SourceBody::Url { url },
                PdfSource::Data(base64) => SourceBody::Base64 { media_type: Pdf::MEDIA_TYPE, data: base64 },
            };
            Block::Document { source, title: name.as_deref() }
        }
    }
}

fn result_body(result: &ToolResult) -> ResultBody<'_> {
    if result.is_text_only() {
        return ResultBody::Text(&result.output);
    }
    let words = (!result.output.trim().is_empty()).then(|| text(&result.output));
    ResultBody::Blocks(words.into_iter().chain(result.attachments().map(attachment)).collect())
}

fn reasoning_block<'a>(reasoning: &'a Reasoning, worker: &Worker) -> Option<Block<'a>> {
    let mark = Seal::mark_of(reasoning.seal.as_ref(), &worker.id)?;
    Some(match serde_json::from_str(mark).ok()? {
        Mark::Signature(signature) => Block::Thinking { thinking: &reasoning.text, signature },
        Mark::Redacted(data) => Block::RedactedThinking { data },
    })
}

pub(super) fn thinking(worker: &Worker, request: &ChatRequest) -> Option<ThinkingBody> {
    let effort = request.effort?;
    if effort == Effort::None {
        return None;
    }
    let is_shown = request.reasoning == ReasoningText::Shown && worker.takes(Feature::ReasoningText);
    let display = is_shown.then_some("summarized");
    if worker.takes(Feature::Effort) {
        return Some(ThinkingBody::Adaptive { display });
    }
    let budget_tokens = thinking_budget(effort, tokens_max(worker, request));
    (budget_tokens >= BUDGET_TOKENS_MIN).then_some(ThinkingBody::Enabled { budget_tokens, display })
}

fn output<'a>(worker: &Worker, request: &'a ChatRequest) -> Option<OutputBody<'a>> {
    let effort = request.effort.filter(|_| worker.takes(Feature::Effort));
    let effort = effort.map(|effort| worker.nearest_effort(effort).as_str());
    let format = match &request.answer {
        AnswerForm::JsonSchema(form) => Some(FormatBody::JsonSchema { schema: &form.schema }),
        AnswerForm::Text | AnswerForm::JsonObject | AnswerForm::Regex(_) => None,
    };
    (effort.is_some() || format.is_some()).then_some(OutputBody { effort, format })
}

fn tool<'a>(tool: &'a Tool, worker: &Worker) -> ToolBody<'a> {
    ToolBody {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.schema,
        strict: strict(tool, worker) == Some(true),
        cache_control: None,
    }
}

fn choice(tools: &ToolUse) -> Option<ChoiceBody<'_>> {
    let one = tools.at_once == CallsAtOnce::One;
    let body = |kind, name| ChoiceBody { kind, name, disable_parallel_tool_use: one && kind != "none" };
    match &tools.choice {
        ToolChoice::Auto if !one => None,
        ToolChoice::Auto => Some(body("auto", None)),
        ToolChoice::None => Some(body("none", None)),
        ToolChoice::Required => Some(body("any", None)),
        ToolChoice::Named(name) => Some(body("tool", Some(name))),
    }
}
