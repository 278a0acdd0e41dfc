//! The response format that a client requests, and that a worker is asked for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pool::Feature;

/// Most bytes of a schema. `OpenAI` bounds the names in a schema at about as many characters.
pub const SCHEMA_BYTES_MAX: usize = 128 << 10;
/// Deepest nesting of objects and lists in a schema. `OpenAI` accepts ten levels. A stored schema must be parsed again, and JSON
/// parsers stop at 128.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Most characters of a schema's name, as in `OpenAI`'s API.
pub const SCHEMA_NAME_CHARS_MAX: usize = 64;

/// The response format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// Any text.
    #[default]
    Text,
    /// Any JSON object. The messages must contain the word JSON too, because most vendors insist on it.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema(JsonSchema),
    /// Text that matches a regular expression as a whole. It uses only what all engines support: characters, classes, groups,
    /// alternatives and repetitions.
    Regex(String),
}

/// The schema that an answer follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonSchema {
    /// A name for it: letters, digits, `_` and `-`.
    pub name: String,
    /// The schema itself, an object.
    pub schema: Value,
    /// Whether the answer must follow the schema exactly, for vendors that make the distinction. `OpenAI` then supports only some
    /// schemas.
    pub strict: bool,
}

/// A response format is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFormError {
    /// The name has an invalid length or character.
    #[error(
        "json_schema.name must have 1 to {SCHEMA_NAME_CHARS_MAX} characters, each a letter, a digit, `_` or `-`"
    )]
    Name,
    /// The schema is not an object.
    #[error("json_schema.schema must be an object")]
    NoObject,
    /// The schema has more than [`SCHEMA_BYTES_MAX`].
    #[error("json_schema.schema has {bytes} bytes, the limit is {SCHEMA_BYTES_MAX}")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// The schema is nested deeper than [`SCHEMA_DEPTH_MAX`].
    #[error("json_schema.schema is nested deeper than the limit of {SCHEMA_DEPTH_MAX}")]
    TooDeep,
}

impl AnswerFormError {
    /// The invalid field, below the response format.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Name => "json_schema.name",
            Self::NoObject | Self::TooLong { .. } | Self::TooDeep => "json_schema.schema",
        }
    }
}

impl AnswerForm {
    /// Whether any text is allowed.
    pub fn is_text(&self) -> bool {
        *self == Self::Text
    }

    /// The feature that a worker needs for it.
    pub const fn feature(&self) -> Option<Feature> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(Feature::JsonObject),
            Self::JsonSchema(_) => Some(Feature::JsonSchema),
            Self::Regex(_) => Some(Feature::Regex),
        }
    }

    /// Checks every bound.
    pub fn check(&self) -> Result<(), AnswerFormError> {
        let Self::JsonSchema(JsonSchema { name, schema, .. }) = self else { return Ok(()) };
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !(1..=SCHEMA_NAME_CHARS_MAX).contains(&name.len()) || !name.chars().all(is_part) {
            return Err(AnswerFormError::Name);
        }
        if !schema.is_object() {
            return Err(AnswerFormError::NoObject);
        }
        // Checked before the schema is written, because writing recurses as deep as the schema.
        if !is_within(schema, SCHEMA_DEPTH_MAX) {
            return Err(AnswerFormError::TooDeep);
        }
        match schema.to_string().len() {
            bytes if bytes > SCHEMA_BYTES_MAX => Err(AnswerFormError::TooLong { bytes }),
            _ => Ok(()),
        }
    }
}

/// Whether objects and lists nest at most `depth` deep.
pub(crate) fn is_within(value: &Value, depth: usize) -> bool {
    let inside = |value: &Value| depth.checked_sub(1).is_some_and(|depth| is_within(value, depth));
    match value {
        Value::Object(members) => depth > 0 && members.values().all(inside),
        Value::Array(items) => depth > 0 && items.iter().all(inside),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(name: &str, schema: Value) -> AnswerForm {
        AnswerForm::JsonSchema(JsonSchema { name: name.to_owned(), schema, strict: true })
    }

    fn deep(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn an_invalid_format_is_refused_with_its_limit() {
        for form in [
            AnswerForm::Text,
            AnswerForm::JsonObject,
            schema("a_b-9", json!({})),
            schema(&"n".repeat(SCHEMA_NAME_CHARS_MAX), deep(SCHEMA_DEPTH_MAX)),
        ] {
            assert_eq!(form.check(), Ok(()), "{form:?}");
        }
        let long = json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) });
        for (form, field, words) in [
            (schema("", json!({})), "json_schema.name", "1 to 64 characters"),
            (schema(&"n".repeat(65), json!({})), "json_schema.name", "1 to 64 characters"),
            (schema("a b", json!({})), "json_schema.name", "1 to 64 characters"),
            (schema("é", json!({})), "json_schema.name", "1 to 64 characters"),
            (schema("a", json!([])), "json_schema.schema", "must be an object"),
            (schema("a", long), "json_schema.schema", "bytes, the limit is 131072"),
            (schema("a", deep(SCHEMA_DEPTH_MAX + 1)), "json_schema.schema", "deeper than the limit of 64"),
        ] {
            let error = form.check().unwrap_err();
            assert_eq!(error.field(), field);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_stored_schema_keeps_its_order_and_the_deepest_is_parsed() {
        let stored = r#"{"json_schema":{"name":"s","schema":{"z":1,"a":{"y":2,"b":3}},"strict":false}}"#;
        let form: AnswerForm = serde_json::from_str(stored).unwrap();
        assert_eq!(serde_json::to_string(&form).unwrap(), stored);
        let deepest = schema("s", deep(SCHEMA_DEPTH_MAX));
        let stored = serde_json::to_string(&json!({ "spec": { "answer": deepest } })).unwrap();
        let read: Value = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::from_value::<AnswerForm>(read["spec"]["answer"].clone()).unwrap(), deepest);
        assert_eq!(serde_json::to_string(&AnswerForm::Text).unwrap(), "\"text\"");
    }
}
