//! Google Gemini: requests, whole responses, streams of chunks, errors.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    ask::{
        Ask, Choice, Delivery, Form, PDF, Reasoning, Tools, Turn, body_fields, given, image_text, is_base64,
        list, missing, pdf_text, seed, stops, tokens, tool, within, wrong_type,
    },
    completion::{Completion, End},
    error::ApiError,
    format::unnamed,
};

/// The parameters of the API. Those that the programs do not use are accepted and ignored.
const PARAMETERS: &[&str] = &[
    "cachedContent",
    "contents",
    "generationConfig",
    "labels",
    "safetySettings",
    "systemInstruction",
    "toolConfig",
    "tools",
];
const SETTINGS: &[&str] = &[
    "candidateCount",
    "frequencyPenalty",
    "maxOutputTokens",
    "mediaResolution",
    "presencePenalty",
    "responseJsonSchema",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "seed",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];
/// Fields whose members are named by users.
const OF_USERS: &[&str] = &[
    "args",
    "labels",
    "parameters",
    "parametersJsonSchema",
    "response",
    "responseJsonSchema",
    "responseSchema",
];
const STOPS_MAX: usize = 5;
/// The signature that accompanies a call, for the reasoning before it.
const SIGNATURE: &str = "c2ltdWxhdGVk";

/// Model and method from the last part of a path, such as `sim-echo:generateContent`.
pub(super) fn action(segment: &str) -> Option<(&str, Delivery)> {
    match segment.rsplit_once(':')? {
        (model, "generateContent") => Some((model, Delivery::Whole)),
        (model, "streamGenerateContent") => Some((model, Delivery::Stream)),
        _ => None,
    }
}

/// Parses the body of a request.
pub(super) fn parse(body: &[u8], model: &str, delivery: Delivery) -> Result<Ask, ApiError> {
    let fields = camel_fields(body_fields(body)?);
    refuse_unknown(&fields, PARAMETERS, "")?;
    let none = Map::new();
    let settings = given(&fields, "generationConfig").and_then(Value::as_object).unwrap_or(&none);
    refuse_unknown(settings, SETTINGS, " at 'generation_config'")?;
    within(settings, "temperature", 0.0, 2.0)?;
    within(settings, "topP", 0.0, 1.0)?;
    within(settings, "seed", f64::from(i32::MIN), f64::from(i32::MAX))?;
    let mut turns = Vec::new();
    if let Some(system) = given(&fields, "systemInstruction") {
        turns.push(Turn::new("system", parts(system, "systemInstruction")?.0));
    }
    for (index, content) in list(&fields, "contents")?.iter().enumerate() {
        turns.extend(content_turns(content, &format!("contents[{index}]"))?);
    }
    let thinking = given(settings, "thinkingConfig");
    let is_shown = thinking.and_then(|config| config.get("includeThoughts")) == Some(&Value::Bool(true));
    Ok(Ask {
        model: model.to_owned(),
        turns,
        delivery,
        tokens_max: tokens(settings, "maxOutputTokens")?,
        stops: stops(settings, "stopSequences", STOPS_MAX)?,
        tools: tools(&fields)?,
        form: form(settings),
        reasoning: if is_shown { Reasoning::Shown } else { Reasoning::Hidden },
        seed: seed(settings),
    })
}

/// Converts the fields' names to camel case: Google accepts both forms, and its clients mix them. Names chosen by users stay.
fn camel_fields(fields: Map<String, Value>) -> Map<String, Value> {
    let field = |(name, value): (String, Value)| {
        let name = camel(&name);
        let value = if OF_USERS.contains(&name.as_str()) { value } else { camel_value(value) };
        (name, value)
    };
    fields.into_iter().map(field).collect()
}

fn camel_value(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(camel_fields(fields)),
        Value::Array(list) => Value::Array(list.into_iter().map(camel_value).collect()),
        other => other,
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        camel.push_str(&first.to_uppercase());
        camel.push_str(rest);
    }
    camel
}

fn refuse_unknown(fields: &Map<String, Value>, known: &[&str], at: &str) -> Result<(), ApiError> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(ApiError::invalid_body(format!(
            "Invalid JSON payload received. Unknown name \"{name}\"{at}: Cannot find field."
        ))),
    }
}

fn content_turns(content: &Value, path: &str) -> Result<Vec<Turn>, ApiError> {
    let role = match content.get("role").and_then(Value::as_str) {
        None | Some("user") => "user",
        Some("model") => "assistant",
        Some(_) => return Err(ApiError::invalid_body("Please use a valid role: user, model.")),
    };
    let (words, results) = parts(content, path)?;
    let mut turns: Vec<_> = results.into_iter().map(|result| Turn::new("tool", result)).collect();
    if turns.is_empty() || !words.is_empty() {
        turns.push(Turn::new(role, words));
    }
    Ok(turns)
}

/// The text of parts, and the tool results among them.
fn parts(content: &Value, path: &str) -> Result<(String, Vec<String>), ApiError> {
    let (mut words, mut results) = (String::new(), Vec::new());
    let listed =
        content.get("parts").and_then(Value::as_array).ok_or_else(|| missing(&format!("{path}.parts")))?;
    for part in listed {
        let below = |name: &str, field: &str| part.get(name).and_then(|value| value.get(field)?.as_str());
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            words.push_str(text);
        } else if let Some(media_type) = below("inlineData", "mimeType") {
            match below("inlineData", "data") {
                Some(data) if media_type == PDF && is_base64(data) => {
                    words.push_str(&pdf_text(None, &format!("{PDF} {data}")));
                }
                Some(_) if media_type != PDF => words.push_str(&image_text(media_type)),
                _ => {
                    let message = "Base64 decoding failed for the inline data of a document.";
                    return Err(ApiError::invalid_body(message));
                }
            }
        } else if let Some(uri) = below("fileData", "fileUri") {
            if below("fileData", "mimeType") == Some(PDF) {
                words.push_str(&pdf_text(None, uri));
                continue;
            }
            words.push_str(&image_text(uri));
        } else if let Some(name) = below("functionCall", "name") {
            words.push_str(name);
        } else if below("functionResponse", "name").is_some() {
            let response = part["functionResponse"].get("response").unwrap_or(&Value::Null);
            let output = response.get("output").or_else(|| response.get("error")).unwrap_or(response);
            results.push(output.as_str().map_or_else(|| output.to_string(), str::to_owned));
        } else {
            let message = format!("{path}.parts: contents.parts must not be empty.");
            return Err(ApiError::invalid_body(message));
        }
    }
    Ok((words, results))
}

fn tools(fields: &Map<String, Value>) -> Result<Tools, ApiError> {
    let listed = match given(fields, "tools") {
        None => return Ok(Tools::default()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(wrong_type("tools", "an array")),
    };
    let functions = listed.iter().filter_map(|entry| entry.get("functionDeclarations")?.as_array()).flatten();
    let read = |(index, body): (usize, &Value)| {
        let schema = if body.get("parameters").is_some() { "parameters" } else { "parametersJsonSchema" };
        tool(body, schema, &format!("tools.functionDeclarations[{index}]"))
    };
    let calling = given(fields, "toolConfig").and_then(|config| config.get("functionCallingConfig"));
    let calling = calling.unwrap_or(&Value::Null);
    let allowed = calling.get("allowedFunctionNames").and_then(|names| names.get(0)?.as_str());
    let choice = match (calling.get("mode").and_then(Value::as_str), allowed) {
        (None | Some("AUTO"), _) => Choice::Auto,
        (Some("NONE"), _) => Choice::Never,
        (Some("ANY"), None) => Choice::Required,
        (Some("ANY"), Some(name)) => Choice::Named(name.to_owned()),
        _ => return Err(wrong_type("toolConfig.functionCallingConfig.mode", "AUTO, ANY or NONE")),
    };
    let offered = functions.enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(Tools { offered, choice, calls_max: usize::MAX })
}

fn form(settings: &Map<String, Value>) -> Form {
    let schema = given(settings, "responseJsonSchema").or_else(|| given(settings, "responseSchema"));
    let is_json = given(settings, "responseMimeType").and_then(Value::as_str) == Some("application/json");
    match schema {
        Some(schema) if is_json => Form::Schema(schema.clone()),
        None if is_json => Form::Object,
        _ => Form::Text,
    }
}

/// The body of an unstreamed answer.
pub(super) fn whole(completion: &Completion) -> Value {
    let thoughts = completion.reasoning.iter().map(|text| json!({ "text": text, "thought": true }));
    let mut parts: Vec<_> = thoughts.collect();
    if !completion.pieces.is_empty() {
        parts.push(json!({ "text": completion.text() }));
    }
    parts.extend(calls(completion));
    chunk(completion, parts, Some(finish_reason(completion.end)))
}

/// The chunks of a stream.
pub(super) fn frames(completion: &Completion) -> Vec<String> {
    let thoughts = completion.reasoning.iter().map(|text| json!({ "text": text, "thought": true }));
    let pieces = completion.pieces.iter().map(|text| json!({ "text": text }));
    let parts: Vec<_> = thoughts.chain(pieces).chain(calls(completion)).collect();
    let mut chunks: Vec<_> = parts.into_iter().map(|part| chunk(completion, vec![part], None)).collect();
    let last = vec![json!({ "text": "" })];
    chunks.push(chunk(completion, last, Some(finish_reason(completion.end))));
    chunks.iter().map(unnamed).collect()
}

/// Calls as parts. The first has the signature, as at the real vendor.
fn calls(completion: &Completion) -> impl Iterator<Item = Value> {
    completion.calls.iter().enumerate().map(|(index, call)| {
        let mut part = json!({ "functionCall": { "name": call.name, "args": call.json() } });
        if index == 0 {
            part["thoughtSignature"] = json!(SIGNATURE);
        }
        part
    })
}

fn chunk(completion: &Completion, parts: Vec<Value>, finish_reason: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "role": "model" }, "index": 0 });
    candidate["content"]["parts"] = Value::Array(parts);
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = json!(reason);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage(completion),
        "modelVersion": completion.model,
        "responseId": format!("sim{:016x}", completion.draw),
    })
}

/// The finish reason. A tool call ends like any other answer.
fn finish_reason(end: End) -> &'static str {
    match end {
        End::Stop | End::StopSequence(_) | End::ToolCalls => "STOP",
        End::Length => "MAX_TOKENS",
        End::Declined => "SAFETY",
    }
}

fn usage(completion: &Completion) -> Value {
    let (thoughts, all) = (completion.reasoning_tokens(), completion.completion_tokens());
    json!({
        "promptTokenCount": completion.prompt_tokens,
        "cachedContentTokenCount": completion.cached_tokens,
        "candidatesTokenCount": all - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": completion.prompt_tokens + all,
    })
}

/// Status and body of an error. A wrong key is an invalid argument in this format.
pub(super) fn error(error: &ApiError) -> (StatusCode, Value) {
    let (status, word) = match error.status.as_u16() {
        401 => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
        403 => (error.status, "PERMISSION_DENIED"),
        404 => (error.status, "NOT_FOUND"),
        429 => (error.status, "RESOURCE_EXHAUSTED"),
        503 => (error.status, "UNAVAILABLE"),
        500.. => (error.status, "INTERNAL"),
        _ => (error.status, "INVALID_ARGUMENT"),
    };
    let mut body = json!({ "code": status.as_u16(), "message": error.message, "status": word });
    if let Some(seconds) = error.retry_after_s {
        let retry = "type.googleapis.com/google.rpc.RetryInfo";
        body["details"] = json!([{ "@type": retry, "retryDelay": format!("{seconds}s") }]);
    }
    (status, json!({ "error": body }))
}
