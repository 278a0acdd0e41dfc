//! Parsing a body as JSON within bounds.
//!
//! A parsed value takes about forty times the two bytes that a small element takes in the body, so their number is bounded
//! before anything is parsed.

use serde_json::Value;

use crate::{ApiError, ErrorCode};

/// Most values of a body: objects, arrays, strings, numbers and names.
const VALUES_MAX: usize = 50_000;

/// Parses a body.
pub(super) fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let invalid = |message| ApiError::new(ErrorCode::InvalidJson, message);
    if has_more_values(body, VALUES_MAX) {
        return Err(invalid(format!("the body has more than {VALUES_MAX} JSON values")));
    }
    serde_json::from_slice(body).map_err(|e| invalid(format!("the body is not valid JSON: {e}")))
}

/// Whether a body has more than `max` values. Counts what begins or separates values, without parsing them: it may be wrong by
/// the depth of the body, and about text that is not JSON.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_a_million_elements_is_refused_before_it_is_parsed() {
        let body = format!("{{\"messages\":[{}0]}}", "0,".repeat(1_000_000));
        let error = parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.message, "the body has more than 50000 JSON values");
    }

    #[test]
    fn separators_within_strings_are_not_counted() {
        let body = format!("[\"{}\\\",,\", 1]", ",:[{".repeat(100));
        assert!(!has_more_values(body.as_bytes(), 2));
        assert!(has_more_values(body.as_bytes(), 1));
        assert_eq!(parse(body.as_bytes()).unwrap().as_array().unwrap().len(), 2);
    }
}
