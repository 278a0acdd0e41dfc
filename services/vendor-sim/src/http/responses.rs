//! OpenAI Responses: requests, whole responses, streams of events.

use serde_json::{Map, Value, json};

use super::{
    ask::{
        Ask, Choice, Delivery, Form, Reasoning, Tools, Turn, body_fields, flag, given, image_text,
        is_pdf_data_url, missing, pdf_text, text, tokens, tool, within, wrong_type,
    },
    completion::{Call, Completion, End},
    error::ApiError,
    format::named,
};

/// The parameters of the API. Those that the programs do not use are accepted and ignored.
const PARAMETERS: &[&str] = &[
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Parses the body of a request.
pub(super) fn parse(body: &[u8]) -> Result<Ask, ApiError> {
    let fields = body_fields(body)?;
    if let Some(unknown) = fields.keys().find(|name| !PARAMETERS.contains(&name.as_str())) {
        return Err(ApiError::invalid(unknown, format!("Unknown parameter: '{unknown}'.")));
    }
    within(&fields, "temperature", 0.0, 2.0)?;
    within(&fields, "top_p", 0.0, 1.0)?;
    let summary = given(&fields, "reasoning").and_then(|reasoning| reasoning.get("summary"));
    Ok(Ask {
        model: text(&fields, "model")?,
        turns: turns(&fields)?,
        delivery: if flag(&fields, "stream")? { Delivery::Stream } else { Delivery::Whole },
        tokens_max: tokens(&fields, "max_output_tokens")?,
        stops: Vec::new(),
        tools: tools(&fields)?,
        form: form(&fields)?,
        reasoning: if summary.is_some_and(Value::is_string) { Reasoning::Shown } else { Reasoning::Hidden },
        seed: None,
    })
}

fn turns(fields: &Map<String, Value>) -> Result<Vec<Turn>, ApiError> {
    let mut turns = Vec::new();
    if let Some(instructions) = given(fields, "instructions").and_then(Value::as_str) {
        turns.push(Turn::new("system", instructions));
    }
    match given(fields, "input") {
        None => return Err(missing("input")),
        Some(Value::String(question)) => turns.push(Turn::new("user", question)),
        Some(Value::Array(items)) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                turns.extend(turn(item, &format!("input[{index}]"))?);
            }
        }
        Some(_) => return Err(wrong_type("input", "a string or an array with something in it")),
    }
    Ok(turns)
}

fn turn(item: &Value, path: &str) -> Result<Option<Turn>, ApiError> {
    let lacks = |name: &str| missing(&format!("{path}.{name}"));
    let string = |name: &str| item.get(name).and_then(Value::as_str).ok_or_else(|| lacks(name));
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let content = item.get("content").ok_or_else(|| lacks("content"))?;
            Ok(Some(Turn::new(string("role")?, words(content, path)?)))
        }
        "function_call" => {
            string("call_id")?;
            Ok(Some(Turn::new("assistant", format!("{}({})", string("name")?, string("arguments")?))))
        }
        "function_call_output" => {
            string("call_id")?;
            let output = item.get("output").ok_or_else(|| lacks("output"))?;
            Ok(Some(Turn::new("tool", words(output, path)?)))
        }
        "reasoning" => string("id").map(|_| None),
        kind => Err(ApiError::invalid(path, format!("Invalid value: '{kind}'."))),
    }
}

fn words(content: &Value, path: &str) -> Result<String, ApiError> {
    let part = |part: &Value| {
        let field = |name: &str| {
            let text = part.get(name).and_then(Value::as_str);
            text.ok_or_else(|| missing(&format!("{path}.content.{name}")))
        };
        match part.get("type").and_then(Value::as_str) {
            Some("input_text" | "output_text") => field("text").map(str::to_owned),
            Some("refusal") => field("refusal").map(str::to_owned),
            Some("input_image") => field("image_url").map(image_text),
            Some("input_file") if part.get("file_url").is_some() => {
                field("file_url").map(|url| pdf_text(None, url))
            }
            Some("input_file") => {
                let (name, data) = (field("filename")?, field("file_data")?);
                if !is_pdf_data_url(data) {
                    let message = "Invalid file data: expected a base64-encoded data URL with an application/pdf MIME type.";
                    return Err(ApiError::invalid(&format!("{path}.content.file_data"), message));
                }
                Ok(pdf_text(Some(name), data))
            }
            _ => Err(ApiError::invalid(path, "Invalid value for the type of a content part.")),
        }
    };
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Err(wrong_type(&format!("{path}.content"), "a string or an array")),
    }
}

fn tools(fields: &Map<String, Value>) -> Result<Tools, ApiError> {
    let listed = match given(fields, "tools") {
        None => return Ok(Tools::default()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(wrong_type("tools", "an array")),
    };
    let read = |(index, body): (usize, &Value)| match body.get("type").and_then(Value::as_str) {
        Some("function") => tool(body, "parameters", &format!("tools[{index}]")),
        _ => Err(ApiError::invalid("tools", "Only tools of type 'function' are simulated.")),
    };
    let choice = match given(fields, "tool_choice") {
        None => Choice::Auto,
        Some(Value::String(word)) if word == "auto" => Choice::Auto,
        Some(Value::String(word)) if word == "none" => Choice::Never,
        Some(Value::String(word)) if word == "required" => Choice::Required,
        Some(choice) => match choice.get("name").and_then(Value::as_str) {
            Some(name) => Choice::Named(name.to_owned()),
            None => return Err(wrong_type("tool_choice", "none, auto, required or a function")),
        },
    };
    let one_at_a_time = given(fields, "parallel_tool_calls") == Some(&Value::Bool(false));
    Ok(Tools {
        offered: listed.iter().enumerate().map(read).collect::<Result<_, _>>()?,
        choice,
        calls_max: if one_at_a_time { 1 } else { usize::MAX },
    })
}

fn form(fields: &Map<String, Value>) -> Result<Form, ApiError> {
    let Some(format) = given(fields, "text").and_then(|text| text.get("format")) else {
        return Ok(Form::Text);
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Form::Text),
        Some("json_object") => Ok(Form::Object),
        Some("json_schema") => {
            format.get("schema").cloned().map(Form::Schema).ok_or_else(|| missing("text.format.schema"))
        }
        _ => Err(wrong_type("text.format.type", "text, json_object or json_schema")),
    }
}

/// The body of an unstreamed answer.
pub(super) fn whole(completion: &Completion) -> Value {
    let (status, details) = match completion.end {
        End::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
        End::Stop | End::StopSequence(_) | End::ToolCalls | End::Declined => ("completed", Value::Null),
    };
    let mut response = envelope(completion, status);
    response["incomplete_details"] = details;
    response["output"] = Value::Array(items(completion));
    response["usage"] = usage(completion);
    response
}

/// The events of a stream.
pub(super) fn frames(completion: &Completion) -> Vec<String> {
    let begun = envelope(completion, "in_progress");
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
    ];
    let mut calls = completion.calls.iter();
    for (index, item) in items(completion).into_iter().enumerate() {
        events.push(
            json!({ "type": "response.output_item.added", "output_index": index, "item": begin(&item) }),
        );
        match item["type"].as_str() {
            Some("reasoning") => summary_events(&mut events, index, &item, completion),
            Some("message") => text_events(&mut events, index, &item, completion),
            _ => call_events(&mut events, index, &item, calls.next()),
        }
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    let last = whole(completion);
    let kind = if completion.end == End::Length { "response.incomplete" } else { "response.completed" };
    events.push(json!({ "type": kind, "response": last }));
    let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
        event["sequence_number"] = json!(number);
        named(&event)
    });
    numbered.collect()
}

/// An item before its content.
fn begin(item: &Value) -> Value {
    let mut item = item.clone();
    item["status"] = json!("in_progress");
    for (name, empty) in [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))] {
        if item.get(name).is_some() {
            item[name] = empty;
        }
    }
    item
}

fn summary_events(events: &mut Vec<Value>, index: usize, item: &Value, completion: &Completion) {
    let event = |kind: &str| {
        let kind = format!("response.reasoning_summary_{kind}");
        json!({ "type": kind, "item_id": item["id"], "output_index": index, "summary_index": 0 })
    };
    let with = |kind: &str, name: &str, value: Value| {
        let mut event = event(kind);
        event[name] = value;
        event
    };
    let text = completion.reasoning.concat();
    events.push(with("part.added", "part", json!({ "type": "summary_text", "text": "" })));
    events.extend(completion.reasoning.iter().map(|piece| with("text.delta", "delta", json!(piece))));
    events.push(with("text.done", "text", json!(text)));
    events.push(with("part.done", "part", json!({ "type": "summary_text", "text": text })));
}

fn text_events(events: &mut Vec<Value>, index: usize, item: &Value, completion: &Completion) {
    let with = |kind: &str, name: &str, value: Value| {
        let kind = format!("response.{kind}");
        let mut event =
            json!({ "type": kind, "item_id": item["id"], "output_index": index, "content_index": 0 });
        event[name] = value;
        if kind.contains("output_text") {
            event["logprobs"] = json!([]);
        }
        event
    };
    let declines = completion.end == End::Declined;
    let part = |text: String| {
        if declines {
            json!({ "type": "refusal", "refusal": text })
        } else {
            json!({ "type": "output_text", "text": text, "annotations": [] })
        }
    };
    let (kind, member) = if declines { ("refusal", "refusal") } else { ("output_text", "text") };
    let delta = format!("{kind}.delta");
    events.push(with("content_part.added", "part", part(String::new())));
    events.extend(completion.pieces.iter().map(|piece| with(&delta, "delta", json!(piece))));
    events.push(with(&format!("{kind}.done"), member, json!(completion.text())));
    events.push(with("content_part.done", "part", part(completion.text())));
}

fn call_events(events: &mut Vec<Value>, index: usize, item: &Value, call: Option<&Call>) {
    let head = |kind: &str| json!({ "type": kind, "item_id": item["id"], "output_index": index });
    for piece in call.map(Call::pieces).unwrap_or_default() {
        let mut delta = head("response.function_call_arguments.delta");
        delta["delta"] = json!(piece);
        events.push(delta);
    }
    let mut done = head("response.function_call_arguments.done");
    done["arguments"] = item["arguments"].clone();
    done["name"] = item["name"].clone();
    events.push(done);
}

fn items(completion: &Completion) -> Vec<Value> {
    let draw = completion.draw;
    let mut items = Vec::new();
    if !completion.reasoning.is_empty() {
        let summary = [json!({ "type": "summary_text", "text": completion.reasoning.concat() })];
        items.push(json!({
            "type": "reasoning", "id": format!("rs_{draw:016x}"), "summary": summary,
            "encrypted_content": "c2ltdWxhdGVk",
        }));
    }
    if completion.calls.is_empty() || !completion.pieces.is_empty() {
        let content = match completion.end {
            End::Declined => json!({ "type": "refusal", "refusal": completion.text() }),
            _ => {
                json!({ "type": "output_text", "text": completion.text(), "annotations": [], "logprobs": [] })
            }
        };
        items.push(json!({
            "type": "message", "id": format!("msg_{draw:016x}"), "role": "assistant",
            "status": if completion.end == End::Length { "incomplete" } else { "completed" },
            "content": [content],
        }));
    }
    items.extend(completion.calls.iter().enumerate().map(|(index, call)| {
        json!({
            "type": "function_call", "id": format!("fc_{draw:016x}_{index}"), "status": "completed",
            "call_id": format!("call_{draw:016x}_{index}"), "name": call.name,
            "arguments": call.arguments,
        })
    }));
    items
}

fn envelope(completion: &Completion, status: &str) -> Value {
    json!({
        "id": format!("resp_{:016x}", completion.draw), "object": "response",
        "created_at": completion.created, "status": status, "model": completion.model,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "output": [], "parallel_tool_calls": true, "temperature": null, "top_p": null,
        "tool_choice": "auto", "tools": [], "usage": null,
    })
}

fn usage(completion: &Completion) -> Value {
    let output = completion.completion_tokens();
    json!({
        "input_tokens": completion.prompt_tokens,
        "input_tokens_details": { "cached_tokens": completion.cached_tokens },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": completion.reasoning_tokens() },
        "total_tokens": completion.prompt_tokens + output,
    })
}
