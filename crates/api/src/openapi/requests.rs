//! The schemas of request parameters that have members: messages, items, content parts, tools and options.
//!
//! The parsers of the three APIs are the authority. Tests parse instances of each schema, valid and invalid ones, and compare the
//! members that a schema names with those that its parser accepts.

use podium_domain::conversation::{CALL_ID_BYTES_MAX, MESSAGES_MAX, PARTS_MAX};
use podium_domain::policy::{
    ATTEMPTS_MAX, BrokenAnswer, DEADLINE_MAX, Effort, FailedStep, OUTPUT_BYTES_MAX, PoolRule, ROUNDS_MAX,
    STEPS_MAX, SUSPENDED_MAX, SUSPENDED_MIN, StepTools, TURNS_MAX,
};
use podium_domain::stops::{STOP_BYTES_MAX, STOPS_MAX};
use podium_domain::tools::{TOOL_NAME_CHARS_MAX, TOOLS_MAX};
use serde_json::{Map, Value, json};

use crate::openai::CONTEXT_RULES_MAX;

#[cfg(test)]
mod tests;

/// Padded base64 of the standard alphabet, not empty.
const BASE64: &str =
    "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)";
/// The address of an image or a PDF.
const ADDRESS: &str = "https?://[!-.0-~][!-~]*";
const ADDRESS_CHARS_MAX: usize = 8 << 10;
/// Most characters of a name of a tool in OpenAI's APIs, and of a name of a schema.
const NAME_CHARS_MAX: usize = 64;
/// Most tool calls of a message.
const CALLS_MAX: usize = 128;

/// The schema of a parameter of Chat Completions that has members.
pub(super) fn of_chat(name: &str) -> Option<Value> {
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

/// The schema of a parameter of the Responses API that has members.
pub(super) fn of_responses(name: &str) -> Option<Value> {
    Some(match name {
        "input" => maybe(&either(&[text(), list(&reference("InputItem"), MESSAGES_MAX)])),
        "tools" => maybe(&list(&reference("ResponseTool"), TOOLS_MAX)),
        "tool_choice" => maybe(&reference("ResponseToolChoice")),
        "text" => maybe(&reference("TextOptions")),
        "reasoning" => maybe(&reference("ReasoningOptions")),
        "stream_options" => maybe(&object(&[("include_obfuscation", flag())], &[])),
        "context_management" => {
            let threshold = json!({"type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX});
            let rule = [("type", json!({"const": "compaction"})), ("compact_threshold", threshold)];
            maybe(&list(&object(&rule, &["type"]), CONTEXT_RULES_MAX))
        }
        "conversation" => {
            let id = json!({"type": "string", "pattern": "^conv_"});
            maybe(&either(&[id.clone(), object(&[("id", id)], &["id"])]))
        }
        "podium" => maybe(&reference("PodiumOptions")),
        _ => return None,
    })
}

/// The schema of a parameter of the Messages API that has members.
pub(super) fn of_messages(name: &str) -> Option<Value> {
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

/// The schemas by their names.
pub(super) fn schemas() -> Map<String, Value> {
    let named = [
        ("ChatMessage", chat_message()),
        (
            "ChatTool",
            object(
                &[("type", json!({"const": "function"})), ("function", function())],
                &["type", "function"],
            ),
        ),
        ("ChatToolChoice", chat_tool_choice()),
        ("ResponseFormat", response_format()),
        ("InputItem", input_item()),
        ("ResponseTool", response_tool()),
        ("ResponseToolChoice", response_tool_choice()),
        (
            "TextOptions",
            object(
                &[
                    ("format", maybe(&text_format())),
                    ("verbosity", maybe(&one_of(&["low", "medium", "high"]))),
                ],
                &[],
            ),
        ),
        ("ReasoningOptions", reasoning()),
        ("MessageParam", message_param()),
        ("MessageTool", message_tool()),
        ("MessageToolChoice", message_tool_choice()),
        ("ThinkingOptions", thinking()),
        (
            "OutputOptions",
            object(
                &[
                    ("effort", maybe(&effort())),
                    ("format", maybe(&output_format())),
                    ("task_budget", nothing()),
                ],
                &[],
            ),
        ),
        ("PodiumOptions", podium()),
    ];
    named.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn any() -> Value {
    json!({})
}

/// A member that may be present only without a value.
fn nothing() -> Value {
    json!({"type": "null"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": ["boolean", "null"]})
}

fn any_object() -> Value {
    json!({"type": "object"})
}

fn one_of(names: &[&str]) -> Value {
    json!({ "enum": names })
}

fn kind(name: &str) -> (&'static str, Value) {
    ("type", json!({ "const": name }))
}

fn maybe(schema: &Value) -> Value {
    either(&[schema.clone(), json!({"type": "null"})])
}

fn maybe_text() -> Value {
    json!({"type": ["string", "null"]})
}

fn either(schemas: &[Value]) -> Value {
    json!({ "anyOf": schemas })
}

fn list(entry: &Value, max: usize) -> Value {
    json!({"type": "array", "items": entry, "maxItems": max})
}

/// A list that is not empty.
fn some(entry: &Value, max: usize) -> Value {
    json!({"type": "array", "items": entry, "minItems": 1, "maxItems": max})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An object with these members and no others.
fn object(members: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<_, _> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    super::object(&Value::Object(properties), required)
}

/// The same object with further members.
fn with(mut object: Value, more: &[(&str, Value)]) -> Value {
    if let Some(properties) = object["properties"].as_object_mut() {
        properties.extend(more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
    }
    object
}

fn integer(min: u64, max: u64) -> Value {
    json!({"type": ["integer", "null"], "minimum": min, "maximum": max})
}

fn effort() -> Value {
    one_of(&Effort::ALL.map(Effort::as_str))
}

fn stop() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": STOP_BYTES_MAX, "description": "The limit is in bytes."})
}

fn name(chars_max: usize) -> Value {
    json!({"type": "string", "pattern": format!("^[A-Za-z0-9_-]{{1,{chars_max}}}$"), "examples": ["look"]})
}

fn call_id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": CALL_ID_BYTES_MAX, "description": "The limit is in bytes."})
}

fn image_url() -> Value {
    json!({
        "type": "string",
        "pattern": format!("^({ADDRESS}|data:image/(png|jpeg|webp|gif);base64,{BASE64})$"),
        "examples": ["https://example.org/a.png"],
        "description": "An address that the worker's vendor can fetch, or the image itself.",
    })
}

fn address() -> Value {
    let pattern = format!("^{ADDRESS}$");
    json!({"type": "string", "pattern": pattern, "maxLength": ADDRESS_CHARS_MAX, "examples": ["https://example.org/a.pdf"]})
}

fn base64() -> Value {
    json!({"type": "string", "pattern": format!("^{BASE64}$"), "examples": ["JVBERi0="]})
}

fn file_data() -> Value {
    json!({
        "type": "string",
        "pattern": format!("^data:(application/pdf|text/[a-z]+|application/(json|xml|yaml|x-yaml|toml));base64,{BASE64}$"),
        "examples": ["data:application/pdf;base64,JVBERi0="],
        "description": "A PDF, or a text file in UTF-8.",
    })
}

fn file_name() -> Value {
    json!({"type": ["string", "null"], "maxLength": 500, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"})
}

/// The description of a function.
fn function() -> Value {
    object(&function_members(), &["name"])
}

fn function_members() -> [(&'static str, Value); 4] {
    [
        ("name", name(NAME_CHARS_MAX)),
        ("description", maybe_text()),
        ("parameters", maybe(&any_object())),
        ("strict", flag()),
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

/// The members of a JSON schema as a response format.
fn schema_members() -> [(&'static str, Value); 4] {
    [("name", name(NAME_CHARS_MAX)), ("description", any()), ("schema", any_object()), ("strict", flag())]
}

fn response_format() -> Value {
    let schema = object(&schema_members(), &["name", "schema"]);
    either(&[
        object(&[("type", one_of(&["text", "json_object"]))], &["type"]),
        object(&[kind("json_schema"), ("json_schema", schema)], &["type", "json_schema"]),
    ])
}

fn text_format() -> Value {
    let schema = object(&[kind("json_schema")], &["type", "name", "schema"]);
    either(&[
        object(&[("type", one_of(&["text", "json_object"]))], &["type"]),
        with(schema, &schema_members()),
    ])
}

fn reasoning() -> Value {
    let summary = maybe(&one_of(&["auto", "concise", "detailed"]));
    object(&[("effort", maybe(&effort())), ("summary", summary.clone()), ("generate_summary", summary)], &[])
}

/// The types of items that OpenAI's service made of its own tools. They are dropped.
const HOSTED_ITEMS: [&str; 5] = crate::openai::HOSTED_ITEMS;

fn input_item() -> Value {
    let hosted = json!({
        "type": "object",
        "properties": {"type": {"enum": HOSTED_ITEMS}},
        "required": ["type"],
    });
    let earlier = object(
        &[
            kind("item_reference"),
            ("id", json!({"type": "string", "examples": ["rs_01890a5dac96774bbcceb302099a8057"]})),
        ],
        &["type", "id"],
    );
    let reasoning = object(
        &[
            kind("reasoning"),
            ("id", any()),
            ("summary", maybe(&list(&any_object(), PARTS_MAX))),
            ("content", maybe(&list(&any_object(), PARTS_MAX))),
            ("encrypted_content", maybe_text()),
            ("status", any()),
        ],
        &["type"],
    );
    let compaction = object(
        &[kind("compaction"), ("id", any()), ("encrypted_content", compacted()), ("created_by", any())],
        &["type", "encrypted_content"],
    );
    let tools = list(&reference("ResponseTool"), TOOLS_MAX);
    let more_tools = object(
        &[kind("additional_tools"), ("id", any()), ("role", any()), ("tools", tools.clone())],
        &["type", "tools"],
    );
    let mut all = input_messages();
    all.extend(input_calls(&tools));
    all.extend([reasoning, earlier, compaction, more_tools, hosted]);
    either(&all)
}

/// The content of a compaction, which Podium made.
fn compacted() -> Value {
    json!({"type": "string", "examples": ["eyJwb2RpdW1fc3VtbWFyeSI6ImEifQ=="]})
}

fn input_messages() -> Vec<Value> {
    let breakpoint = ("prompt_cache_breakpoint", any());
    let input_text = object(
        &[("type", one_of(&["input_text", "text"])), ("text", text()), breakpoint.clone()],
        &["type", "text"],
    );
    let output_text = object(
        &[kind("output_text"), ("text", text()), ("annotations", any()), ("logprobs", any())],
        &["type", "text"],
    );
    let refusal = object(&[kind("refusal"), ("refusal", text())], &["type", "refusal"]);
    let asked = asked_parts(&input_text);
    let message = |roles: &[&str], part: &Value| {
        let members = [
            ("type", maybe(&json!({"const": "message"}))),
            ("id", any()),
            ("status", any()),
            ("phase", maybe(&one_of(&["commentary", "final_answer"]))),
            ("role", one_of(roles)),
            ("content", either(&[text(), list(part, PARTS_MAX)])),
        ];
        object(&members, &["role", "content"])
    };
    vec![
        message(&["user"], &asked),
        message(&["system", "developer"], &input_text),
        message(&["assistant"], &either(&[output_text, input_text.clone(), refusal])),
    ]
}

/// A part of a user's message, or of the output of a function.
fn asked_parts(input_text: &Value) -> Value {
    let breakpoint = ("prompt_cache_breakpoint", any());
    let detail = maybe(&one_of(&["auto", "low", "high", "original"]));
    let image = object(
        &[
            kind("input_image"),
            ("image_url", image_url()),
            ("detail", detail),
            ("file_id", nothing()),
            breakpoint.clone(),
        ],
        &["type", "image_url"],
    );
    let file = |data: Value, url: Value, required: &str| {
        let members = [
            kind("input_file"),
            ("filename", file_name()),
            ("file_data", data),
            ("file_url", url),
            ("file_id", nothing()),
            ("detail", any()),
            breakpoint.clone(),
        ];
        object(&members, &["type", required])
    };
    either(&[
        input_text.clone(),
        image,
        file(file_data(), nothing(), "file_data"),
        file(nothing(), address(), "file_url"),
    ])
}

fn input_calls(tools: &Value) -> Vec<Value> {
    let input_text = object(
        &[("type", one_of(&["input_text", "text"])), ("text", text()), ("prompt_cache_breakpoint", any())],
        &["type", "text"],
    );
    let output = either(&[text(), list(&asked_parts(&input_text), PARTS_MAX)]);
    let call = |name: &str, id: Value, members: &[(&str, Value)], required: &[&str]| {
        let common = [
            kind(name),
            ("id", any()),
            ("call_id", id),
            ("status", any()),
            ("created_by", any()),
            ("caller", any()),
            ("async", any()),
        ];
        with(object(&common, required), members)
    };
    let named = [("name", name(NAME_CHARS_MAX)), ("namespace", maybe(&name(NAME_CHARS_MAX)))];
    let with_text = |member: &'static str| [named.as_slice(), &[(member, text())]].concat();
    let search = [("execution", any()), ("arguments", any())];
    vec![
        call("function_call", call_id(), &with_text("arguments"), &["type", "call_id", "name", "arguments"]),
        call("custom_tool_call", call_id(), &with_text("input"), &["type", "call_id", "name", "input"]),
        call("tool_search_call", maybe(&call_id()), &search, &["type", "arguments"]),
        call(
            "function_call_output",
            call_id(),
            &[("output", output.clone())],
            &["type", "call_id", "output"],
        ),
        call("custom_tool_call_output", call_id(), &[("output", output)], &["type", "call_id", "output"]),
        call(
            "tool_search_output",
            maybe(&call_id()),
            &[("execution", any()), ("tools", tools.clone())],
            &["type", "tools"],
        ),
    ]
}

fn response_tool() -> Value {
    let service = [("defer_loading", any()), ("allowed_callers", any()), ("async", any())];
    let function = object(&[kind("function")], &["type", "name"]);
    let function = with(with(with(function, &function_members()), &service), &[("output_schema", any())]);
    let format = either(&[
        object(&[kind("text")], &["type"]),
        object(
            &[kind("grammar"), ("syntax", one_of(&["lark", "regex"])), ("definition", text())],
            &["type", "syntax", "definition"],
        ),
    ]);
    let custom = object(
        &[
            kind("custom"),
            ("name", name(NAME_CHARS_MAX)),
            ("description", maybe_text()),
            ("format", maybe(&format)),
        ],
        &["type", "name"],
    );
    let custom = with(custom, &service);
    let inner = list(&either(&[function.clone(), custom.clone()]), TOOLS_MAX);
    let namespace = object(
        &[kind("namespace"), ("name", name(NAME_CHARS_MAX)), ("description", maybe_text()), ("tools", inner)],
        &["type", "name", "tools"],
    );
    let search = object(
        &[
            kind("tool_search"),
            ("execution", json!({"const": "client"})),
            ("description", maybe_text()),
            ("parameters", maybe(&any_object())),
        ],
        &["type", "execution"],
    );
    let hosted = json!({
        "type": "object",
        "properties": {"type": {"enum": crate::openai::HOSTED_TOOLS}},
        "required": ["type"],
        "not": {"properties": {"type": {"const": "tool_search"}, "execution": {"const": "client"}}, "required": ["execution"]},
        "description": "Not offered: only OpenAI's service runs it.",
    });
    either(&[function, custom, namespace, search, hosted])
}

fn response_tool_choice() -> Value {
    let named = object(
        &[("type", one_of(&["function", "custom"])), ("name", text()), ("namespace", maybe_text())],
        &["type", "name"],
    );
    let namespace = object(&[kind("namespace"), ("name", text())], &["type", "name"]);
    let allowed = object(
        &[
            kind("allowed_tools"),
            ("mode", one_of(&["auto", "required"])),
            ("tools", some(&either(&[named.clone(), namespace]), TOOLS_MAX)),
        ],
        &["type", "mode", "tools"],
    );
    either(&[one_of(&["none", "auto", "required"]), named, allowed])
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

fn podium() -> Value {
    let ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let worker = json!({"type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,64}$", "examples": ["quick"]});
    object(
        &[
            ("steps_max", integer(1, STEPS_MAX.into())),
            ("rounds_max", integer(1, ROUNDS_MAX.into())),
            ("attempts_max", integer(1, ATTEMPTS_MAX.into())),
            ("deadline_ms", integer(1, ms(DEADLINE_MAX))),
            ("cost_max_nano_usd", integer(0, u64::MAX)),
            ("output_bytes_max", integer(1, OUTPUT_BYTES_MAX as u64)),
            ("workers_allowed", maybe(&list(&worker, podium_domain::pool::WORKERS_MAX))),
            ("fallback", maybe(&one_of(&PoolRule::ALL.map(PoolRule::as_str)))),
            ("broken_answer", maybe(&one_of(&BrokenAnswer::ALL.map(BrokenAnswer::as_str)))),
            ("failed_step", maybe(&one_of(&FailedStep::ALL.map(FailedStep::as_str)))),
            ("step_cache", maybe(&one_of(&["off", "exact"]))),
            ("tools", maybe(&one_of(&StepTools::ALL.map(StepTools::as_str)))),
            ("turns_max", integer(1, TURNS_MAX.into())),
            ("suspended_ms_max", integer(ms(SUSPENDED_MIN), ms(SUSPENDED_MAX))),
        ],
        &[],
    )
}
