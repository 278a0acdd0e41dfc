//! Errors in Anthropic's format.

use serde::Serialize;

use crate::json::text_of;
use crate::{ApiError, ErrorCode};

/// The HTTP status of an error, by Anthropic's numbers.
pub const fn status(code: ErrorCode) -> u16 {
    mapping(code).0
}

/// The type of an error.
pub(crate) const fn error_type(code: ErrorCode) -> &'static str {
    mapping(code).1
}

/// The HTTP status and the type. Errors that the API has no type for keep the status of the other APIs.
const fn mapping(code: ErrorCode) -> (u16, &'static str) {
    let status = code.mapping().status;
    match code {
        ErrorCode::InsufficientQuota | ErrorCode::CostCapReached => (402, "billing_error"),
        ErrorCode::Overloaded => (529, "overloaded_error"),
        ErrorCode::BodyTooLarge => (status, "request_too_large"),
        ErrorCode::RequestTimeout
        | ErrorCode::RunDeadlineExceeded
        | ErrorCode::SuspensionExpired
        | ErrorCode::CallDeadlineExceeded => (status, "timeout_error"),
        ErrorCode::WorkerRateLimited | ErrorCode::TooManyStreams => (status, "rate_limit_error"),
        _ => (status, kind(status)),
    }
}

const fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// An error in Anthropic's format.
#[derive(Serialize)]
pub struct ErrorBody<'a> {
    r#type: &'static str,
    error: ErrorFields<'a>,
    request_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    r#type: &'static str,
    message: &'a str,
}

impl<'a> ErrorBody<'a> {
    /// The body of an error. `request_id` is the id in the response's headers.
    pub fn new(error: &'a ApiError, request_id: Option<&'a str>) -> Self {
        let (_, kind) = mapping(error.code);
        Self { r#type: "error", error: ErrorFields { r#type: kind, message: &error.message }, request_id }
    }

    /// The body as JSON.
    pub fn to_json(&self) -> String {
        text_of(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The types that Anthropic's documentation lists with their statuses.
    const TYPES: [(u16, &str); 12] = [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "timeout_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ];

    #[test]
    fn an_error_has_a_type_and_the_request_id() {
        let error = ApiError::new(ErrorCode::InvalidApiKey, "the key is unknown");
        let body: Value = serde_json::from_str(&ErrorBody::new(&error, Some("req-1")).to_json()).unwrap();
        let inner = json!({"type": "authentication_error", "message": "the key is unknown"});
        assert_eq!(body, json!({"type": "error", "error": inner, "request_id": "req-1"}));
    }

    #[test]
    fn the_type_of_an_error_fits_its_status() {
        for code in ErrorCode::ALL {
            let (status, kind) = mapping(code);
            let expected = TYPES.iter().find(|(listed, _)| *listed == status).map(|(_, kind)| *kind);
            let otherwise = if status < 500 { "invalid_request_error" } else { "api_error" };
            assert_eq!(kind, expected.unwrap_or(otherwise), "{code:?}: {status}");
        }
    }
}
