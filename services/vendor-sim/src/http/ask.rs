//! The content of a request, independent of the wire format.

use serde_json::{Map, Value};

use super::error::ApiError;
use crate::script::{Asked, Speaker};

/// A request that passed all checks of its format.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) turns: Vec<Turn>,
    pub(super) delivery: Delivery,
    pub(super) tokens_max: Option<usize>,
    pub(super) stops: Vec<String>,
    pub(super) tools: Tools,
    pub(super) form: Form,
    pub(super) reasoning: Reasoning,
    /// The seed of the sampling, if the request has one. Formats without seeds leave it out.
    pub(super) seed: Option<u64>,
}

/// A turn with its role and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    /// `system`, `user`, `assistant`, or `tool` for a tool's result.
    pub(super) role: String,
    pub(super) text: String,
}

impl Turn {
    pub(super) fn new(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), text: text.into() }
    }
}

/// How the answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Whole,
    Stream,
    /// For formats in which a stream reports its usage only on request.
    StreamWithUsage,
}

/// The offered tools and how they may be called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tools {
    pub(super) offered: Vec<Tool>,
    pub(super) choice: Choice,
    /// Most calls in one answer.
    pub(super) calls_max: usize,
}

impl Default for Tools {
    fn default() -> Self {
        Self { offered: Vec::new(), choice: Choice::Auto, calls_max: usize::MAX }
    }
}

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    /// The JSON schema of its arguments.
    pub(super) schema: Value,
}

/// Which tool must be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    Auto,
    Never,
    Required,
    Named(String),
}

/// The response format.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    Text,
    Object,
    Schema(Value),
}

/// Whether the answer shows reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reasoning {
    Hidden,
    Shown,
}

impl Ask {
    /// The text of the last turn of the user.
    pub(super) fn last_user_text(&self) -> &str {
        let last = self.turns.iter().rev().find(|turn| turn.role == "user");
        last.or(self.turns.last()).map_or("", |turn| turn.text.as_str())
    }

    /// The parts that scripted replies match.
    pub(super) fn asked(&self) -> Asked<'_> {
        let results = self.last_results();
        let last = if results.is_empty() { Speaker::User } else { Speaker::Tool };
        let is_assistant = |turns: &&[Turn]| turns.first().is_some_and(|turn| turn.role == "assistant");
        Asked {
            last,
            last_texts: if results.is_empty() { vec![self.last_user_text()] } else { results },
            all_texts: self.turns.iter().map(|turn| turn.text.as_str()).collect(),
            // Some formats send each call of a message separately.
            assistant_turns: self
                .turns
                .chunk_by(|one, next| one.role == next.role)
                .filter(is_assistant)
                .count(),
            tools: match self.tools.choice {
                Choice::Never => Vec::new(),
                _ => self.tools.offered.iter().map(|tool| tool.name.as_str()).collect(),
            },
        }
    }

    /// The tool results at the end of the conversation.
    pub(super) fn last_results(&self) -> Vec<&str> {
        let last = self.turns.iter().rev().take_while(|turn| turn.role == "tool");
        let mut results: Vec<_> = last.map(|turn| turn.text.as_str()).collect();
        results.reverse();
        results
    }
}

/// The fields of a body.
pub(super) fn body_fields(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(ApiError::invalid_body("The request body must be a JSON object.")),
        Err(error) => {
            Err(ApiError::invalid_body(format!("We could not parse the JSON body of your request: {error}.")))
        }
    }
}

/// A parameter that is present and not null.
pub(super) fn given<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(super) fn missing(name: &str) -> ApiError {
    ApiError::invalid(name, format!("Missing required parameter: '{name}'."))
}

pub(super) fn wrong_type(name: &str, expected: &str) -> ApiError {
    ApiError::invalid(name, format!("Invalid type for '{name}': expected {expected}."))
}

/// A required text.
pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Result<String, ApiError> {
    match given(fields, name) {
        None => Err(missing(name)),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong_type(name, "a string")),
    }
}

/// A required, non-empty list.
pub(super) fn list<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<&'f [Value], ApiError> {
    match given(fields, name) {
        None => Err(missing(name)),
        Some(Value::Array(list)) if list.is_empty() => {
            Err(ApiError::invalid(name, format!("'{name}' must not be empty.")))
        }
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(wrong_type(name, "an array")),
    }
}

pub(super) fn flag(fields: &Map<String, Value>, name: &str) -> Result<bool, ApiError> {
    match given(fields, name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(wrong_type(name, "a boolean")),
    }
}

/// A number of tokens, at least 1.
pub(super) fn tokens(fields: &Map<String, Value>, name: &str) -> Result<Option<usize>, ApiError> {
    let Some(value) = given(fields, name) else { return Ok(None) };
    match value.as_u64().filter(|tokens| *tokens > 0) {
        Some(tokens) => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
        None => Err(ApiError::invalid(
            name,
            format!(
                "Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead."
            ),
        )),
    }
}

/// The seed; a negative one counts as its bits.
pub(super) fn seed(fields: &Map<String, Value>) -> Option<u64> {
    let value = given(fields, "seed")?;
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned))
}

/// Rejects a number outside the bounds, if it is present.
pub(super) fn within(
    fields: &Map<String, Value>,
    name: &str,
    minimum: f64,
    maximum: f64,
) -> Result<(), ApiError> {
    match given(fields, name) {
        Some(value) if !value.as_f64().is_some_and(|number| (minimum..=maximum).contains(&number)) => {
            let message = format!(
                "Invalid '{name}': expected a number between {minimum} and {maximum}, but got {value} instead."
            );
            Err(ApiError::invalid(name, message))
        }
        _ => Ok(()),
    }
}

/// Reads stop sequences.
pub(super) fn stops(
    fields: &Map<String, Value>,
    name: &str,
    count_max: usize,
) -> Result<Vec<String>, ApiError> {
    let wrong = || wrong_type(name, &format!("an array of up to {count_max} strings"));
    match given(fields, name) {
        None => Ok(Vec::new()),
        Some(Value::Array(stops)) if stops.len() <= count_max => {
            stops.iter().map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// A tool from the fields with its name and schema.
pub(super) fn tool(fields: &Value, schema: &str, path: &str) -> Result<Tool, ApiError> {
    let name = fields.get("name").and_then(Value::as_str).ok_or_else(|| missing(&format!("{path}.name")))?;
    let schema = fields.get(schema).cloned().unwrap_or_else(|| Value::Object(Map::new()));
    Ok(Tool { name: name.to_owned(), schema })
}

/// The text that represents an image, since these programs cannot see.
pub(super) fn image_text(what: &str) -> String {
    format!("[image {}]", shown(what))
}

/// The text that represents a PDF. `what` is its URL, its `data:` URL or its base64.
pub(super) fn pdf_text(name: Option<&str>, what: &str) -> String {
    let name = name.map(|name| format!("{name} ")).unwrap_or_default();
    format!("[pdf {name}{}]", shown(what))
}

fn shown(what: &str) -> String {
    const CHARS_MAX: usize = 64;
    what.chars().take(CHARS_MAX).collect()
}

/// The media type of PDFs.
pub(super) const PDF: &str = "application/pdf";

/// Whether it is `data:application/pdf;base64,` and base64.
pub(super) fn is_pdf_data_url(url: &str) -> bool {
    url.strip_prefix("data:application/pdf;base64,").is_some_and(is_base64)
}

/// Whether it is base64 with padding, and not empty.
pub(super) fn is_base64(text: &str) -> bool {
    let content = text.trim_end_matches('=');
    let is_digit = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    !content.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - content.len() < 3
        && content.chars().all(is_digit)
}
