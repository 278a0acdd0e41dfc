//! Parses a request's body as JSON, within bounds, and writes the bodies of responses.
//!
//! A small element takes two bytes in the body and about forty times as much memory once parsed, so the number of elements
//! is bounded before the body is parsed.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{ApiError, ErrorCode};

/// Most values of a body: objects, arrays, strings, numbers and names.
const VALUES_MAX: usize = 50_000;

/// Parses a body that must be an object.
pub(crate) fn parse_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match parse(body)? {
        Value::Object(object) => Ok(object),
        _ => Err(ApiError::new(ErrorCode::InvalidJson, "the body must be a JSON object")),
    }
}

/// Parses a body of at most [`VALUES_MAX`] values.
fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let invalid = |message| ApiError::new(ErrorCode::InvalidJson, message);
    if has_more_values(body, VALUES_MAX) {
        return Err(invalid(format!("the body has more JSON values than the limit of {VALUES_MAX}")));
    }
    serde_json::from_slice(body).map_err(|e| invalid(format!("the body is not valid JSON: {e}")))
}

/// Whether a text of JSON has at most [`VALUES_MAX`] values.
pub(crate) fn has_few_values(text: &str) -> bool {
    !has_more_values(text.as_bytes(), VALUES_MAX)
}

/// Whether a body has more than `max` values. Counts the characters that begin or separate values, so it may be wrong by the
/// depth of the body, and for text that is not JSON.
fn has_more_values(body: &[u8], max: usize) -> bool {
    let (mut count, mut is_in_string, mut is_escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b',' | b':' | b'[' | b'{' if !is_in_string => {
                count += 1;
                if count > max {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// The response body of a value.
pub(crate) fn text_of(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("structs of strings and numbers serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_a_million_elements_is_rejected_before_parsing() {
        let body = format!("{{\"messages\":[{}0]}}", "0,".repeat(1_000_000));
        let error = parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.message, "the body has more JSON values than the limit of 50000");
    }

    #[test]
    fn separators_within_strings_are_not_counted() {
        let body = format!("[\"{}\\\",,\", 1]", ",:[{".repeat(100));
        assert!(!has_more_values(body.as_bytes(), 2));
        assert!(has_more_values(body.as_bytes(), 1));
        assert_eq!(parse(body.as_bytes()).unwrap().as_array().unwrap().len(), 2);
    }
}
