//! The wire formats, and their differences apart from requests and answers: paths, errors, headers.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use super::{ask::Delivery, chat, completion::Completion, error::ApiError, gemini, messages, responses};

/// Requests per minute in the rate-limit headers; this number is not enforced.
const REQUESTS_A_MINUTE: &str = "10000";

/// A vendor's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenAI Chat Completions; also for the simulator's own routes.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Google Gemini.
    Gemini,
}

impl Format {
    /// The format of a path.
    pub(super) fn at(path: &str) -> Self {
        let is_action = path.starts_with("/v1/models/") && path.contains(':');
        if path.starts_with("/v1beta/") || is_action {
            Self::Gemini
        } else if path.starts_with("/v1/messages") {
            Self::Messages
        } else if path.starts_with("/v1/responses") {
            Self::Responses
        } else {
            Self::Chat
        }
    }

    /// The body of an unstreamed answer.
    pub(super) fn whole(self, completion: &Completion) -> Value {
        match self {
            Self::Chat => chat::whole(completion),
            Self::Responses => responses::whole(completion),
            Self::Messages => messages::whole(completion),
            Self::Gemini => gemini::whole(completion),
        }
    }

    /// The frames of a stream, and its final frame.
    pub(super) fn frames(
        self,
        completion: &Completion,
        delivery: Delivery,
    ) -> (Vec<String>, Option<&'static str>) {
        match self {
            Self::Chat => (chat::frames(completion, delivery), Some("data: [DONE]\n\n")),
            Self::Responses => (responses::frames(completion), None),
            Self::Messages => (messages::frames(completion), None),
            Self::Gemini => (gemini::frames(completion), None),
        }
    }

    /// Status and body of an error.
    pub(super) fn error(self, error: &ApiError) -> (StatusCode, Value) {
        match self {
            Self::Chat | Self::Responses => (error.status, error.openai_body()),
            Self::Messages => messages::error(error),
            Self::Gemini => gemini::error(error),
        }
    }

    /// Additional headers of an error.
    pub(super) fn error_headers(self, error: &ApiError) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(seconds) = error.retry_after_s else { return headers };
        match self {
            // The body contains it.
            Self::Gemini => {}
            Self::Messages => {
                headers.insert("retry-after", HeaderValue::from(seconds));
            }
            Self::Chat | Self::Responses => {
                headers.insert("retry-after", HeaderValue::from(seconds));
                headers.insert("retry-after-ms", HeaderValue::from(seconds.saturating_mul(1_000)));
                if let Ok(reset) = HeaderValue::try_from(format!("{seconds}s")) {
                    headers.insert("x-ratelimit-reset-requests", reset);
                }
            }
        }
        headers
    }

    /// The headers of every answer.
    pub(super) fn headers(self, request_id: &str, status: StatusCode) -> HeaderMap {
        let is_throttled = status == StatusCode::TOO_MANY_REQUESTS;
        let remaining = HeaderValue::from_static(if is_throttled { "0" } else { "9999" });
        let limit = HeaderValue::from_static(REQUESTS_A_MINUTE);
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value| headers.insert(HeaderName::from_static(name), value);
        let id = HeaderValue::try_from(request_id).ok();
        match self {
            Self::Chat | Self::Responses => {
                id.map(|id| put("x-request-id", id));
                put("x-ratelimit-limit-requests", limit);
                put("x-ratelimit-remaining-requests", remaining);
                if !is_throttled {
                    put("x-ratelimit-reset-requests", HeaderValue::from_static("6ms"));
                }
            }
            Self::Messages => {
                id.map(|id| put("request-id", id));
                put("anthropic-ratelimit-requests-limit", limit);
                put("anthropic-ratelimit-requests-remaining", remaining);
            }
            Self::Gemini => {}
        }
        headers
    }
}

/// A frame of a stream with named events.
pub(super) fn named(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// A frame of a stream with unnamed events.
pub(super) fn unnamed(event: &Value) -> String {
    format!("data: {event}\n\n")
}
