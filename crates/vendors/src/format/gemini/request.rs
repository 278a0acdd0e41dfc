//! Converts the internal request to the one on the wire.

use podium_domain::content::{
    Attachment, Image, MediaType, Part, Pdf, PdfSource, Seal, ToolCall, ToolResult,
};
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::{AnswerForm, ChatRequest, ReasoningText, Tool, ToolChoice};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::OWN_CALL_ID;
use crate::shared_fields::{object, thinking_budget};

/// Bits of a seed that fit into the vendor's signed 32-bit number.
const SEED_BITS: u32 = 0x7fff_ffff;

/// The range of thinking budgets that all the vendor's models with a budget accept, except the smallest ones.
const BUDGET_TOKENS: (u32, u32) = (128, 24_576);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerateBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<ContentBody<'a>>,
    contents: Vec<ContentBody<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolsBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfigBody<'a>>,
    generation_config: ConfigBody<'a>,
}

#[derive(Debug, Serialize)]
struct ContentBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<PartBody<'a>>,
}

/// A part of a turn: exactly one of these fields, plus the signature of a call.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<BlobBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<FileBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CallBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<ResponseBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobBody<'a> {
    mime_type: &'static str,
    data: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'static str>,
    file_uri: &'a str,
}

#[derive(Debug, Serialize)]
struct CallBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct ResponseBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolsBody<'a> {
    function_declarations: Vec<FunctionBody<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfigBody<'a> {
    function_calling_config: CallingBody<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CallingBody<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_function_names: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigBody<'a> {
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingBody>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
}

/// The body of a streamed call. A worker is never asked for more tokens than it can write.
pub(super) fn body<'a>(worker: &'a Worker, request: &'a ChatRequest) -> GenerateBody<'a> {
    let is_system = |message: &&Message| message.role == Role::System;
    let instructions: Vec<_> =
        request.messages.iter().filter(is_system).flat_map(|m| parts(m, worker)).collect();
    let turns = request.messages.iter().filter(|message| !is_system(message));
    let turns = turns.map(|message| {
        let role = if message.role == Role::Assistant { "model" } else { "user" };
        ContentBody { role: Some(role), parts: parts(message, worker) }
    });
    let tools = request.tools.iter();
    GenerateBody {
        system_instruction: (!instructions.is_empty())
            .then_some(ContentBody { role: None, parts: instructions }),
        contents: turns.filter(|turn| !turn.parts.is_empty()).collect(),
        tools: tools
            .map(|tools| ToolsBody { function_declarations: tools.tools.iter().map(tool).collect() })
            .collect(),
        tool_config: request.tools.as_ref().and_then(|tools| calling(&tools.choice)),
        generation_config: config(worker, request),
    }
}

/// The parts of a message. Tool results come first because they answer the previous turn. Their images and PDFs follow them: only
/// the newest models of the vendor accept them inside a result.
fn parts<'a>(message: &'a Message, worker: &Worker) -> Vec<PartBody<'a>> {
    let results = message.parts.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result_part(result)),
        _ => None,
    });
    let attached = message.results().flat_map(ToolResult::attachments).map(attachment_part);
    let words = (!message.text.is_empty()).then(|| text(&message.text));
    let rest = message.parts.iter().filter_map(|part| match part {
        Part::Text(words) => Some(text(words)),
        Part::Image(image) => Some(attachment_part(Attachment::Image(image))),
        Part::Pdf(pdf) => Some(attachment_part(Attachment::Pdf(pdf))),
        Part::ToolCall(call) => Some(call_part(call, worker)),
        // The vendor recognises its reasoning by the signatures of the tool calls that followed from it.
        Part::ToolResult(_) | Part::Reasoning(_) => None,
    });
    results.chain(attached).chain(words).chain(rest).collect()
}

fn text(text: &str) -> PartBody<'_> {
    PartBody { text: Some(text), ..PartBody::default() }
}

fn attachment_part(attachment: Attachment<'_>) -> PartBody<'_> {
    match attachment {
        Attachment::Image(Image::Url(url)) => file_part(media_type(url).map(MediaType::as_str), url),
        Attachment::Image(Image::Data { media_type, base64 }) => blob_part(media_type.as_str(), base64),
        Attachment::Pdf(Pdf { source: PdfSource::Url(url), .. }) => file_part(Some(Pdf::MEDIA_TYPE), url),
        Attachment::Pdf(Pdf { source: PdfSource::Data(base64), .. }) => blob_part(Pdf::MEDIA_TYPE, base64),
    }
}

fn file_part<'a>(mime_type: Option<&'static str>, file_uri: &'a str) -> PartBody<'a> {
    PartBody { file_data: Some(FileBody { mime_type, file_uri }), ..PartBody::default() }
}

fn blob_part<'a>(mime_type: &'static str, data: &'a str) -> PartBody<'a> {
    PartBody { inline_data: Some(BlobBody { mime_type, data }), ..PartBody::default() }
}

/// The media type that a URL's file extension suggests.
fn media_type(url: &str) -> Option<MediaType> {
    let path = url.split(['?', '#']).next()?;
    match path.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
        "png" => Some(MediaType::Png),
        "jpg" | "jpeg" => Some(MediaType::Jpeg),
        "webp" => Some(MediaType::Webp),
        "gif" => Some(MediaType::Gif),
        _ => None,
    }
}

fn call_part<'a>(call: &'a ToolCall, worker: &Worker) -> PartBody<'a> {
    let function_call =
        CallBody { id: vendors_id(&call.id), name: &call.name, args: object(&call.arguments) };
    PartBody {
        function_call: Some(function_call),
        thought_signature: Seal::mark_of(call.seal.as_ref(), &worker.id),
        ..PartBody::default()
    }
}

fn result_part(result: &ToolResult) -> PartBody<'_> {
    let key = if result.is_error { "error" } else { "output" };
    let function_response = ResponseBody {
        id: vendors_id(&result.call_id),
        name: &result.name,
        response: json!({ key: result.output }),
    };
    PartBody { function_response: Some(function_response), ..PartBody::default() }
}

fn vendors_id(id: &str) -> Option<&str> {
    (!id.starts_with(OWN_CALL_ID)).then_some(id)
}

fn tool(tool: &Tool) -> FunctionBody<'_> {
    FunctionBody { name: &tool.name, description: &tool.description, parameters_json_schema: &tool.schema }
}

fn calling(choice: &ToolChoice) -> Option<ToolConfigBody<'_>> {
    let body = |mode, allowed_function_names| {
        Some(ToolConfigBody { function_calling_config: CallingBody { mode, allowed_function_names } })
    };
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => body("NONE", Vec::new()),
        ToolChoice::Required => body("ANY", Vec::new()),
        ToolChoice::Named(name) => body("ANY", vec![name]),
    }
}

fn config<'a>(worker: &Worker, request: &'a ChatRequest) -> ConfigBody<'a> {
    let max_output_tokens = request.output_tokens_max.min(worker.output_tokens_max);
    let (response_mime_type, response_json_schema) = match &request.answer {
        AnswerForm::Text | AnswerForm::Regex(_) => (None, None),
        AnswerForm::JsonObject => (Some("application/json"), None),
        AnswerForm::JsonSchema(form) => (Some("application/json"), Some(&form.schema)),
    };
    ConfigBody {
        max_output_tokens,
        temperature: request.temperature,
        top_p: request.top_p,
        stop_sequences: &request.stops,
        seed: request.seed.map(|seed| seed & SEED_BITS),
        response_mime_type,
        response_json_schema,
        thinking_config: thinking(worker, request, max_output_tokens),
    }
}

fn thinking(worker: &Worker, request: &ChatRequest, output_tokens_max: u32) -> Option<ThinkingBody> {
    let include_thoughts = request.reasoning == ReasoningText::Shown && worker.takes(Feature::ReasoningText);
    let by_name = request.effort.filter(|_| worker.takes(Feature::Effort));
    let by_number = request.effort.filter(|_| worker.takes(Feature::ThinkingBudget));
    let thinking_level = by_name.map(|effort| worker.nearest_effort(effort).as_str());
    let (least, most) = BUDGET_TOKENS;
    let thinking_budget =
        by_number.map(|effort| thinking_budget(effort, output_tokens_max).clamp(least, most));
    (include_thoughts || thinking_level.is_some() || thinking_budget.is_some()).then_some(ThinkingBody {
        thinking_level,
        thinking_budget,
        include_thoughts,
    })
}
