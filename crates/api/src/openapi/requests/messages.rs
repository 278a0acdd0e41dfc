//! The schemas of request parameters of the Messages API.

use podium_domain::conversation::{MESSAGES_MAX, PARTS_MAX};
use podium_domain::stops::STOPS_MAX;
use podium_domain::tools::{TOOL_NAME_CHARS_MAX, TOOLS_MAX};
use serde_json::{Value, json};

use super::forms::{
    address, any, any_object, base64, call_id, effort, either, file_name, flag, kind, list, maybe,
    maybe_text, name, nothing, object, one_of, reference, some, stop, text, with,
};

/// The schema of a parameter of the Messages API that has members.
pub(in crate::openapi) fn of_messages(name: &str) -> Option<Value> {
    Some(match name {
        "messages" => some(&reference("MessageParam"), MESSAGES_MAX),
        "system" => maybe(&either(&[text(), list(&text_block(), PARTS_MAX)])),
        "stop_sequences" => maybe(&list(&stop(), STOPS_MAX)),
        "thinking" => maybe(&reference("ThinkingOptions")),
        "output_config" => maybe(&reference("OutputOptions")),
        "output_format" => maybe(&output_format()),
        "tools" => maybe(&list(&reference("MessageTool"), TOOLS_MAX)),
        "tool_choice" => maybe(&reference("MessageToolChoice")),
        "cache_control" => maybe(&cache_control()),
        "podium" => maybe(&reference("PodiumOptions")),
        _ => return None,
    })
}

/// The schemas of the Messages API by their names.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let output =
        [("effort", maybe(&effort())), ("format", maybe(&output_format())), ("task_budget", nothing())];
    vec![
        ("MessageParam", message_param()),
        ("MessageTool", message_tool()),
        ("MessageToolChoice", message_tool_choice()),
        ("ThinkingOptions", thinking()),
        ("OutputOptions", object(&output, &[])),
    ]
}

/// A mark for a vendor's cache. Its other members are not looked at.
fn cache_control() -> Value {
    let ttl = maybe(&one_of(&["5m", "1h"]));
    json!({"type": "object", "properties": {"type": {"const": "ephemeral"}, "ttl": ttl}, "required": ["type"]})
}

/// A content block of the Messages API.
fn block(name: &str, members: &[(&str, Value)], required: &[&str]) -> Value {
    let required: Vec<_> = ["type"].iter().chain(required).copied().collect();
    with(object(&[kind(name), ("cache_control", maybe(&cache_control()))], &required), members)
}

fn text_block() -> Value {
    block("text", &[("text", text()), ("citations", any())], &["text"])
}

/// A text within another block. Its mark for the cache is not looked at.
fn text_line() -> Value {
    object(
        &[kind("text"), ("text", text()), ("citations", any()), ("cache_control", any())],
        &["type", "text"],
    )
}

fn message_param() -> Value {
    let seen = seen_blocks();
    let result = block(
        "tool_result",
        &[
            ("tool_use_id", call_id()),
            ("content", maybe(&either(&[text(), list(&either(&seen), PARTS_MAX)]))),
            ("is_error", flag()),
            ("toolset_name", any()),
        ],
        &["tool_use_id"],
    );
    let call = block(
        "tool_use",
        &[
            ("id", call_id()),
            ("name", name(TOOL_NAME_CHARS_MAX)),
            ("input", any_object()),
            ("caller", any()),
            ("toolset_name", any()),
        ],
        &["id", "name", "input"],
    );
    let thought =
        block("thinking", &[("thinking", text()), ("signature", text())], &["thinking", "signature"]);
    let redacted = block("redacted_thinking", &[("data", text())], &["data"]);
    let message = |role: &str, block: &Value| {
        let content = either(&[text(), list(block, PARTS_MAX)]);
        object(&[("role", json!({ "const": role })), ("content", content)], &["role", "content"])
    };
    either(&[
        message("user", &either(&[seen.as_slice(), &[result]].concat())),
        message("assistant", &either(&[text_block(), call, thought, redacted])),
        message("system", &text_block()),
    ])
}

/// The blocks of a user's message, and of the result of a tool.
fn seen_blocks() -> Vec<Value> {
    let url = |schema: Value| object(&[kind("url"), ("url", schema)], &["type", "url"]);
    let data = |source: &str, types: &[&str], data: Value| {
        let members = [kind(source), ("media_type", one_of(types)), ("data", data)];
        object(&members, &["type", "media_type", "data"])
    };
    let images = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let image_source = either(&[data("base64", &images, base64()), url(address())]);
    let texts = either(&[text(), list(&text_line(), PARTS_MAX)]);
    let written = object(&[kind("content"), ("content", texts.clone())], &["type", "content"]);
    let document_source = either(&[
        data("text", &["text/plain"], text()),
        written,
        data("base64", &["application/pdf"], base64()),
        url(address()),
    ]);
    let document = [
        ("source", document_source),
        ("title", file_name()),
        ("context", maybe_text()),
        ("citations", any()),
    ];
    let found = [("source", text()), ("title", text()), ("content", texts), ("citations", any())];
    vec![
        text_block(),
        block("image", &[("source", image_source), ("transformations", any())], &["source"]),
        block("document", &document, &["source"]),
        block("search_result", &found, &["source", "title", "content"]),
    ]
}

fn message_tool() -> Value {
    object(
        &[
            ("type", maybe(&json!({"const": "custom"}))),
            ("name", name(TOOL_NAME_CHARS_MAX)),
            ("description", maybe_text()),
            ("input_schema", any_object()),
            ("strict", flag()),
            ("cache_control", maybe(&cache_control())),
            ("allowed_callers", any()),
            ("defer_loading", any()),
            ("eager_input_streaming", any()),
            ("input_examples", any()),
        ],
        &["name", "input_schema"],
    )
}

fn message_tool_choice() -> Value {
    let one = ("disable_parallel_tool_use", flag());
    either(&[
        object(&[("type", one_of(&["auto", "any", "none"])), ("name", any()), one.clone()], &["type"]),
        object(&[kind("tool"), ("name", text()), one], &["type", "name"]),
    ])
}

fn thinking() -> Value {
    let display = maybe(&one_of(&["summarized", "omitted", "updates"]));
    let budget = json!({"type": "integer", "minimum": 1, "maximum": u32::MAX});
    either(&[
        object(
            &[kind("enabled"), ("budget_tokens", budget), ("display", display.clone())],
            &["type", "budget_tokens"],
        ),
        object(
            &[
                ("type", one_of(&["disabled", "adaptive", "between_tools"])),
                ("budget_tokens", any()),
                ("display", display),
            ],
            &["type"],
        ),
    ])
}

fn output_format() -> Value {
    object(&[kind("json_schema"), ("schema", any_object())], &["type", "schema"])
}
