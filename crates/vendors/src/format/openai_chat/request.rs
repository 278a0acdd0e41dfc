//! Converts the internal request to the one on the wire.

use std::borrow::Cow;

use podium_domain::content::{Attachment, Part, Pdf, PdfSource, ToolResult};
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::{Feature, TokenLimitField, Worker};
use podium_ports::vendor::{AnswerForm, CallsAtOnce, ChatRequest, JsonSchema, Tool, ToolChoice};
use serde_json::{Value, json};

use super::wire::{
    CallBody, CalledBody, ChatBody, ContentBody, ContentPart, FileBody, FormatBody, FunctionBody,
    ImageUrlBody, MessageBody, SchemaBody, StreamOptions, StructuredBody, ToolBody,
};
use crate::shared_fields::{image_url, pdf_data_url, pdf_file_name, strict};

/// The field that bounds a completion, guessed from the host name. OpenAI's regional hosts are subdomains of `api.openai.com`.
pub(crate) fn token_limit_of_host(host: &str) -> TokenLimitField {
    let host = host.to_ascii_lowercase();
    let is_openai = ["api.openai.com", "openai.azure.com", "services.ai.azure.com"]
        .iter()
        .any(|name| host.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.')));
    if is_openai { TokenLimitField::MaxCompletionTokens } else { TokenLimitField::MaxTokens }
}

/// The body of a streamed call. A worker is never asked for more tokens than it can write.
pub(super) fn body<'a>(worker: &'a Worker, request: &'a ChatRequest, limit: TokenLimitField) -> ChatBody<'a> {
    let tokens_max = Some(request.output_tokens_max.min(worker.output_tokens_max));
    let tools = request.tools.as_ref();
    ChatBody {
        model: &worker.model,
        messages: request.messages.iter().flat_map(turns).collect(),
        max_completion_tokens: tokens_max.filter(|_| limit == TokenLimitField::MaxCompletionTokens),
        max_tokens: tokens_max.filter(|_| limit == TokenLimitField::MaxTokens),
        temperature: request.temperature,
        top_p: request.top_p,
        stop: &request.stops,
        seed: request.seed,
        reasoning_effort: request.effort.map(|effort| worker.nearest_effort(effort).as_str()),
        tools: tools.map(|tools| tools.tools.iter().map(|t| tool(t, worker)).collect()).unwrap_or_default(),
        tool_choice: tools.and_then(|tools| choice(&tools.choice)),
        parallel_tool_calls: tools.filter(|tools| tools.at_once == CallsAtOnce::One).map(|_| false),
        response_format: format(&request.answer),
        structured_outputs: match &request.answer {
            AnswerForm::Regex(regex) => Some(StructuredBody { regex }),
            _ => None,
        },
        prompt_cache_key: request.cache_hint.as_deref().filter(|_| worker.takes(Feature::CacheHint)),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    }
}

/// A message as turns: each tool result is a separate turn before the user's text. The format has no images and files in results,
/// so they come after the results, as the user's.
fn turns(message: &Message) -> Vec<MessageBody<'_>> {
    let results = message.parts.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result_turn(result)),
        _ => None,
    });
    let mut turns: Vec<_> = results.collect();
    let calls: Vec<_> = message.parts.iter().filter_map(call).collect();
    let content = content(message);
    let is_empty = matches!(&content, ContentBody::Text(text) if text.is_empty());
    if !is_empty || turns.is_empty() {
        turns.push(MessageBody {
            role: message.role.as_str(),
            content: Some(content).filter(|_| !is_empty || calls.is_empty()),
            tool_calls: calls,
            tool_call_id: None,
        });
    }
    turns
}

fn result_turn(result: &ToolResult) -> MessageBody<'_> {
    MessageBody {
        role: "tool",
        content: Some(ContentBody::Text(Cow::Borrowed(&result.output))),
        tool_calls: Vec::new(),
        tool_call_id: Some(&result.call_id),
    }
}

fn content(message: &Message) -> ContentBody<'_> {
    if message.role != Role::User || message.attachments().next().is_none() {
        return ContentBody::Text(message.words());
    }
    let mut parts = Vec::new();
    for result in message.results().filter(|result| !result.is_text_only()) {
        let what = if result.pdfs.is_empty() { "images" } else { "files" };
        parts.push(text(format!("The {what} of the result of {}:", result.name).into()));
        parts.extend(result.attachments().map(attachment));
    }
    if !message.text.is_empty() {
        parts.push(text(Cow::Borrowed(&message.text)));
    }
    parts.extend(message.parts.iter().filter_map(|part| match part {
        Part::Text(words) => Some(text(Cow::Borrowed(words))),
        Part::Image(image) => Some(attachment(Attachment::Image(image))),
        Part::Pdf(pdf) => Some(attachment(Attachment::Pdf(pdf))),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
    }));
    ContentBody::Parts(parts)
}

fn text(text: Cow<'_, str>) -> ContentPart<'_> {
    ContentPart::Text { text }
}

fn attachment(attachment: Attachment<'_>) -> ContentPart<'_> {
    match attachment {
        Attachment::Image(image) => {
            ContentPart::ImageUrl { image_url: ImageUrlBody { url: image_url(image) } }
        }
        Attachment::Pdf(pdf) => ContentPart::File { file: file(pdf) },
    }
}

fn file(pdf: &Pdf) -> FileBody<'_> {
    let file_data = match &pdf.source {
        PdfSource::Data(base64) => Cow::Owned(pdf_data_url(base64)),
        // Not a form of OpenAI's; the check of the worker's features refuses it before.
        PdfSource::Url(url) => Cow::Borrowed(url.as_str()),
    };
    FileBody { filename: pdf_file_name(pdf), file_data }
}

fn call(part: &Part) -> Option<CallBody<'_>> {
    let Part::ToolCall(call) = part else { return None };
    let function = CalledBody { name: &call.name, arguments: &call.arguments };
    Some(CallBody { id: &call.id, kind: "function", function })
}

fn tool<'a>(tool: &'a Tool, worker: &Worker) -> ToolBody<'a> {
    let function = FunctionBody {
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.schema,
        strict: strict(tool, worker),
    };
    ToolBody { kind: "function", function }
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Named(name) => Some(json!({ "type": "function", "function": { "name": name } })),
    }
}

fn format(form: &AnswerForm) -> Option<FormatBody<'_>> {
    match form {
        AnswerForm::Text | AnswerForm::Regex(_) => None,
        AnswerForm::JsonObject => Some(FormatBody::JsonObject),
        AnswerForm::JsonSchema(JsonSchema { name, schema, strict }) => {
            Some(FormatBody::JsonSchema { json_schema: SchemaBody { name, schema, strict: *strict } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_is_sent_in_vllms_field() {
        let worker = podium_testkit::a_worker("openai-chat", "features = [\"regex\"]");
        let turns = vec![Message::new(Role::User, "yes or no?")];
        let request =
            ChatRequest { answer: AnswerForm::Regex("yes|no".to_owned()), ..ChatRequest::new(turns, 9) };
        let body = body(&worker, &request, TokenLimitField::MaxTokens);
        let body = serde_json::to_value(body).unwrap();
        assert_eq!(body["structured_outputs"], json!({ "regex": "yes|no" }));
        assert_eq!(body.get("response_format"), None);
    }

    #[test]
    fn only_openai_hosts_get_max_completion_tokens() {
        for (host, limit) in [
            ("api.openai.com", TokenLimitField::MaxCompletionTokens),
            ("EU.api.openai.com", TokenLimitField::MaxCompletionTokens),
            ("mine.openai.azure.com", TokenLimitField::MaxCompletionTokens),
            ("mine.services.ai.azure.com", TokenLimitField::MaxCompletionTokens),
            ("api.openai.com.example.org", TokenLimitField::MaxTokens),
            ("myapi.openai.com", TokenLimitField::MaxTokens),
            ("127.0.0.1", TokenLimitField::MaxTokens),
        ] {
            assert_eq!(token_limit_of_host(host), limit, "{host}");
        }
    }
}
