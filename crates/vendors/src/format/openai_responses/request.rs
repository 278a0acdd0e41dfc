//! Converts the internal request to the one on the wire.

use std::borrow::Cow;

use podium_domain::content::{Attachment, Part, PdfSource, Reasoning, Seal, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::{
    AnswerForm, CallsAtOnce, ChatRequest, JsonSchema, ReasoningText, Tool, ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::shared_fields::{image_url, pdf_data_url, pdf_file_name, strict};

/// Makes the vendor return its reasoning as encrypted text, because it must not store it.
const SEALED_REASONING: &str = "reasoning.encrypted_content";

#[derive(Debug, Serialize)]
pub(super) struct ResponsesBody<'a> {
    model: &'a str,
    input: Vec<InputItem<'a>>,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    store: bool,
    stream: bool,
}

/// An item of the conversation.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: ContentBody<'a>,
    },
    Typed(TypedItem<'a>),
    /// As the vendor sent it.
    Sealed(Value),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TypedItem<'a> {
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: ContentBody<'a> },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ContentBody<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum ContentPart<'a> {
    #[serde(rename = "input_text")]
    Text { text: &'a str },
    #[serde(rename = "input_image")]
    Image { image_url: Cow<'a, str> },
    #[serde(rename = "input_file")]
    File(FileBody<'a>),
}

/// A file: its content and name, or its address.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FileBody<'a> {
    Data { filename: Cow<'a, str>, file_data: String },
    Url { file_url: &'a str },
}

#[derive(Debug, Serialize)]
struct ReasoningBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct TextBody<'a> {
    format: FormatBody<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FormatBody<'a> {
    JsonObject,
    JsonSchema { name: &'a str, schema: &'a Value, strict: bool },
}

#[derive(Debug, Serialize)]
struct ToolBody<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a Value,
    /// The vendor's default is true, which few schemas satisfy.
    strict: bool,
}

/// The body of a streamed call. A worker is never asked for more tokens than it can write.
pub(super) fn body<'a>(worker: &'a Worker, request: &'a ChatRequest) -> ResponsesBody<'a> {
    let tools = request.tools.as_ref();
    // Reasoning continues across turns only with tools. Models without reasoning reject the field.
    let seals_reasoning = tools.is_some() && worker.takes(Feature::Effort);
    ResponsesBody {
        model: &worker.model,
        input: request.messages.iter().flat_map(|message| items(message, worker)).collect(),
        max_output_tokens: request.output_tokens_max.min(worker.output_tokens_max),
        temperature: request.temperature,
        top_p: request.top_p,
        reasoning: reasoning(worker, request),
        text: format(&request.answer).map(|format| TextBody { format }),
        tools: tools.map(|tools| tools.tools.iter().map(|t| tool(t, worker)).collect()).unwrap_or_default(),
        tool_choice: tools.and_then(|tools| choice(&tools.choice)),
        parallel_tool_calls: tools.filter(|tools| tools.at_once == CallsAtOnce::One).map(|_| false),
        prompt_cache_key: request.cache_hint.as_deref().filter(|_| worker.takes(Feature::CacheHint)),
        include: if seals_reasoning { vec![SEALED_REASONING] } else { Vec::new() },
        store: false,
        stream: true,
    }
}

fn reasoning(worker: &Worker, request: &ChatRequest) -> Option<ReasoningBody> {
    let is_shown = request.reasoning == ReasoningText::Shown && worker.takes(Feature::ReasoningText);
    let effort = request.effort.map(|effort| worker.nearest_effort(effort).as_str());
    (effort.is_some() || is_shown).then(|| ReasoningBody { effort, summary: is_shown.then_some("auto") })
}

/// A message as items: reasoning, tool results, text, tool calls, in this order.
fn items<'a>(message: &'a Message, worker: &'a Worker) -> Vec<InputItem<'a>> {
    let mut before = Vec::new();
    let mut after = Vec::new();
    for part in &message.parts {
        match part {
            Part::Reasoning(reasoning) => before.extend(sealed(reasoning, worker).map(InputItem::Sealed)),
            Part::ToolResult(result) => before.push(InputItem::Typed(TypedItem::FunctionCallOutput {
                call_id: &result.call_id,
                output: result_output(result),
            })),
            Part::ToolCall(call) => after.push(InputItem::Typed(TypedItem::FunctionCall {
                call_id: &call.id,
                name: &call.name,
                arguments: &call.arguments,
            })),
            Part::Text(_) | Part::Image(_) | Part::Pdf(_) => {}
        }
    }
    let content = content(message);
    let is_empty = matches!(&content, ContentBody::Text(text) if text.is_empty());
    if !is_empty || (before.is_empty() && after.is_empty()) {
        before.push(InputItem::Message { role: message.role.as_str(), content });
    }
    before.append(&mut after);
    before
}

fn content(message: &Message) -> ContentBody<'_> {
    let is_attached = |part: &Part| matches!(part, Part::Image(_) | Part::Pdf(_));
    if message.role != Role::User || !message.parts.iter().any(is_attached) {
        return ContentBody::Text(message.words());
    }
    let first = (!message.text.is_empty()).then_some(ContentPart::Text { text: &message.text });
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(ContentPart::Text { text }),
        Part::Image(image) => Some(attachment(Attachment::Image(image))),
        Part::Pdf(pdf) => Some(attachment(Attachment::Pdf(pdf))),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    });
    ContentBody::Parts(first.into_iter().chain(parts).collect())
}

fn attachment(attachment: Attachment<'_>) -> ContentPart<'_> {
    let pdf = match attachment {
        Attachment::Image(image) => return ContentPart::Image { image_url: image_url(image) },
        Attachment::Pdf(pdf) => pdf,
    };
    ContentPart::File(match &pdf.source {
        PdfSource::Url(url) => FileBody::Url { file_url: url },
        PdfSource::Data(base64) => {
            FileBody::Data { filename: pdf_file_name(pdf), file_data: pdf_data_url(base64) }
        }
    })
}

/// The output of a tool: a plain string if it is text only.
fn result_output(result: &ToolResult) -> ContentBody<'_> {
    if result.is_text_only() {
        return ContentBody::Text(Cow::Borrowed(&result.output));
    }
    let text = (!result.output.is_empty()).then_some(ContentPart::Text { text: &result.output });
    ContentBody::Parts(text.into_iter().chain(result.attachments().map(attachment)).collect())
}

/// The vendor's own reasoning item, which the seal's mark contains.
fn sealed(reasoning: &Reasoning, worker: &Worker) -> Option<Value> {
    let item: Value = serde_json::from_str(Seal::mark_of(reasoning.seal.as_ref(), &worker.id)?).ok()?;
    (item["type"] == "reasoning").then_some(item)
}

fn tool<'a>(tool: &'a Tool, worker: &Worker) -> ToolBody<'a> {
    ToolBody {
        kind: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.schema,
        strict: strict(tool, worker).unwrap_or(false),
    }
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({ "type": "function", "name": name })),
    }
}

fn format(form: &AnswerForm) -> Option<FormatBody<'_>> {
    match form {
        AnswerForm::Text | AnswerForm::Regex(_) => None,
        AnswerForm::JsonObject => Some(FormatBody::JsonObject),
        AnswerForm::JsonSchema(JsonSchema { name, schema, strict }) => {
            Some(FormatBody::JsonSchema { name, schema, strict: *strict })
        }
    }
}
