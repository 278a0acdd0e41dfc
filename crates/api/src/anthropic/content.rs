//! Reads messages and their content blocks.

use podium_domain::content::{Image, Part, Pdf, ToolCall, ToolResult};
use podium_domain::conversation::{ConversationError, MESSAGES_MAX, Message, PARTS_MAX, Role};
use serde_json::Value;

use super::parameters::cache_control;
use super::tools;
use crate::ApiError;
use crate::field::Field;
use crate::image::of_url;
use crate::parts::{call_id, message_of};
use crate::{json, pdf};

/// The types of images that may be sent as base64.
const MEDIA_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The messages of a request.
pub(super) fn messages(field: &Field<'_>) -> Result<Vec<Message>, ApiError> {
    field.array_of(MESSAGES_MAX)?.map(|field| message(&field)).collect()
}

/// The place of an error of a conversation in the body of its request.
pub(super) fn path_of(body: &[u8], error: &ConversationError) -> String {
    let (kind, name, id) = match error {
        ConversationError::UnknownCall { id } => ("tool_result", "tool_use_id", id),
        ConversationError::NoResult { id } | ConversationError::SameCallId { id } => ("tool_use", "id", id),
        _ => return "messages".to_owned(),
    };
    let body = json::parse_object(body).unwrap_or_default();
    let entries = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut path = "messages".to_owned();
    for (message, sent) in entries(body.get("messages")).iter().enumerate() {
        for (block, sent) in entries(sent.get("content")).iter().enumerate() {
            if sent["type"] == kind && sent[name] == id.as_str() {
                path = format!("messages[{message}].content[{block}]");
            }
        }
    }
    path
}

/// The parameter `system`: instructions to all workers.
pub(super) fn system(field: &Field<'_>) -> Result<Message, ApiError> {
    content(Role::System, field)
}

pub(super) fn message(field: &Field<'_>) -> Result<Message, ApiError> {
    let message = field.object()?;
    field.only(message, &["role", "content"])?;
    let role = match field.required(message, "role")?.one_of(&["user", "assistant", "system"])? {
        "system" => Role::System,
        "user" => Role::User,
        _ => Role::Assistant,
    };
    content(role, &field.required(message, "content")?)
}

/// The content of a message: a text or blocks. Adjacent texts become lines of one text.
fn content(role: Role, field: &Field<'_>) -> Result<Message, ApiError> {
    match field.value {
        Value::String(text) => Ok(Message::new(role, text.as_str())),
        Value::Array(_) => {
            let blocks = field.array_of(PARTS_MAX)?.map(|block| block_of(role, &block));
            let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
            message_of(role, blocks.into_iter().flatten().map(Ok))
        }
        _ => Err(field.must_be("a string or an array of content blocks")),
    }
}

/// The parts of a content block; none for one that no worker needs.
fn block_of(role: Role, field: &Field<'_>) -> Result<Vec<Part>, ApiError> {
    let block = field.object()?;
    if let Some(mark) = field.member(block, "cache_control") {
        cache_control(&mark)?;
    }
    let kind = field.required(block, "type")?;
    match (kind.string()?, role) {
        ("text", _) => text(field).map(|text| vec![Part::Text(text)]),
        ("image", Role::User) => image(field).map(|image| vec![Part::Image(image)]),
        ("document", Role::User) => document(field),
        ("search_result", Role::User) => search_result(field).map(|text| vec![Part::Text(text)]),
        ("image" | "document" | "search_result", _) => {
            Err(kind.unsupported("only user messages may have such blocks, so it must be `text`"))
        }
        ("thinking", Role::Assistant) => thinking(field, &["thinking", "signature"]).map(|()| Vec::new()),
        ("redacted_thinking", Role::Assistant) => thinking(field, &["data"]).map(|()| Vec::new()),
        ("thinking" | "redacted_thinking", _) => {
            Err(kind.unsupported("only assistant messages may have such blocks, so it must be `text`"))
        }
        ("tool_use", Role::Assistant) => tool_use(field).map(|call| vec![Part::ToolCall(call)]),
        ("tool_result", Role::User) => tool_result(field).map(|result| vec![Part::ToolResult(result)]),
        ("tool_use", _) => Err(kind.unsupported("only assistant messages may have such blocks")),
        ("tool_result", _) => Err(kind.unsupported("only user messages may have such blocks")),
        _ => Err(kind.unsupported(
            "it must be `text`, `image`, `document`, `search_result`, `tool_use` or `tool_result`",
        )),
    }
}

fn text(field: &Field<'_>) -> Result<String, ApiError> {
    let block = field.object()?;
    // Citations belong to an earlier answer and do not change the text.
    field.only(block, &["type", "text", "cache_control", "citations"])?;
    field.required(block, "text")?.string().map(str::to_owned)
}

/// Checks earlier reasoning, which is dropped: it is of use only to the worker that wrote it.
fn thinking(field: &Field<'_>, texts: &[&str]) -> Result<(), ApiError> {
    let block = field.object()?;
    let names: Vec<_> = ["type", "cache_control"].iter().chain(texts).copied().collect();
    field.only(block, &names)?;
    texts.iter().try_for_each(|name| field.required(block, name)?.string().map(drop))
}

fn image(field: &Field<'_>) -> Result<Image, ApiError> {
    let block = field.object()?;
    // Each worker's vendor transforms images by its own rules.
    field.only(block, &["type", "source", "cache_control", "transformations"])?;
    let source_field = field.required(block, "source")?;
    let source = source_field.object()?;
    let kind = source_field.required(source, "type")?;
    match kind.string()? {
        "base64" => {
            source_field.only(source, &["type", "media_type", "data"])?;
            let media_type = source_field.required(source, "media_type")?.one_of(&MEDIA_TYPES)?;
            let data = source_field.required(source, "data")?;
            of_url(&format!("data:{media_type};base64,{}", data.string()?))
                .map_err(|must_be| data.must_be(&must_be))
        }
        "url" => {
            source_field.only(source, &["type", "url"])?;
            let url = source_field.required(source, "url")?;
            of_url(url.string()?).map_err(|must_be| url.must_be(&must_be))
        }
        _ => Err(kind.unsupported("it must be `base64` or `url`")),
    }
}

/// A document: its text after its title and its context, or its context and a PDF with its title.
fn document(field: &Field<'_>) -> Result<Vec<Part>, ApiError> {
    let block = field.object()?;
    field.only(block, &["type", "source", "title", "context", "cache_control", "citations"])?;
    let [title, context] = ["title", "context"].map(|name| field.member(block, name));
    let context = context.map(|context| context.string()).transpose()?;
    let source_field = field.required(block, "source")?;
    let source = source_field.object()?;
    let kind = source_field.required(source, "type")?;
    let text = match kind.string()? {
        "text" => {
            source_field.only(source, &["type", "media_type", "data"])?;
            source_field.required(source, "media_type")?.one_of(&["text/plain"])?;
            source_field.required(source, "data")?.string()?.to_owned()
        }
        "content" => {
            source_field.only(source, &["type", "content"])?;
            texts(&source_field.required(source, "content")?)?
        }
        _ => {
            let pdf = Part::Pdf(pdf(&source_field, pdf::name(title)?)?);
            return Ok(context
                .map(|context| Part::Text(context.to_owned()))
                .into_iter()
                .chain([pdf])
                .collect());
        }
    };
    let title = title.map(|title| title.string()).transpose()?;
    let lines: Vec<_> = title.into_iter().chain(context).chain([text.as_str()]).collect();
    Ok(vec![Part::Text(lines.join("\n"))])
}

/// The PDF of a document's source.
fn pdf(field: &Field<'_>, name: Option<String>) -> Result<Pdf, ApiError> {
    let source = field.object()?;
    let kind = field.required(source, "type")?;
    match kind.string()? {
        "base64" => {
            field.only(source, &["type", "media_type", "data"])?;
            field.required(source, "media_type")?.one_of(&[Pdf::MEDIA_TYPE])?;
            let data = field.required(source, "data")?;
            pdf::of_base64(data.string()?, name).map_err(|must_be| data.must_be(&must_be))
        }
        "url" => {
            field.only(source, &["type", "url"])?;
            let url = field.required(source, "url")?;
            pdf::of_address(url.string()?, name).map_err(|must_be| url.must_be(&must_be))
        }
        _ => Err(kind.unsupported("it must be `base64`, `url`, `text` or `content`")),
    }
}

/// The texts of a search result, after its title and its source.
fn search_result(field: &Field<'_>) -> Result<String, ApiError> {
    let block = field.object()?;
    field.only(block, &["type", "source", "title", "content", "cache_control", "citations"])?;
    let [title, source, content] = ["title", "source", "content"].map(|name| field.required(block, name));
    let content = texts(&content?)?;
    Ok([title?.string()?, source?.string()?, &content].join("\n"))
}

/// A call of a tool in an earlier answer.
fn tool_use(field: &Field<'_>) -> Result<ToolCall, ApiError> {
    let block = field.object()?;
    field.only(block, &["type", "id", "name", "input", "cache_control", "caller", "toolset_name"])?;
    let input = field.required(block, "input")?;
    input.object()?;
    let name = tools::name(&field.required(block, "name")?)?;
    Ok(ToolCall::new(call_id(&field.required(block, "id")?)?, name, input.value.to_string()))
}

/// The result of a tool: its texts as lines, its images and its PDFs. The name of the tool comes from its call.
fn tool_result(field: &Field<'_>) -> Result<ToolResult, ApiError> {
    let block = field.object()?;
    field.only(block, &["type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"])?;
    let (mut lines, mut images, mut pdfs) = (Vec::new(), Vec::new(), Vec::new());
    match field.member(block, "content") {
        None => {}
        Some(content) if content.value.is_string() => lines.push(content.string()?.to_owned()),
        Some(content) => {
            for part in content.array_of(PARTS_MAX)? {
                for read in block_of(Role::User, &part)? {
                    match read {
                        Part::Text(text) => lines.push(text),
                        Part::Image(image) => images.push(image),
                        Part::Pdf(pdf) => pdfs.push(pdf),
                        Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => {
                            return Err(part.must_be("a block of text, an image or a document"));
                        }
                    }
                }
            }
        }
    }
    let id = call_id(&field.required(block, "tool_use_id")?)?;
    let is_error = field.member(block, "is_error").map_or(Ok(false), |failed| failed.boolean())?;
    Ok(ToolResult { is_error, images, pdfs, ..ToolResult::new(id, "", lines.join("\n")) })
}

/// A text, or the lines of an array of text blocks.
fn texts(field: &Field<'_>) -> Result<String, ApiError> {
    if let Value::String(text) = field.value {
        return Ok(text.clone());
    }
    let lines = field.array_of(PARTS_MAX)?.map(|block| {
        let object = block.object()?;
        let kind = block.required(object, "type")?;
        match kind.string()? {
            "text" => text(&block),
            _ => Err(kind.unsupported("it must be `text`")),
        }
    });
    Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"))
}
