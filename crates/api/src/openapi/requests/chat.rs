//! The schemas of request parameters of Chat Completions.

use podium_domain::conversation::{MESSAGES_MAX, PARTS_MAX};
use podium_domain::stops::STOPS_MAX;
use podium_domain::tools::TOOLS_MAX;
use serde_json::{Value, json};

use super::forms::{
    NAME_CHARS_MAX, any, call_id, effort, either, file_data, file_name, flag, function, image_url, kind,
    list, maybe, name, nothing, object, one_of, reference, schema_members, some, stop, text, with,
};

/// Most tool calls of a message.
const CALLS_MAX: usize = 128;

/// The schema of a parameter of Chat Completions that has members.
pub(in crate::openapi) fn of_chat(name: &str) -> Option<Value> {
    Some(match name {
        "messages" => some(&reference("ChatMessage"), MESSAGES_MAX),
        "tools" => maybe(&list(&reference("ChatTool"), TOOLS_MAX)),
        "tool_choice" => maybe(&reference("ChatToolChoice")),
        "response_format" => maybe(&reference("ResponseFormat")),
        "stream_options" => maybe(&object(&[("include_usage", flag()), ("include_obfuscation", any())], &[])),
        "stop" => maybe(&either(&[stop(), list(&stop(), STOPS_MAX)])),
        "seed" => json!({"type": ["integer", "null"], "minimum": i64::MIN, "maximum": u64::MAX}),
        "reasoning_effort" => maybe(&effort()),
        "podium" => maybe(&reference("PodiumOptions")),
        _ => return None,
    })
}

/// The schemas of Chat Completions by their names.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let tool = [("type", json!({"const": "function"})), ("function", function())];
    vec![
        ("ChatMessage", chat_message()),
        ("ChatTool", object(&tool, &["type", "function"])),
        ("ChatToolChoice", chat_tool_choice()),
        ("ResponseFormat", response_format()),
    ]
}

fn chat_message() -> Value {
    let content = |part: &Value| either(&[text(), list(part, PARTS_MAX)]);
    let marks = [("cache_control", any()), ("prompt_cache_breakpoint", any())];
    let text_part = with(object(&[kind("text"), ("text", text())], &["type", "text"]), &marks);
    let detail = maybe(&one_of(&["auto", "low", "high"]));
    let image = object(&[("url", image_url()), ("detail", detail)], &["url"]);
    let image_part = with(object(&[kind("image_url"), ("image_url", image)], &["type", "image_url"]), &marks);
    let file = object(
        &[("file_data", file_data()), ("file_id", nothing()), ("filename", file_name())],
        &["file_data"],
    );
    let file_part = with(object(&[kind("file"), ("file", file)], &["type", "file"]), &marks);
    let refusal_part = with(object(&[kind("refusal"), ("refusal", text())], &["type", "refusal"]), &marks);
    let asked = content(&either(&[text_part.clone(), image_part, file_part]));
    let answered = content(&either(&[text_part.clone(), refusal_part]));
    let calls = maybe(&list(&chat_call(), CALLS_MAX));
    let message = |roles: &[&str], content: Value, tool_calls: Value| {
        let members = [
            ("role", one_of(roles)),
            ("content", content),
            ("name", any()),
            ("annotations", any()),
            ("refusal", nothing()),
            ("audio", nothing()),
            ("function_call", nothing()),
            ("tool_call_id", nothing()),
            ("tool_calls", tool_calls),
        ];
        object(&members, &["role", "content"])
    };
    let mut calling = message(&["assistant"], maybe(&answered), some(&chat_call(), CALLS_MAX));
    calling["required"] = json!(["role", "tool_calls"]);
    let result = object(
        &[
            ("role", json!({"const": "tool"})),
            ("content", asked.clone()),
            ("tool_call_id", call_id()),
            ("name", any()),
        ],
        &["role", "content", "tool_call_id"],
    );
    either(&[
        message(&["user"], asked, nothing()),
        message(&["system", "developer"], content(&text_part), nothing()),
        message(&["assistant"], answered, calls),
        calling,
        result,
    ])
}

/// A call of an earlier answer.
fn chat_call() -> Value {
    let function = object(&[("name", name(NAME_CHARS_MAX)), ("arguments", text())], &["name", "arguments"]);
    object(
        &[
            ("id", call_id()),
            ("type", maybe(&json!({"const": "function"}))),
            ("function", function),
            ("index", any()),
        ],
        &["id", "function"],
    )
}

fn chat_tool_choice() -> Value {
    let named = object(&[("name", text())], &["name"]);
    let function = object(&[kind("function"), ("function", named)], &["type", "function"]);
    let allowed = object(
        &[("mode", one_of(&["auto", "required"])), ("tools", some(&function, TOOLS_MAX))],
        &["mode", "tools"],
    );
    let allowed = object(&[kind("allowed_tools"), ("allowed_tools", allowed)], &["type", "allowed_tools"]);
    either(&[one_of(&["none", "auto", "required"]), function, allowed])
}

fn response_format() -> Value {
    let schema = object(&schema_members(), &["name", "schema"]);
    either(&[
        object(&[("type", one_of(&["text", "json_object"]))], &["type"]),
        object(&[kind("json_schema"), ("json_schema", schema)], &["type", "json_schema"]),
    ])
}
