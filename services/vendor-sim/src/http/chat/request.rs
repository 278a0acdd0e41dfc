//! Parses and checks a chat completion request. Errors name the parameter, as the real vendor's do.

use serde_json::{Map, Value};

use crate::http::{
    ask::{
        Ask, Choice, Delivery, Form, Reasoning, Tools, Turn, body_fields, flag, given, image_text,
        is_pdf_data_url, missing, pdf_text, seed, stops, tokens, tool, within, wrong_type,
    },
    error::ApiError,
};

/// All parameters of the real API. Those that the programs do not use are accepted and ignored.
const PARAMETERS: &[&str] = &[
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh"];
const STOPS_MAX: usize = 4;

/// Parses the body of a request.
pub(in crate::http) fn parse(body: &[u8]) -> Result<Ask, ApiError> {
    let fields = body_fields(body)?;
    if let Some(unknown) = fields.keys().find(|name| !PARAMETERS.contains(&name.as_str())) {
        return Err(ApiError::invalid_body(format!("Unrecognized request argument supplied: {unknown}")));
    }
    check_ranges(&fields)?;
    Ok(Ask {
        model: model(&fields)?,
        turns: messages(&fields)?,
        delivery: delivery(&fields)?,
        tokens_max: tokens_max(&fields)?,
        stops: stop(&fields)?,
        tools: tools(&fields)?,
        form: form(&fields)?,
        reasoning: Reasoning::Hidden,
        seed: seed(&fields),
    })
}

fn model(fields: &Map<String, Value>) -> Result<String, ApiError> {
    match given(fields, "model") {
        None => Err(ApiError::invalid_body("you must provide a model parameter")),
        Some(Value::String(model)) => Ok(model.clone()),
        Some(_) => Err(ApiError::invalid("model", "Invalid type for 'model': expected a string.")),
    }
}

fn messages(fields: &Map<String, Value>) -> Result<Vec<Turn>, ApiError> {
    let turns = match given(fields, "messages") {
        None => return Err(ApiError::invalid("messages", "Missing required parameter: 'messages'.")),
        Some(Value::Array(turns)) => turns,
        Some(_) => {
            return Err(ApiError::invalid(
                "messages",
                "Invalid type for 'messages': expected an array of objects.",
            ));
        }
    };
    if turns.is_empty() {
        let message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.";
        return Err(ApiError::invalid("messages", message));
    }
    turns.iter().enumerate().map(|(index, turn)| message(index, turn)).collect()
}

fn message(index: usize, turn: &Value) -> Result<Turn, ApiError> {
    let role_path = format!("messages[{index}].role");
    let role = match turn.get("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role.clone(),
        Some(role) => {
            let message = format!("Invalid value: {role}. Supported values are: {}.", quoted(ROLES));
            return Err(ApiError::invalid(&role_path, message));
        }
        None => {
            return Err(ApiError::invalid(&role_path, format!("Missing required parameter: '{role_path}'.")));
        }
    };
    let path = format!("messages[{index}].content");
    let text = match turn.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<String>, ApiError> =
                parts.iter().map(|part| content_part(&path, part)).collect();
            texts?.concat()
        }
        None | Some(Value::Null) if role == "assistant" => String::new(),
        _ => {
            let message =
                format!("Invalid value for '{path}': expected a string or an array of content parts.");
            return Err(ApiError::invalid(&path, message));
        }
    };
    Ok(Turn { role, text })
}

fn content_part(path: &str, part: &Value) -> Result<String, ApiError> {
    let lacks = |what: &str| missing(&format!("{path}.{what}"));
    match part.get("type").and_then(Value::as_str) {
        Some("text") => {
            let text = part.get("text").and_then(Value::as_str).ok_or_else(|| lacks("text"))?;
            Ok(text.to_owned())
        }
        Some("image_url") => {
            let url = part.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
            url.map(image_text).ok_or_else(|| lacks("image_url.url"))
        }
        Some("file") => {
            let field = |name: &str| part.get("file").and_then(|file| file.get(name)?.as_str());
            let name = field("filename").ok_or_else(|| lacks("file.filename"))?;
            let data = field("file_data").ok_or_else(|| lacks("file.file_data"))?;
            if !is_pdf_data_url(data) {
                let message = "Invalid file data: expected a base64-encoded data URL with an application/pdf MIME type.";
                return Err(ApiError::invalid(&format!("{path}.file.file_data"), message));
            }
            Ok(pdf_text(Some(name), data))
        }
        kind => {
            let kind = kind.unwrap_or("null");
            let message = format!("Invalid content type. {kind} is not supported by this model.");
            Err(ApiError::invalid(path, message))
        }
    }
}

fn tools(fields: &Map<String, Value>) -> Result<Tools, ApiError> {
    let listed = match given(fields, "tools") {
        None => return Ok(Tools::default()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(wrong_type("tools", "an array of objects")),
    };
    let function = |(index, tool_body): (usize, &Value)| {
        let path = format!("tools[{index}].function");
        tool(tool_body.get("function").ok_or_else(|| missing(&path))?, "parameters", &path)
    };
    let choice = match given(fields, "tool_choice") {
        None => Choice::Auto,
        Some(Value::String(word)) if word == "auto" => Choice::Auto,
        Some(Value::String(word)) if word == "none" => Choice::Never,
        Some(Value::String(word)) if word == "required" => Choice::Required,
        Some(choice) => match choice.get("function").and_then(|function| function.get("name")?.as_str()) {
            Some(name) => Choice::Named(name.to_owned()),
            None => return Err(wrong_type("tool_choice", "none, auto, required or a function")),
        },
    };
    let one_at_a_time = given(fields, "parallel_tool_calls") == Some(&Value::Bool(false));
    Ok(Tools {
        offered: listed.iter().enumerate().map(function).collect::<Result<_, _>>()?,
        choice,
        calls_max: if one_at_a_time { 1 } else { usize::MAX },
    })
}

fn form(fields: &Map<String, Value>) -> Result<Form, ApiError> {
    let Some(format) = given(fields, "response_format") else { return Ok(Form::Text) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Form::Text),
        Some("json_object") => Ok(Form::Object),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|body| body.get("schema"));
            schema.cloned().map(Form::Schema).ok_or_else(|| missing("response_format.json_schema.schema"))
        }
        _ => Err(wrong_type("response_format.type", "text, json_object or json_schema")),
    }
}

fn delivery(fields: &Map<String, Value>) -> Result<Delivery, ApiError> {
    let stream = flag(fields, "stream")?;
    match (stream, given(fields, "stream_options")) {
        (false, None) => Ok(Delivery::Whole),
        (true, None) => Ok(Delivery::Stream),
        (false, Some(_)) => {
            let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
            Err(ApiError::invalid("stream_options", message))
        }
        (true, Some(options)) => match options.get("include_usage") {
            Some(Value::Bool(true)) => Ok(Delivery::StreamWithUsage),
            None | Some(Value::Bool(false) | Value::Null) => Ok(Delivery::Stream),
            Some(_) => Err(ApiError::invalid(
                "stream_options.include_usage",
                "Invalid type for 'stream_options.include_usage': expected a boolean.",
            )),
        },
    }
}

fn tokens_max(fields: &Map<String, Value>) -> Result<Option<usize>, ApiError> {
    match (tokens(fields, "max_tokens")?, tokens(fields, "max_completion_tokens")?) {
        (Some(_), Some(_)) => {
            let message =
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.";
            Err(ApiError::invalid("max_tokens", message))
        }
        (old, new) => Ok(old.or(new)),
    }
}

fn stop(fields: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    match given(fields, "stop") {
        Some(Value::String(stop)) => Ok(vec![stop.clone()]),
        _ => stops(fields, "stop", STOPS_MAX),
    }
}

fn check_ranges(fields: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, minimum, maximum) in [
        ("temperature", 0.0, 2.0),
        ("top_p", 0.0, 1.0),
        ("presence_penalty", -2.0, 2.0),
        ("frequency_penalty", -2.0, 2.0),
    ] {
        within(fields, name, minimum, maximum)?;
    }
    if let Some(count) = given(fields, "n").filter(|count| count.as_u64() != Some(1)) {
        return Err(ApiError::invalid(
            "n",
            format!("Invalid 'n': only 1 choice is supported, but got {count} instead."),
        ));
    }
    if let Some(effort) = given(fields, "reasoning_effort")
        && !effort.as_str().is_some_and(|effort| EFFORTS.contains(&effort))
    {
        let message = format!("Invalid value: {effort}. Supported values are: {}.", quoted(EFFORTS));
        return Err(ApiError::invalid("reasoning_effort", message));
    }
    Ok(())
}

fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| format!("'{value}'")).collect::<Vec<_>>().join(", ")
}
