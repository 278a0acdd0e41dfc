//! Reads and checks a chat completion request. Refusals name the parameter, as the real vendor's do.

use serde_json::{Map, Value};

use super::error::ApiError;

/// Everything that the real interface takes. What the programs have no use for is accepted and ignored.
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

/// A request that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatRequest {
    pub(super) model: String,
    /// The role and the text of each turn.
    pub(super) messages: Vec<(String, String)>,
    pub(super) delivery: Delivery,
    pub(super) tokens_max: Option<usize>,
    pub(super) stops: Vec<String>,
}

/// How the answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Whole,
    Stream,
    StreamWithUsage,
}

impl ChatRequest {
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            ApiError::invalid_body(format!("We could not parse the JSON body of your request: {error}."))
        })?;
        let Value::Object(fields) = value else {
            return Err(ApiError::invalid_body("The request body must be a JSON object."));
        };
        if let Some(unknown) = fields.keys().find(|name| !PARAMETERS.contains(&name.as_str())) {
            return Err(ApiError::invalid_body(format!("Unrecognized request argument supplied: {unknown}")));
        }
        check_ranges(&fields)?;
        Ok(Self {
            model: model(&fields)?,
            messages: messages(&fields)?,
            delivery: delivery(&fields)?,
            tokens_max: tokens_max(&fields)?,
            stops: stops(&fields)?,
        })
    }

    /// The text of the last turn of the user.
    pub(super) fn last_user_text(&self) -> &str {
        let last = self.messages.iter().rev().find(|(role, _)| role == "user");
        last.or(self.messages.last()).map_or("", |(_, text)| text.as_str())
    }
}

/// A parameter that is given and not null.
fn given<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn model(fields: &Map<String, Value>) -> Result<String, ApiError> {
    match given(fields, "model") {
        None => Err(ApiError::invalid_body("you must provide a model parameter")),
        Some(Value::String(model)) => Ok(model.clone()),
        Some(_) => Err(ApiError::invalid("model", "Invalid type for 'model': expected a string.")),
    }
}

fn messages(fields: &Map<String, Value>) -> Result<Vec<(String, String)>, ApiError> {
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

fn message(index: usize, turn: &Value) -> Result<(String, String), ApiError> {
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
            let texts: Result<Vec<&str>, ApiError> =
                parts.iter().map(|part| text_part(&path, part)).collect();
            texts?.concat()
        }
        None | Some(Value::Null) if role == "assistant" => String::new(),
        _ => {
            let message =
                format!("Invalid value for '{path}': expected a string or an array of content parts.");
            return Err(ApiError::invalid(&path, message));
        }
    };
    Ok((role, text))
}

fn text_part<'p>(path: &str, part: &'p Value) -> Result<&'p str, ApiError> {
    match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
        (Some("text"), Some(text)) => Ok(text),
        (Some("text"), None) => {
            Err(ApiError::invalid(path, format!("Missing required parameter: '{path}.text'.")))
        }
        (kind, _) => {
            let kind = kind.unwrap_or("null");
            Err(ApiError::invalid(
                path,
                format!("Invalid content type. {kind} is not supported by this model."),
            ))
        }
    }
}

fn delivery(fields: &Map<String, Value>) -> Result<Delivery, ApiError> {
    let stream = match given(fields, "stream") {
        None => false,
        Some(Value::Bool(stream)) => *stream,
        Some(_) => return Err(ApiError::invalid("stream", "Invalid type for 'stream': expected a boolean.")),
    };
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
    let read = |name: &str| match given(fields, name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|tokens| *tokens > 0) {
            Some(tokens) => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
            None => Err(ApiError::invalid(
                name,
                format!(
                    "Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead."
                ),
            )),
        },
    };
    match (read("max_tokens")?, read("max_completion_tokens")?) {
        (Some(_), Some(_)) => {
            let message =
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.";
            Err(ApiError::invalid("max_tokens", message))
        }
        (old, new) => Ok(old.or(new)),
    }
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        ApiError::invalid(
            "stop",
            "Invalid type for 'stop': expected a string or an array of up to 4 strings.",
        )
    };
    match given(fields, "stop") {
        None => Ok(Vec::new()),
        Some(Value::String(stop)) => Ok(vec![stop.clone()]),
        Some(Value::Array(stops)) if stops.len() <= STOPS_MAX => {
            stops.iter().map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn check_ranges(fields: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, minimum, maximum) in [
        ("temperature", 0.0, 2.0),
        ("top_p", 0.0, 1.0),
        ("presence_penalty", -2.0, 2.0),
        ("frequency_penalty", -2.0, 2.0),
    ] {
        let Some(value) = given(fields, name) else { continue };
        if !value.as_f64().is_some_and(|number| (minimum..=maximum).contains(&number)) {
            let message = format!(
                "Invalid '{name}': expected a number between {minimum} and {maximum}, but got {value} instead."
            );
            return Err(ApiError::invalid(name, message));
        }
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
