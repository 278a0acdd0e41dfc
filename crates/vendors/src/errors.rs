//! Classifies a vendor's errors: what failed, and whether the same call may succeed later.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{VendorId, WorkerId};
use podium_ports::vendor::VendorError;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::certificates;
use crate::google_rpc::{self, Pause};
use crate::retry_after::{explicit_wait, retry_after};

/// Most characters of a vendor's message that an error repeats.
const MESSAGE_CHARS_MAX: usize = 300;

/// Error codes of calls that only a payment can help. Servers send them with status 400 or 429 nevertheless.
const UNPAID: [&str; 7] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "insufficient_balance",
    "insufficient_credits",
    "payment_required",
];

/// Parts of the message that mean an unpaid account where neither status nor code says so: Anthropic's 400, Gemini's 400,
/// 403 and 429. In lower case.
const UNPAID_PHRASES: [&str; 4] = [
    "credit balance is too low",
    "reached your specified api usage limits",
    "prepayment credits are depleted",
    "enable billing",
];

/// Error codes of requests that are rejected permanently.
const REFUSED: [&str; 13] = [
    "invalid_request_error",
    "request_too_large",
    "invalid_prompt",
    "invalid_argument",
    "failed_precondition",
    "unauthenticated",
    "badrequesterror",
    "context_length_exceeded",
    "authentication_error",
    "permission_error",
    "permission_denied",
    "not_found_error",
    "content_policy_violation",
];

/// Anthropic's status for an overloaded service.
const OVERLOADED: u16 = 529;

/// Builds the errors of one vendor. No error contains a key or another secret, even if the vendor repeats it.
#[derive(Clone, Debug)]
pub(crate) struct ErrorBuilder {
    vendor: VendorId,
    secrets: Arc<[SecretString]>,
}

/// A vendor's error, parsed.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorBody {
    message: String,
    /// `code` and `type`, in lower case.
    words: Vec<String>,
    /// A `code` or `type` that is an HTTP status.
    status: Option<u16>,
    /// The pause that Google's error details ask for.
    pause: Option<Pause>,
    /// Google says that the key is invalid, although the status is that of a bad request.
    refuses_key: bool,
}

impl ErrorBuilder {
    pub(crate) fn new(vendor: VendorId, secrets: impl IntoIterator<Item = SecretString>) -> Self {
        Self { vendor, secrets: secrets.into_iter().collect() }
    }

    /// The vendor sent `what`, which is not a valid answer.
    pub(crate) fn garbled(&self, what: &str) -> VendorError {
        VendorError::Garbled { vendor: self.vendor(), message: self.readable(what) }
    }

    /// The connection could not be made, or broke. The address is left out because it may contain a password. A rejected
    /// certificate is permanent, so it is reported as a configuration error.
    pub(crate) fn unreachable(&self, source: reqwest::Error) -> VendorError {
        match certificates::rejection_of(&source) {
            Some(what) => self.misconfigured(&what),
            None => {
                VendorError::Unreachable { vendor: self.vendor(), source: Box::new(source.without_url()) }
            }
        }
    }

    /// The call cannot be made because of the configuration.
    pub(crate) fn misconfigured(&self, message: &str) -> VendorError {
        VendorError::Misconfigured { vendor: self.vendor(), message: self.readable(message) }
    }

    /// The worker does not accept `what`: a feature, or a combination with another one.
    pub(crate) fn unsupported(worker: &WorkerId, what: &str) -> VendorError {
        VendorError::Unsupported { worker: worker.clone(), what: what.to_owned() }
    }

    /// The vendor answered with an error status.
    pub(crate) fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> VendorError {
        let mut body_error = ErrorBody::read(&json_or_text(body));
        if body_error.message.trim().is_empty() || body_error.message.trim_start().starts_with('<') {
            status.canonical_reason().unwrap_or("no reason given").clone_into(&mut body_error.message);
        }
        let wait = retry_after(headers).or(body_error.retry_after());
        let asks_to_wait = matches!(status.as_u16(), 503 | OVERLOADED) && explicit_wait(headers).is_some();
        let class = if asks_to_wait { Class::Throttled } else { body_error.class(status.as_u16()) };
        match class {
            Class::Throttled => VendorError::Throttled { vendor: self.vendor(), retry_after: wait },
            class => self.error(class, status.as_u16(), &body_error.message),
        }
    }

    /// The vendor reported an error within an answer that had a success status.
    pub(crate) fn in_stream(&self, error: &Value) -> VendorError {
        let body_error = ErrorBody::of_error(error);
        let throttled = body_error.words.iter().any(|word| {
            word.starts_with("rate_limit") || word == "resource_exhausted" || word == "too_many_requests"
        });
        let (class, status) = match body_error.status {
            Some(status) => (body_error.class(status), status),
            None if body_error.has_code(&REFUSED) => (body_error.class(400), 400),
            None if throttled => (body_error.class(429), 429),
            None if body_error.is_unpaid() => (Class::Unpaid, 200),
            None => (Class::Failed, 200),
        };
        match self.error(class, status, &body_error.message) {
            VendorError::Throttled { vendor, .. } => {
                VendorError::Throttled { vendor, retry_after: body_error.retry_after() }
            }
            error => error,
        }
    }

    /// The vendor accepted the question and then refused to answer it.
    pub(crate) fn blocked(&self, word: &str) -> VendorError {
        self.error(Class::Rejected, 200, &format!("the question was blocked with reason `{word}`"))
    }

    /// The vendor ended an answer with a finish reason that means that it is incomplete.
    pub(crate) fn aborted(&self, word: &str) -> VendorError {
        self.error(Class::Failed, 200, &format!("the answer was aborted with finish_reason `{word}`"))
    }

    fn error(&self, class: Class, status: u16, message: &str) -> VendorError {
        let (vendor, message) = (self.vendor(), self.readable(message));
        match class {
            Class::Throttled => VendorError::Throttled { vendor, retry_after: None },
            Class::Unpaid => VendorError::Unpaid { vendor, status, message },
            Class::Rejected => VendorError::Rejected { vendor, status, message },
            Class::KeyRefused => {
                let message = format!("it rejected the key (status {status}): {message}");
                VendorError::Misconfigured { vendor, message }
            }
            Class::Failed => VendorError::Failed { vendor, status, message },
        }
    }

    fn vendor(&self) -> String {
        self.vendor.as_str().to_owned()
    }

    /// A vendor's message on one line of bounded length, without secrets. They are replaced before the cut, which could split one.
    fn readable(&self, words: &str) -> String {
        let secrets =
            self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty());
        let without_key = secrets.fold(words.to_owned(), |words, secret| words.replace(secret, "[key]"));
        let mut line = String::new();
        for word in
            without_key.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty())
        {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        match line.char_indices().nth(MESSAGE_CHARS_MAX) {
            None => line,
            Some((end, _)) => {
                line.truncate(end);
                line.push('…');
                line
            }
        }
    }
}

/// A body as JSON, or else as text.
pub(crate) fn json_or_text(body: &[u8]) -> Value {
    let as_text = |_| Value::String(String::from_utf8_lossy(body).into_owned());
    serde_json::from_slice(body).unwrap_or_else(as_text)
}

/// The reaction that may help after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Retry later and more slowly.
    Throttled,
    /// Nothing at this vendor; another vendor may be paid.
    Unpaid,
    /// Nothing: the request is invalid.
    Rejected,
    /// Nothing at this vendor: the key is invalid for every request.
    KeyRefused,
    /// Retry.
    Failed,
}

impl Class {
    fn of(status: u16) -> Self {
        match status {
            429 => Self::Throttled,
            402 => Self::Unpaid,
            // A timeout, a conflict and a request that came too early may all be retried.
            408 | 409 | 425 => Self::Failed,
            500.. if status != 501 => Self::Failed,
            _ => Self::Rejected,
        }
    }
}

impl ErrorBody {
    /// The class of the error, given its HTTP status.
    fn class(&self, status: u16) -> Class {
        match Class::of(status) {
            Class::Throttled | Class::Rejected if self.is_unpaid() => Class::Unpaid,
            Class::Rejected if status == 400 && self.refuses_key => Class::KeyRefused,
            class => class,
        }
    }

    /// Whether it says that the account cannot pay, or has a quota of zero.
    fn is_unpaid(&self) -> bool {
        let message = || self.message.to_ascii_lowercase();
        self.has_code(&UNPAID)
            || self.pause == Some(Pause::Endless)
            || UNPAID_PHRASES.iter().any(|phrase| message().contains(phrase))
    }

    fn has_code(&self, words: &[&str]) -> bool {
        self.words.iter().any(|word| words.contains(&word.as_str()))
    }

    fn retry_after(&self) -> Option<Duration> {
        match self.pause? {
            Pause::Of(pause) => Some(pause),
            Pause::Endless => None,
        }
    }

    /// Reads an error body in any of the forms that servers send.
    fn read(body: &Value) -> Self {
        match body {
            // Google wraps the object in a list.
            Value::Array(list) => list.first().map(Self::read).unwrap_or_default(),
            Value::Object(object) => match object.get("error") {
                Some(error) if !error.is_null() => Self::of_error(error),
                _ => Self::of_error(body),
            },
            other => Self::of_error(other),
        }
    }

    /// Reads the value of `error`, or the body itself if it has none.
    fn of_error(error: &Value) -> Self {
        let object = match error {
            Value::String(message) => {
                return Self { message: message.clone(), ..Self::default() };
            }
            Value::Object(object) => object,
            other => {
                return Self { message: other.to_string(), ..Self::default() };
            }
        };
        let texts =
            ["message", "detail", "error", "msg"].into_iter().filter_map(|name| text(object.get(name)?));
        let codes: Vec<_> =
            ["code", "type", "status"].into_iter().filter_map(|name| word(object.get(name)?)).collect();
        let status =
            codes.iter().filter_map(|code| code.parse().ok()).find(|status| (400..600).contains(status));
        let whole = || error.to_string();
        let details = object.get("details");
        Self {
            message: texts.take(1).next().unwrap_or_else(whole),
            words: codes,
            status,
            pause: details.and_then(google_rpc::pause),
            refuses_key: details.is_some_and(google_rpc::refuses_key),
        }
    }
}

/// A text, or the first message of `FastAPI`'s list of validation errors.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => list.first()?.get("msg").and_then(Value::as_str).map(ToOwned::to_owned),
        _ => None,
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(word) => Some(word.to_ascii_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    const KEY: &str = "sk-proj-0123456789";

    fn errors() -> ErrorBuilder {
        ErrorBuilder::new(VendorId::new("v").unwrap(), Some(SecretString::from(KEY)))
    }

    fn refused(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> VendorError {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        errors().refused(StatusCode::from_u16(status).unwrap(), &pairs.collect(), body.as_bytes())
    }

    #[test]
    fn a_status_determines_whether_a_call_is_retryable() {
        for (status, retryable) in [
            (301, false),
            (400, false),
            (401, false),
            (402, false),
            (403, false),
            (404, false),
            (408, true),
            (409, true),
            (413, false),
            (422, false),
            (425, true),
            (429, true),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (504, true),
            (529, true),
        ] {
            assert_eq!(refused(status, &[], "").is_retryable(), retryable, "{status}");
        }
    }

    #[test]
    fn throttling_is_distinguished_from_an_unpaid_account() {
        let slow_down = r#"{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}"#;
        let error = refused(429, &[("retry-after", "2")], slow_down);
        assert!(matches!(error, VendorError::Throttled { .. }), "{error:?}");
        assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(2)));
        assert!(matches!(refused(503, &[("retry-after", "1")], ""), VendorError::Throttled { .. }));
        assert!(matches!(refused(503, &[], ""), VendorError::Failed { status: 503, .. }));
        let limits_of_every_answer = [("x-ratelimit-reset-requests", "6ms")];
        assert!(matches!(refused(503, &limits_of_every_answer, ""), VendorError::Failed { status: 503, .. }));
        let unpaid =
            r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#;
        let error = refused(429, &[("retry-after", "2")], unpaid);
        assert!(matches!(error, VendorError::Unpaid { status: 429, .. }), "{error:?}");
    }

    #[test]
    fn an_unpaid_account_is_recognised_at_any_status() {
        let saying = |code: &str, message: &str| {
            format!(r#"{{"error": {{"type": "{code}", "message": "{message}"}}}}"#)
        };
        for (status, code, message, unpaid) in [
            (400, "invalid_request_error", "Your credit balance is too low to access the API.", true),
            (400, "invalid_request_error", "max_tokens: must be at most 8192", false),
            (400, "FAILED_PRECONDITION", "No free tier there. Please enable billing on your project.", true),
            (402, "RESOURCE_EXHAUSTED", "No credit is left.", true),
            (402, "", "", true),
            (403, "billing_not_active", "", true),
            (429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.", true),
            (429, "RESOURCE_EXHAUSTED", "Quota exceeded.", false),
            // A server error may mention anything; its status counts.
            (500, "api_error", "could not read the credit balance is too low", false),
        ] {
            let error = refused(status, &[], &saying(code, message));
            assert_eq!(matches!(error, VendorError::Unpaid { .. }), unpaid, "{status} {code}: {error:?}");
            assert!(!unpaid || (!error.is_retryable() && error.is_workers_own()), "{error:?}");
        }
    }

    #[test]
    fn each_vendors_retry_delay_is_read() {
        let google = r#"[{"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerMinute"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}]"#;
        let anthropic = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}"#;
        let overloaded =
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
        let wait = |status, headers, body| match refused(status, headers, body) {
            VendorError::Throttled { retry_after, .. } => Ok(retry_after.map(|wait| wait.as_millis())),
            other => Err(other.is_retryable()),
        };
        assert_eq!(wait(429, &[], google), Ok(Some(34_500)));
        assert_eq!(
            wait(429, &[("retry-after", "2")], google),
            Ok(Some(2_000)),
            "the header takes precedence"
        );
        assert_eq!(wait(429, &[("retry-after", "7")], anthropic), Ok(Some(7_000)));
        assert_eq!(wait(529, &[("retry-after", "7")], overloaded), Ok(Some(7_000)));
        assert_eq!(wait(529, &[], overloaded), Err(true));
        let in_stream = errors().in_stream(&json_or_text(google.as_bytes())[0]["error"]);
        assert_eq!(in_stream.retry_after(), Some(Duration::from_millis(34_500)));
    }

    #[test]
    fn the_message_is_found_in_every_form_of_error_body() {
        for (body, expected) in [
            (r#"{"error": {"message": "no such model", "type": "x"}}"#, "no such model"),
            (r#"{"error": "no such model"}"#, "no such model"),
            (
                r#"[{"error": {"code": 404, "message": "no such model", "status": "NOT_FOUND"}}]"#,
                "no such model",
            ),
            (r#"{"object": "error", "message": "no such model", "code": 404}"#, "no such model"),
            (r#"{"detail": "no such model"}"#, "no such model"),
            (r#"{"detail": [{"loc": ["body"], "msg": "no such model"}]}"#, "no such model"),
            ("no such\n  model\0", "no such model"),
            ("<html><h1>404</h1></html>", "Not Found"),
            ("", "Not Found"),
            (r#"{"odd": true}"#, r#"{"odd":true}"#),
            ("null", "null"),
        ] {
            let VendorError::Rejected { message, .. } = refused(404, &[], body) else { panic!("{body}") };
            assert_eq!(message, expected, "{body}");
        }
    }

    #[test]
    fn a_message_is_cut_and_never_contains_the_key() {
        let long = format!("{} {KEY} {}", "x".repeat(MESSAGE_CHARS_MAX - 6), "é".repeat(1000));
        for error in [
            refused(
                401,
                &[],
                &format!(r#"{{"error": {{"message": "Incorrect API key provided: {KEY}."}}}}"#),
            ),
            refused(500, &[], &long),
            errors().garbled(&long),
            errors().in_stream(&Value::String(long.clone())),
        ] {
            let text = format!("{error} {error:?}");
            assert!(!text.contains("sk-") && text.contains("[key"), "{text}");
            assert!(error.to_string().chars().count() < MESSAGE_CHARS_MAX + 80, "{text}");
        }
        assert!(!format!("{:?}", errors()).contains(KEY));
    }

    #[test]
    fn an_error_in_a_stream_is_classified_by_its_codes() {
        let class = |json: &str| match errors().in_stream(&json_or_text(json.as_bytes())) {
            VendorError::Throttled { .. } => 'T',
            VendorError::Unpaid { .. } => 'U',
            VendorError::Rejected { .. } => 'R',
            VendorError::Failed { .. } => 'F',
            other => panic!("{other:?}"),
        };
        for (json, expected) in [
            (r#"{"message": "slow down", "type": "rate_limit_error"}"#, 'T'),
            (r#"{"message": "slow down", "code": 429}"#, 'T'),
            (r#"{"message": "bad", "type": "BadRequestError", "code": 400}"#, 'R'),
            (r#"{"message": "too long", "code": "context_length_exceeded"}"#, 'R'),
            (r#"{"message": "pay", "code": "insufficient_quota"}"#, 'U'),
            (r#"{"message": "pay", "code": "429", "type": "insufficient_quota"}"#, 'U'),
            (r#"{"message": "pay", "type": "billing_error"}"#, 'U'),
            (r#"{"message": "Your credit balance is too low.", "type": "invalid_request_error"}"#, 'U'),
            (r#"{"message": "pay", "code": 402}"#, 'U'),
            (r#"{"message": "big", "type": "request_too_large"}"#, 'R'),
            (r#"{"message": "slow down", "status": "RESOURCE_EXHAUSTED"}"#, 'T'),
            (r#"{"message": "busy", "type": "overloaded_error"}"#, 'F'),
            (r#"{"message": "upstream", "code": 502}"#, 'F'),
            (r#"{"message": "oops", "type": "server_error"}"#, 'F'),
            (r#""oops""#, 'F'),
        ] {
            assert_eq!(class(json), expected, "{json}");
        }
    }
}
