//! Converts the messages of a Chat Completions request.

use podium_domain::content::{Image, Part, ToolCall};
use podium_domain::conversation::{ConversationError, MESSAGES_MAX, Message, PARTS_MAX, Role};
use serde_json::{Map, Value};

use super::{file, tools};
use crate::ApiError;
use crate::field::{Field, missing};
use crate::image::of_url;
use crate::parts::{call_id, message_of, tool_result};
use crate::pdf;

/// The members of a message, except of role `tool`. Not every role may have a value for each.
const MEMBERS: [&str; 9] = [
    "role",
    "content",
    "name",
    "annotations",
    "refusal",
    "audio",
    "tool_calls",
    "function_call",
    "tool_call_id",
];
/// Most tool calls of a message.
const CALLS_MAX: usize = 128;

/// The messages of a request. The results of tools that follow each other become one message of the user, as vendors need them.
pub(super) fn messages(field: &Field<'_>) -> Result<Vec<Message>, ApiError> {
    let mut messages: Vec<Message> = Vec::new();
    for field in field.array_of(MESSAGES_MAX)? {
        match (message(&field)?, messages.last_mut()) {
            (Sent::Result(result), Some(last)) if last.is_results_only() => last.parts.push(result),
            (Sent::Result(result), _) => messages.push(Message::new(Role::User, "").with([result])),
            (Sent::Message(message), _) => messages.push(message),
        }
    }
    Ok(messages)
}

/// The path of the message that an invalid conversation is about.
pub(super) fn path_of(messages: &Value, error: &ConversationError) -> String {
    let all = || messages.as_array().into_iter().flatten().enumerate();
    let calls = |message: &Value, id: &str| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        calls.filter(|call| call["id"] == id).count()
    };
    let found = match error {
        ConversationError::UnknownCall { id } => all()
            .filter(|(_, message)| message["tool_call_id"] == id.as_str())
            .last()
            .map(|(index, _)| format!("messages[{index}].tool_call_id")),
        ConversationError::NoResult { id } | ConversationError::SameCallId { id } => all()
            .filter(|(_, message)| calls(message, id) > 0)
            .last()
            .map(|(index, _)| format!("messages[{index}].tool_calls")),
        _ => None,
    };
    found.unwrap_or_else(|| "messages".to_owned())
}

/// A message as the client sent it.
enum Sent {
    Message(Message),
    /// The result of a tool.
    Result(Part),
}

/// Parses a message alone.
#[cfg(test)]
pub(super) fn check(field: &Field<'_>) -> Result<(), ApiError> {
    message(field).map(drop)
}

fn message(field: &Field<'_>) -> Result<Sent, ApiError> {
    let message = field.object()?;
    let role_field = field.required(message, "role")?;
    let role = match role_field.one_of(&["system", "developer", "user", "assistant", "tool", "function"])? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => return result(field, message).map(Sent::Result),
        _ => return Err(role_field.unsupported("use role `tool`")),
    };
    check_keys(field, message, role)?;
    let calls = match field.member(message, "tool_calls") {
        Some(calls) => calls.array_of(CALLS_MAX)?.map(|call| self::call(&call)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let converted = match field.member(message, "content") {
        Some(content) => converted(role, &content)?,
        None if calls.is_empty() => return Err(missing(&format!("{}.content", field.path))),
        None => Message::new(role, ""),
    };
    Ok(Sent::Message(converted.with(calls.into_iter().map(Part::ToolCall))))
}

fn check_keys(field: &Field<'_>, message: &Map<String, Value>, role: Role) -> Result<(), ApiError> {
    field.only(message, &MEMBERS)?;
    for (name, value) in message {
        let here = Field::new(format!("{}.{name}", field.path), value);
        match name.as_str() {
            // A name distinguishes people of one role, and an annotation belongs to an earlier answer. Neither changes the text.
            "role" | "content" | "name" | "annotations" => {}
            "tool_calls" if role == Role::Assistant => {}
            other => {
                let requests_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
                let advice = match other {
                    "tool_calls" => "only messages of role `assistant` may have it",
                    "tool_call_id" => "only messages of role `tool` may have it",
                    "function_call" => "use `tool_calls`",
                    _ => "messages are text, images and files; leave it out",
                };
                if !requests_nothing {
                    return Err(here.unsupported(advice));
                }
            }
        }
    }
    Ok(())
}

/// A call of a tool in an earlier answer. Its arguments are a model's text and need not be JSON.
fn call(field: &Field<'_>) -> Result<ToolCall, ApiError> {
    let call = field.object()?;
    if let Some(kind) = field.member(call, "type")
        && kind.string()? != "function"
    {
        return Err(kind.unsupported("only calls of type `function` are supported"));
    }
    // Streaming clients leave the position in.
    field.only(call, &["id", "type", "function", "index"])?;
    let id = call_id(&field.required(call, "id")?)?;
    let function = field.required(call, "function")?;
    let of = function.object()?;
    function.only(of, &["name", "arguments"])?;
    let name = tools::name(&function.required(of, "name")?)?;
    let arguments = function.required(of, "arguments")?.string()?;
    Ok(ToolCall::new(id, name, arguments))
}

/// The result of a tool. The name of the tool comes from its call.
fn result(field: &Field<'_>, message: &Map<String, Value>) -> Result<Part, ApiError> {
    field.only(message, &["role", "content", "tool_call_id", "name"])?;
    let call_id = call_id(&field.required(message, "tool_call_id")?)?;
    let content = converted(Role::User, &field.required(message, "content")?)?;
    Ok(Part::ToolResult(tool_result(call_id, content)))
}

fn converted(role: Role, content: &Field<'_>) -> Result<Message, ApiError> {
    let parts = match content.value {
        Value::String(text) => return Ok(Message::new(role, text.as_str())),
        Value::Array(_) => content.array_of(PARTS_MAX)?,
        _ => return Err(content.must_be("a string or an array of parts")),
    };
    message_of(role, parts.map(|sent| part(role, &sent)))
}

fn part(role: Role, field: &Field<'_>) -> Result<Part, ApiError> {
    let part = field.object()?;
    let kind = field.required(part, "type")?;
    // Marks for a vendor's cache, which clients of several vendors send. Podium sets its own.
    let member = |name: &str| {
        field.only(part, &["type", name, "cache_control", "prompt_cache_breakpoint"])?;
        field.required(part, name)
    };
    match kind.string()? {
        "text" => Ok(Part::Text(member("text")?.string()?.to_owned())),
        "refusal" if role == Role::Assistant => Ok(Part::Text(member("refusal")?.string()?.to_owned())),
        "image_url" if role == Role::User => image(&member("image_url")?).map(Part::Image),
        "file" if role == Role::User => file(&member("file")?),
        "image_url" | "file" => {
            Err(kind.unsupported("only user messages may have images and files, so it must be `text`"))
        }
        _ => Err(kind.unsupported("it must be `text`, `image_url` or `file`")),
    }
}

fn image(field: &Field<'_>) -> Result<Image, ApiError> {
    let image = field.object()?;
    if let Some(detail) = field.member(image, "detail") {
        // Checked but not used: each worker chooses its own resolution.
        detail.one_of(&["auto", "low", "high"])?;
    }
    field.only(image, &["url", "detail"])?;
    let url = field.required(image, "url")?;
    of_url(url.string()?).map_err(|must_be| url.must_be(&must_be))
}

fn file(field: &Field<'_>) -> Result<Part, ApiError> {
    let file = field.object()?;
    field.only(file, &["file_data", "file_id", "filename"])?;
    if let Some(id) = field.member(file, "file_id") {
        return Err(id.unsupported("Podium stores no files; send `file_data`"));
    }
    let name = pdf::name(field.member(file, "filename"))?;
    file::of_data(&field.required(file, "file_data")?, name)
}

#[cfg(test)]
mod tests {
    use podium_domain::content::{Pdf, PdfSource, ToolResult};
    use podium_domain::conversation::Conversation;
    use serde_json::json;

    use super::*;

    fn read(sent: &Value) -> Result<Vec<Message>, ApiError> {
        messages(&Field::new("messages", sent))
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}})
    }

    fn calling(ids: &[&str]) -> Value {
        let calls: Vec<_> = ids.iter().map(|id| call(id, "{}")).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "blue"})
    }

    fn user() -> Value {
        json!({"role": "user", "content": "look"})
    }

    #[test]
    fn results_that_follow_each_other_become_one_message() {
        let png = "data:image/png;base64,iVBORw0KGgo=";
        let shown = json!({"role": "tool", "tool_call_id": "b", "name": "look", "content": [
            {"type": "text", "text": "x"},
            {"type": "image_url", "image_url": {"url": png}},
        ]});
        let odd = json!({"role": "assistant", "tool_calls": [call("a", "{broken"), call("b", "")]});
        let sent = json!([user(), odd, result("a"), shown, {"role": "user", "content": "and?"}]);
        let messages = read(&sent).unwrap();
        assert_eq!(messages.len(), 4);
        let arguments: Vec<_> = messages[1].calls().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, ["{broken", ""]);
        let expected = ToolResult { images: vec![of_url(png).unwrap()], ..ToolResult::new("b", "", "x") };
        let results: Vec<_> = messages[2].results().cloned().collect();
        assert_eq!(results, [ToolResult::new("a", "", "blue"), expected]);
        assert!(Conversation::new(messages).is_ok());
    }

    #[test]
    fn files_are_read_in_messages_and_results() {
        let file =
            |data: &str, name: Value| json!({"type": "file", "file": {"file_data": data, "filename": name}});
        let pdf = "data:application/pdf;base64,JVBERi0=";
        let text = "data:text/plain;charset=utf-8;base64,SGk=";
        let result = json!({"role": "tool", "tool_call_id": "a", "content": [
            {"type": "text", "text": "found"}, file(pdf, Value::Null), file(text, json!("b.txt")),
        ]});
        let asked = json!({"role": "user", "content": [
            {"type": "text", "text": "Compare"}, file(pdf, json!("a.pdf")), file("data:text/csv;base64,", json!("")),
        ]});
        let messages = read(&json!([asked, calling(&["a"]), result])).unwrap();
        let held = |name: Option<&str>| Pdf {
            name: name.map(str::to_owned),
            source: PdfSource::Data("JVBERi0=".to_owned()),
        };
        let expected = Message::new(Role::User, "Compare")
            .with([Part::Pdf(held(Some("a.pdf"))), Part::Text(String::new())]);
        assert_eq!(messages[0], expected);
        let expected = ToolResult { pdfs: vec![held(None)], ..ToolResult::new("a", "", "foundb.txt:\nHi") };
        assert_eq!(messages[2].results().next(), Some(&expected));
    }

    #[test]
    fn an_invalid_file_is_named_by_its_field() {
        let file = |file: Value| json!({"type": "file", "file": file});
        let data = |data: &str| file(json!({"file_data": data}));
        let user = |part: Value| json!({"role": "user", "content": [part]});
        let at = |place: &str| format!("messages[0].content[0].{place}");
        for (message, place, said) in [
            (user(json!({"type": "file"})), "file", "missing"),
            (user(file(json!(7))), "file", "an object"),
            (user(file(json!({}))), "file.file_data", "missing"),
            (user(file(json!({"file_id": "file-1"}))), "file.file_id", "stores no files"),
            (user(file(json!({"file_data": 7}))), "file.file_data", "a string"),
            (user(file(json!({"file_url": "https://x.org/a.pdf"}))), "file.file_url", "unknown parameter"),
            (user(data("https://example.org/a.pdf")), "file.file_data", "only PDFs and text files"),
            (user(data("JVBERi0=")), "file.file_data", "only PDFs and text files"),
            (user(data("data:application/zip;base64,UEs=")), "file.file_data", "only PDFs and text files"),
            (user(data("data:application/pdf,JVBERi0=")), "file.file_data", "only PDFs and text files"),
            (user(data("data:application/pdf;base64,")), "file.file_data", "a PDF that is not empty"),
            (user(data("data:application/pdf;base64,JVB")), "file.file_data", "in padded base64"),
            (user(data("data:text/plain;base64,/w==")), "file.file_data", "UTF-8 text"),
            (
                user(file(json!({"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a\nb"}))),
                "file.filename",
                "at most 500 bytes",
            ),
            (json!({"role": "assistant", "content": [data("")]}), "type", "only user messages"),
            (json!({"role": "system", "content": [data("")]}), "type", "only user messages"),
        ] {
            let error = read(&json!([message])).unwrap_err();
            assert_eq!(error.param(), Some(at(place).as_str()), "{message}: {error}");
            assert!(error.message.contains(said), "{message}: {error}");
        }
    }

    #[test]
    fn an_error_names_the_invalid_part_of_a_tool_message() {
        let of =
            |function: Value| json!({"role": "assistant", "tool_calls": [{"id": "a", "function": function}]});
        for (message, param) in [
            (json!({"role": "tool", "content": "x"}), "messages[0].tool_call_id"),
            (json!({"role": "tool", "tool_call_id": "", "content": "x"}), "messages[0].tool_call_id"),
            (json!({"role": "tool", "tool_call_id": "a"}), "messages[0].content"),
            (json!({"role": "tool", "tool_call_id": "a", "content": "x", "y": 1}), "messages[0].y"),
            (json!({"role": "assistant", "tool_calls": [1]}), "messages[0].tool_calls[0]"),
            (json!({"role": "assistant", "tool_calls": [{}]}), "messages[0].tool_calls[0].id"),
            (
                json!({"role": "assistant", "tool_calls": [{"type": "custom"}]}),
                "messages[0].tool_calls[0].type",
            ),
            (of(json!(null)), "messages[0].tool_calls[0].function"),
            (of(json!({"arguments": "{}"})), "messages[0].tool_calls[0].function.name"),
            (of(json!({"name": "a b", "arguments": "{}"})), "messages[0].tool_calls[0].function.name"),
            (of(json!({"name": "a"})), "messages[0].tool_calls[0].function.arguments"),
            (of(json!({"name": "a", "arguments": {}})), "messages[0].tool_calls[0].function.arguments"),
            (
                json!({"role": "user", "content": "x", "tool_calls": [call("a", "{}")]}),
                "messages[0].tool_calls",
            ),
            (json!({"role": "user", "content": "x", "tool_call_id": "a"}), "messages[0].tool_call_id"),
            (json!({"role": "assistant", "content": "x", "function_call": {}}), "messages[0].function_call"),
        ] {
            let error = read(&json!([message])).unwrap_err();
            assert_eq!(error.param(), Some(param), "{message}: {error}");
        }
    }

    #[test]
    fn an_unknown_member_of_a_part_is_named() {
        let text = |role: &str, part: Value| read(&json!([{"role": role, "content": [part]}]));
        let marked = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        assert_eq!(text("user", marked).unwrap()[0].words(), "x");
        assert_eq!(text("assistant", json!({"type": "refusal", "refusal": "no"})).unwrap()[0].words(), "no");
        for (role, part, member) in [
            ("user", json!({"type": "text", "text": "x", "colour": 1}), "colour"),
            (
                "user",
                json!({"type": "text", "text": "x", "image_url": {"url": "https://x.org"}}),
                "image_url",
            ),
            (
                "user",
                json!({"type": "image_url", "image_url": {"url": "https://x.org"}, "text": "x"}),
                "text",
            ),
            ("user", json!({"type": "refusal", "refusal": "no"}), "type"),
        ] {
            let error = text(role, part).unwrap_err();
            assert_eq!(error.param(), Some(format!("messages[0].content[0].{member}").as_str()), "{error}");
        }
    }

    #[test]
    fn an_invalid_pair_is_named_by_its_message() {
        let path = |sent: Value| {
            let error = Conversation::new(read(&sent).unwrap()).unwrap_err();
            path_of(&sent, &error)
        };
        assert_eq!(path(json!([user(), calling(&["a"]), user()])), "messages[1].tool_calls");
        let two = json!([user(), calling(&["a"]), result("a"), calling(&["a", "b"]), result("b")]);
        assert_eq!(path(two), "messages[3].tool_calls");
        assert_eq!(path(json!([user(), result("x")])), "messages[1].tool_call_id");
        assert_eq!(
            path(json!([user(), calling(&["a"]), result("a"), result("a")])),
            "messages[3].tool_call_id"
        );
        assert_eq!(path(json!([user(), calling(&["a", "a"]), result("a")])), "messages[1].tool_calls");
        assert_eq!(path(json!([{"role": "assistant", "content": "x"}])), "messages");
    }
}
