//! Checks responses and events against the types that clients expect, written anew from the published schema.

use serde_json::{Map, Value};

/// An event of a stream.
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: Value,
}

/// The events of a stream, each checked. Their numbers have no gaps.
pub(super) fn events(body: &str) -> Vec<Event> {
    let mut events = Vec::new();
    for block in body.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let line = |prefix: &str| block.lines().find_map(|line| line.trim().strip_prefix(prefix));
        let Some(data) = line("data: ").filter(|data| *data != "[DONE]") else { continue };
        let data: Value = serde_json::from_str(data).unwrap_or_else(|_| panic!("no JSON: {data}"));
        let name = line("event: ").unwrap_or_else(|| panic!("no name: {block}")).to_owned();
        assert_eq!(data["type"], name.as_str());
        check_event(&name, &data);
        events.push(Event { name, data });
    }
    let first = events.first().map_or(0, |event| event.data["sequence_number"].as_u64().unwrap());
    for (number, event) in (first..).zip(&events) {
        assert_eq!(event.data["sequence_number"], number, "{}", event.name);
    }
    events
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}"))
}

fn has(value: &Value, name: &str, is_valid: impl Fn(&Value) -> bool) {
    let member = object(value).get(name).unwrap_or_else(|| panic!("`{name}` is missing: {value}"));
    assert!(is_valid(member), "`{name}` is invalid: {member}");
}

fn is_string_or_null(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

fn is_integer_or_null(value: &Value) -> bool {
    value.is_u64() || value.is_null()
}

fn is_one_of<'n>(names: &'n [&'n str]) -> impl Fn(&Value) -> bool + 'n {
    move |value| value.as_str().is_some_and(|name| names.contains(&name))
}

const STATUSES: [&str; 6] = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"];
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Checks a response object.
pub(super) fn check_response(response: &Value) {
    has(response, "id", |id| id.as_str().is_some_and(|id| id.starts_with("resp_")));
    has(response, "object", |object| object == "response");
    has(response, "status", is_one_of(&STATUSES));
    has(response, "created_at", Value::is_u64);
    has(response, "completed_at", is_integer_or_null);
    has(response, "model", Value::is_string);
    for name in ["previous_response_id", "instructions", "user", "safety_identifier", "prompt_cache_key"] {
        has(response, name, is_string_or_null);
    }
    for name in ["max_output_tokens", "max_tool_calls"] {
        has(response, name, is_integer_or_null);
    }
    for name in ["temperature", "top_p", "presence_penalty", "frequency_penalty"] {
        has(response, name, Value::is_number);
    }
    for name in ["parallel_tool_calls", "store", "background"] {
        has(response, name, Value::is_boolean);
    }
    has(response, "top_logprobs", Value::is_u64);
    has(response, "tools", Value::is_array);
    has(response, "tool_choice", |choice| choice.is_string() || choice.is_object());
    has(response, "truncation", is_one_of(&["auto", "disabled"]));
    has(response, "service_tier", Value::is_string);
    has(response, "metadata", |metadata| object(metadata).values().all(Value::is_string));
    has(&response["text"]["format"], "type", is_one_of(&["text", "json_object", "json_schema"]));
    has(&response["text"], "verbosity", is_one_of(&["low", "medium", "high"]));
    has(&response["reasoning"], "effort", is_one_of(&EFFORTS));
    has(&response["reasoning"], "summary", is_string_or_null);
    has(response, "error", |error| {
        error.is_null() || (error["code"].is_string() && error["message"].is_string())
    });
    has(response, "incomplete_details", |details| details.is_null() || details["reason"].is_string());
    has(response, "usage", |usage| {
        usage.is_null()
            || (["input_tokens", "output_tokens", "total_tokens"].iter().all(|name| usage[name].is_u64())
                && usage["input_tokens_details"]["cached_tokens"].is_u64()
                && usage["output_tokens_details"]["reasoning_tokens"].is_u64())
    });
    has(response, "output", Value::is_array);
    response["output"].as_array().unwrap().iter().for_each(check_item);
}

/// Checks an item.
pub(super) fn check_item(item: &Value) {
    let prefix = match item["type"].as_str() {
        Some("message") => "msg_",
        Some("function_call") => "fc_",
        Some("function_call_output") => "fco_",
        Some("reasoning") => {
            has(item, "id", |id| id.as_str().is_some_and(|id| id.starts_with("rs_")));
            has(item, "summary", Value::is_array);
            return assert!(item.get("encrypted_content").is_none_or(Value::is_string), "{item}");
        }
        Some("custom_tool_call") => "ctc_",
        Some("custom_tool_call_output") => "ctco_",
        other => panic!("unknown item {other:?}"),
    };
    has(item, "id", |id| id.as_str().is_some_and(|id| id.starts_with(prefix) && id.len() <= 64));
    has(item, "status", is_one_of(&["in_progress", "completed", "incomplete"]));
    if prefix == "msg_" {
        has(item, "role", is_one_of(&["user", "assistant", "system", "developer"]));
        has(item, "content", Value::is_array);
        item["content"].as_array().unwrap().iter().for_each(check_part);
        return;
    }
    has(item, "call_id", Value::is_string);
    if matches!(prefix, "fc_" | "ctc_") {
        has(item, "name", Value::is_string);
        has(item, if prefix == "fc_" { "arguments" } else { "input" }, Value::is_string);
    } else {
        has(item, "output", |output| output.is_string() || output.is_array());
        item["output"].as_array().into_iter().flatten().for_each(check_part);
    }
}

fn check_part(part: &Value) {
    match part["type"].as_str() {
        Some("input_text") => has(part, "text", Value::is_string),
        Some("input_image") => {
            has(part, "image_url", Value::is_string);
            has(part, "detail", is_one_of(&["auto", "low", "high"]));
        }
        Some("output_text") => {
            has(part, "text", Value::is_string);
            has(part, "annotations", Value::is_array);
            has(part, "logprobs", Value::is_array);
        }
        Some("refusal") => has(part, "refusal", Value::is_string),
        other => panic!("unknown part {other:?}"),
    }
}

/// Checks an event.
pub(super) fn check_event(name: &str, data: &Value) {
    has(data, "sequence_number", Value::is_u64);
    let place = |names: &[&str]| {
        for name in names {
            has(data, name, Value::is_u64);
        }
    };
    match name {
        "response.created"
        | "response.in_progress"
        | "response.completed"
        | "response.incomplete"
        | "response.failed" => check_response(&data["response"]),
        "response.output_item.added" | "response.output_item.done" => {
            place(&["output_index"]);
            check_item(&data["item"]);
        }
        "response.content_part.added" | "response.content_part.done" => {
            place(&["output_index", "content_index"]);
            has(data, "item_id", Value::is_string);
            check_part(&data["part"]);
        }
        "response.output_text.delta" | "response.output_text.done" => {
            place(&["output_index", "content_index"]);
            has(data, "item_id", Value::is_string);
            has(data, "logprobs", Value::is_array);
            has(data, if name.ends_with("delta") { "delta" } else { "text" }, Value::is_string);
        }
        "response.custom_tool_call_input.done" => {
            place(&["output_index"]);
            has(data, "item_id", Value::is_string);
            has(data, "input", Value::is_string);
        }
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
            place(&["output_index"]);
            has(data, "item_id", Value::is_string);
            has(data, "delta", Value::is_string);
        }
        "response.function_call_arguments.done" => {
            place(&["output_index"]);
            for name in ["item_id", "name", "arguments"] {
                has(data, name, Value::is_string);
            }
        }
        "response.refusal.done" => {
            place(&["output_index", "content_index"]);
            has(data, "refusal", Value::is_string);
        }
        "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {
            place(&["output_index", "summary_index"]);
            has(data, "item_id", Value::is_string);
            has(data, "part", |part| part["type"] == "summary_text" && part["text"].is_string());
        }
        "response.reasoning_summary_text.delta" | "response.reasoning_summary_text.done" => {
            place(&["output_index", "summary_index"]);
            has(data, "item_id", Value::is_string);
            has(data, if name.ends_with("delta") { "delta" } else { "text" }, Value::is_string);
        }
        "error" => {
            has(data, "code", Value::is_string);
            has(data, "message", Value::is_string);
            has(data, "param", is_string_or_null);
        }
        other => panic!("unknown event {other}"),
    }
}
