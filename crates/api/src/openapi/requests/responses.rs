//! The schemas of request parameters of the Responses API.

use podium_domain::conversation::{MESSAGES_MAX, PARTS_MAX};
use podium_domain::tools::TOOLS_MAX;
use serde_json::{Value, json};

use crate::openai::CONTEXT_RULES_MAX;

use super::forms::{
    NAME_CHARS_MAX, address, any, any_object, call_id, effort, either, file_data, file_name, flag,
    function_members, image_url, kind, list, maybe, maybe_text, name, nothing, object, one_of, reference,
    schema_members, some, text, with,
};

/// The schema of a parameter of the Responses API that has members.
pub(in crate::openapi) fn of_responses(name: &str) -> Option<Value> {
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

/// The schemas of the Responses API by their names.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let verbosity = maybe(&one_of(&["low", "medium", "high"]));
    vec![
        ("InputItem", input_item()),
        ("ResponseTool", response_tool()),
        ("ResponseToolChoice", response_tool_choice()),
        ("TextOptions", object(&[("format", maybe(&text_format())), ("verbosity", verbosity)], &[])),
        ("ReasoningOptions", reasoning()),
    ]
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
