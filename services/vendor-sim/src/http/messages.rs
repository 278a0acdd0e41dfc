//! Anthropic Messages: requests, whole messages, streams of events, errors.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::{
    ask::{
        Ask, Choice, Delivery, Form, PDF, Reasoning, Tools, Turn, body_fields, flag, given, image_text,
        is_base64, list, missing, pdf_text, stops, text, tokens, tool, within, wrong_type,
    },
    completion::{Call, Completion, End},
    error::ApiError,
    format::named,
};

/// The parameters of the API. Those that the programs do not use are accepted and ignored.
const PARAMETERS: &[&str] = &[
    "cache_control",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];
const STOPS_MAX: usize = 8_191;
/// The smallest thinking budget.
const BUDGET_TOKENS_MIN: u64 = 1_024;
/// Proves that thinking was written by this simulator.
const SIGNATURE: &str = "c2ltdWxhdGVk";
/// The status of an overloaded service, which has no constant.
const OVERLOADED: u16 = 529;

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 2023-06-01.
    First,
    /// 2026-10-21, without sampling parameters.
    WithoutSampling,
}

/// The requested version; the header is required.
pub(super) fn version(headers: &HeaderMap) -> Result<Version, ApiError> {
    match headers.get("anthropic-version").map(HeaderValue::as_bytes) {
        Some(b"2023-06-01") => Ok(Version::First),
        Some(b"2026-10-21") => Ok(Version::WithoutSampling),
        Some(_) => Err(ApiError::invalid_body("anthropic-version: is not a valid version")),
        None => Err(ApiError::invalid_body("anthropic-version: header is required")),
    }
}

/// Parses the body of a request.
pub(super) fn parse(body: &[u8], version: Version) -> Result<Ask, ApiError> {
    let fields = body_fields(body)?;
    let is_known = |name: &str| {
        let is_sampling = matches!(name, "temperature" | "top_k" | "top_p");
        PARAMETERS.contains(&name) && !(is_sampling && version == Version::WithoutSampling)
    };
    if let Some(unknown) = fields.keys().find(|name| !is_known(name)) {
        return Err(ApiError::invalid_body(format!("{unknown}: Extra inputs are not permitted")));
    }
    within(&fields, "temperature", 0.0, 1.0)?;
    within(&fields, "top_p", 0.0, 1.0)?;
    let tokens_max = tokens(&fields, "max_tokens")?.ok_or_else(|| missing("max_tokens"))?;
    let mut turns = Vec::new();
    if let Some(system) = given(&fields, "system") {
        turns.push(Turn::new("system", blocks(system, "system")?.words));
    }
    for (index, message) in list(&fields, "messages")?.iter().enumerate() {
        turns.extend(message_turns(message, &format!("messages.{index}"))?);
    }
    Ok(Ask {
        model: text(&fields, "model")?,
        turns,
        delivery: if flag(&fields, "stream")? { Delivery::Stream } else { Delivery::Whole },
        tokens_max: Some(tokens_max),
        stops: stops(&fields, "stop_sequences", STOPS_MAX)?,
        tools: tools(&fields)?,
        form: form(&fields)?,
        reasoning: thinking(&fields, tokens_max)?,
        seed: None,
    })
}

/// The content of blocks, with tool results separate.
#[derive(Debug, Default)]
struct Content {
    words: String,
    results: Vec<String>,
}

fn message_turns(message: &Value, path: &str) -> Result<Vec<Turn>, ApiError> {
    let role = match message.get("role").and_then(Value::as_str) {
        Some(role @ ("user" | "assistant")) => role,
        Some(role) => {
            let message = format!("{path}.role: unexpected value '{role}'; use 'user' or 'assistant'");
            return Err(ApiError::invalid_body(message));
        }
        None => return Err(missing(&format!("{path}.role"))),
    };
    let path = format!("{path}.content");
    let parsed = blocks(message.get("content").ok_or_else(|| missing(&path))?, &path)?;
    let mut turns: Vec<_> = parsed.results.into_iter().map(|result| Turn::new("tool", result)).collect();
    if turns.is_empty() || !parsed.words.is_empty() {
        turns.push(Turn::new(role, parsed.words));
    }
    Ok(turns)
}

fn blocks(content: &Value, path: &str) -> Result<Content, ApiError> {
    let mut parsed = Content::default();
    match content {
        Value::String(text) => text.clone_into(&mut parsed.words),
        Value::Array(list) => {
            for (index, block) in list.iter().enumerate() {
                read_block(block, &format!("{path}.{index}"), &mut parsed)?;
            }
        }
        _ => return Err(wrong_type(path, "a string or an array")),
    }
    Ok(parsed)
}

fn read_block(block: &Value, path: &str, parsed: &mut Content) -> Result<(), ApiError> {
    let field = |name: &str| {
        let value = block.get(name).and_then(Value::as_str);
        value.ok_or_else(|| ApiError::invalid_body(format!("{path}.{name}: Field required")))
    };
    match block.get("type").and_then(Value::as_str) {
        Some("text") if field("text")?.trim().is_empty() => {
            return Err(ApiError::invalid_body(format!(
                "{path}: text content blocks must contain non-whitespace text"
            )));
        }
        Some("text") => parsed.words.push_str(field("text")?),
        Some("image") => {
            let source = block.get("source").unwrap_or(&Value::Null);
            let where_it_is = source.get("url").or_else(|| source.get("media_type")).and_then(Value::as_str);
            let lacks = || ApiError::invalid_body(format!("{path}.source: Field required"));
            parsed.words.push_str(&image_text(where_it_is.ok_or_else(lacks)?));
        }
        Some("document") => {
            let source = block.get("source").unwrap_or(&Value::Null);
            let of = |name: &str| source.get(name).and_then(Value::as_str);
            let title = block.get("title").and_then(Value::as_str);
            let invalid = |what: &str| Err(ApiError::invalid_body(format!("{path}.document.source.{what}")));
            match (of("type"), of("media_type"), of("data"), of("url")) {
                (Some("url"), _, _, Some(url)) => parsed.words.push_str(&pdf_text(title, url)),
                (Some("base64"), Some(PDF), Some(data), _) if is_base64(data) => {
                    parsed.words.push_str(&pdf_text(title, &format!("{PDF} {data}")));
                }
                (Some("base64"), Some(PDF), _, _) => {
                    return invalid("base64.data: The PDF specified was not valid.");
                }
                (Some("base64"), _, _, _) => {
                    return invalid("base64.media_type: Input should be 'application/pdf'");
                }
                _ => return invalid("type: Input should be 'base64' or 'url'"),
            }
        }
        Some("tool_use") if block.get("input").is_some_and(Value::is_object) => {
            field("id")?;
            parsed.words.push_str(field("name")?);
        }
        Some("tool_result") => {
            field("tool_use_id")?;
            let content = block.get("content").unwrap_or(&Value::Null);
            let inner = if content.is_null() { Content::default() } else { blocks(content, path)? };
            parsed.results.push(inner.words);
        }
        Some("thinking") if field("signature")? != SIGNATURE => {
            return Err(ApiError::invalid_body(format!("{path}: Invalid `signature` in `thinking` block")));
        }
        Some("thinking" | "redacted_thinking") => {}
        _ => return Err(ApiError::invalid_body(format!("{path}: Input does not match the expected shape"))),
    }
    Ok(())
}

fn tools(fields: &Map<String, Value>) -> Result<Tools, ApiError> {
    let listed = match given(fields, "tools") {
        None => return Ok(Tools::default()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(wrong_type("tools", "an array")),
    };
    let read = |(index, body): (usize, &Value)| {
        let path = format!("tools.{index}");
        if body.get("input_schema").is_none() {
            return Err(missing(&format!("{path}.input_schema")));
        }
        tool(body, "input_schema", &path)
    };
    let choice = given(fields, "tool_choice").unwrap_or(&Value::Null);
    let named = choice.get("name").and_then(Value::as_str);
    let one_at_a_time = choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true));
    Ok(Tools {
        offered: listed.iter().enumerate().map(read).collect::<Result<_, _>>()?,
        choice: match (choice.get("type").and_then(Value::as_str), named) {
            (None | Some("auto"), _) => Choice::Auto,
            (Some("none"), _) => Choice::Never,
            (Some("any"), _) => Choice::Required,
            (Some("tool"), Some(name)) => Choice::Named(name.to_owned()),
            _ => return Err(wrong_type("tool_choice", "auto, any, none or a tool")),
        },
        calls_max: if one_at_a_time { 1 } else { usize::MAX },
    })
}

fn form(fields: &Map<String, Value>) -> Result<Form, ApiError> {
    let format = given(fields, "output_config").and_then(|config| config.get("format"));
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(Form::Text) };
    match (format.get("type").and_then(Value::as_str), format.get("schema")) {
        (Some("json_schema"), Some(schema)) => Ok(Form::Schema(schema.clone())),
        _ => Err(wrong_type("output_config.format", "a json_schema")),
    }
}

fn thinking(fields: &Map<String, Value>, tokens_max: usize) -> Result<Reasoning, ApiError> {
    let Some(thinking) = given(fields, "thinking") else { return Ok(Reasoning::Hidden) };
    match thinking.get("type").and_then(Value::as_str) {
        Some("disabled") => return Ok(Reasoning::Hidden),
        Some("adaptive") => {}
        Some("enabled") => {
            let budget = thinking.get("budget_tokens").and_then(Value::as_u64).unwrap_or(0);
            if budget < BUDGET_TOKENS_MIN {
                let message = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024";
                return Err(ApiError::invalid_body(message));
            }
            if budget >= tokens_max as u64 {
                return Err(ApiError::invalid_body(
                    "`max_tokens` must be greater than `thinking.budget_tokens`.",
                ));
            }
        }
        _ => return Err(wrong_type("thinking", "enabled, adaptive or disabled")),
    }
    if given(fields, "temperature").and_then(Value::as_f64).is_some_and(|temperature| temperature < 1.0) {
        let message = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.";
        return Err(ApiError::invalid_body(message));
    }
    Ok(Reasoning::Shown)
}

/// The body of an unstreamed answer.
pub(super) fn whole(completion: &Completion) -> Value {
    let mut message = envelope(completion);
    message["content"] = Value::Array(content(completion));
    message["stop_reason"] = json!(stop_reason(completion.end));
    message["stop_sequence"] = json!(completion.stop_sequence());
    message["usage"] = usage(completion, completion.completion_tokens());
    message
}

/// The events of a stream.
pub(super) fn frames(completion: &Completion) -> Vec<String> {
    let mut head = envelope(completion);
    head["usage"] = usage(completion, 1);
    let mut events = vec![json!({ "type": "message_start", "message": head }), json!({ "type": "ping" })];
    let mut calls = completion.calls.iter();
    for (index, block) in content(completion).into_iter().enumerate() {
        let delta = |delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        let mut start = block.clone();
        let deltas: Vec<_> = match block["type"].as_str() {
            Some("thinking") => {
                start["thinking"] = json!("");
                start["signature"] = json!("");
                let pieces = completion.reasoning.iter();
                let thoughts = pieces.map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
                thoughts.chain([json!({ "type": "signature_delta", "signature": SIGNATURE })]).collect()
            }
            Some("text") => {
                start["text"] = json!("");
                let pieces = completion.pieces.iter();
                pieces.map(|piece| json!({ "type": "text_delta", "text": piece })).collect()
            }
            _ => {
                start["input"] = json!({});
                let pieces = calls.next().map(Call::pieces).unwrap_or_default();
                let pieces = std::iter::once("").chain(pieces);
                pieces.map(|json| json!({ "type": "input_json_delta", "partial_json": json })).collect()
            }
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop_reason(completion.end), "stop_sequence": completion.stop_sequence() },
        "usage": { "output_tokens": completion.completion_tokens() },
    }));
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(named).collect()
}

fn content(completion: &Completion) -> Vec<Value> {
    let mut content = Vec::new();
    if !completion.reasoning.is_empty() {
        let thinking = completion.reasoning.concat();
        content.push(json!({ "type": "thinking", "thinking": thinking, "signature": SIGNATURE }));
    }
    if !completion.pieces.is_empty() {
        content.push(json!({ "type": "text", "text": completion.text(), "citations": null }));
    }
    content.extend(completion.calls.iter().enumerate().map(|(index, call)| {
        let id = format!("toolu_{:016x}_{index}", completion.draw);
        json!({ "type": "tool_use", "id": id, "name": call.name, "input": call.json() })
    }));
    content
}

fn envelope(completion: &Completion) -> Value {
    json!({
        "id": format!("msg_{:016x}", completion.draw), "type": "message", "role": "assistant",
        "model": completion.model, "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn stop_reason(end: End) -> &'static str {
    match end {
        End::Stop => "end_turn",
        End::StopSequence(_) => "stop_sequence",
        End::Length => "max_tokens",
        End::ToolCalls => "tool_use",
        End::Declined => "refusal",
    }
}

fn usage(completion: &Completion, output_tokens: usize) -> Value {
    json!({
        "input_tokens": completion.prompt_tokens - completion.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": completion.cached_tokens,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    })
}

/// Status and body of an error.
pub(super) fn error(error: &ApiError) -> (StatusCode, Value) {
    let (status, kind) = match error.status.as_u16() {
        401 => (error.status, "authentication_error"),
        402 => (error.status, "billing_error"),
        404 => (error.status, "not_found_error"),
        413 => (error.status, "request_too_large"),
        429 => (error.status, "rate_limit_error"),
        503 => (StatusCode::from_u16(OVERLOADED).unwrap_or(error.status), "overloaded_error"),
        500.. => (error.status, "api_error"),
        _ => (error.status, "invalid_request_error"),
    };
    (status, json!({ "type": "error", "error": { "type": kind, "message": error.message } }))
}
