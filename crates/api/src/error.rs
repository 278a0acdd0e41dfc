//! The table of errors: each code, and how the gRPC API and the OpenAI-compatible API report it.
//!
//! The size of an error is bounded, whatever a client sent: gRPC clients read it from headers, which they limit to a few
//! kilobytes.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

/// The domain of every google.rpc.ErrorInfo.
const DOMAIN: &str = "podium";
/// Most problems that one error lists.
const PROBLEMS_MAX: usize = 12;
/// Longest message of an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 2048;
/// Longest message in a gRPC status, which holds it twice, once percent-encoded. Clients accept 8 KiB of metadata by default.
const STATUS_MESSAGE_BYTES_MAX: usize = 1024;
/// Most bytes of all problems of a gRPC status together.
const VIOLATIONS_BYTES_MAX: usize = 2048;
/// Longest name of a field, in bytes.
const FIELD_BYTES_MAX: usize = 128;

/// Every error that a client can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The request is not JSON.
    InvalidJson,
    /// A field is missing.
    MissingParameter,
    /// A field is of the wrong type or out of its bounds.
    InvalidValue,
    /// The field is unknown.
    UnknownParameter,
    /// Chat Completions has the field, but Podium does not support its value.
    UnsupportedParameter,
    /// The policy allows no worker of the pool, or none that supports the request.
    NoWorkerAllowed,
    /// No model of that name is served.
    ModelNotFound,
    /// The run is unknown.
    RunNotFound,
    /// The response is unknown.
    ResponseNotFound,
    /// The conversation, or one of its items, does not exist.
    ConversationNotFound,
    /// Another request changes the conversation.
    ConversationLocked,
    /// The response that a request continues is unknown.
    PreviousResponseNotFound,
    /// The route is unknown.
    RouteNotFound,
    /// The route exists, the method does not.
    MethodNotAllowed,
    /// The request is longer than allowed.
    BodyTooLarge,
    /// By its headers, the request's body is not JSON or is compressed.
    UnsupportedMediaType,
    /// The request's body did not arrive in time.
    RequestTimeout,
    /// The request came from a web page, or was sent to a host name, that is not permitted.
    ForeignOrigin,
    /// The request's transfer coding is not implemented.
    UnsupportedTransferCoding,
    /// The conversation fits the context of no worker.
    ContextLengthExceeded,
    /// The request id was used for another request.
    IdempotencyMismatch,
    /// The run has ended and cannot be cancelled.
    RunEnded,
    /// The run has not ended, and cannot be rated yet.
    RunNotEnded,
    /// The run waits for no tool results.
    RunNotSuspended,
    /// The run has no answer: no plan could be made.
    PlanningFailed,
    /// The run has no answer: a step that the answer needs failed.
    StepFailed,
    /// The run has no answer: its final step failed.
    FinalStepFailed,
    /// The run has no answer: its deadline passed.
    RunDeadlineExceeded,
    /// The run has no answer: the results of its tool calls did not come in time.
    SuspensionExpired,
    /// The run has no answer: its cost cap was reached.
    CostCapReached,
    /// The run, or its plan, does not fit a budget.
    InsufficientQuota,
    /// The key is unknown or was revoked.
    InvalidApiKey,
    /// A key is required, and the request has none.
    MissingApiKey,
    /// The run has no answer: a client cancelled it.
    RunCancelled,
    /// The final answer does not begin with the text that was streamed.
    AnswerRestarted,
    /// The call took longer than its caller allowed.
    CallDeadlineExceeded,
    /// The server is stopping.
    Stopping,
    /// The run has no answer: the worker's vendor kept rejecting calls because of its rate limit.
    WorkerRateLimited,
    /// The tenant has as many open streams as it may.
    TooManyStreams,
    /// Too many bytes of answers wait for clients to read them.
    Overloaded,
    /// The store or the queue does not answer.
    Unavailable,
    /// A defect of the server.
    Internal,
}

/// How each API reports an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The reason in google.rpc.ErrorInfo.
    pub reason: &'static str,
    /// The gRPC status.
    pub grpc: Code,
    /// The HTTP status.
    pub status: u16,
    /// `type` of the OpenAI error.
    pub kind: &'static str,
    /// `code` of the OpenAI error.
    pub code: &'static str,
    /// Whether the same request may succeed later without paying twice. OpenAI's clients repeat 409, 429 and 5xx by
    /// themselves; the header `x-should-retry` stops them where a repetition would pay for another run.
    pub retry: bool,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const QUOTA: &str = "insufficient_quota";
const RATE: &str = "rate_limit_error";

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 42] = [
        Self::InvalidJson,
        Self::MissingParameter,
        Self::InvalidValue,
        Self::UnknownParameter,
        Self::UnsupportedParameter,
        Self::NoWorkerAllowed,
        Self::ModelNotFound,
        Self::RunNotFound,
        Self::ResponseNotFound,
        Self::ConversationNotFound,
        Self::ConversationLocked,
        Self::PreviousResponseNotFound,
        Self::RouteNotFound,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::RequestTimeout,
        Self::ForeignOrigin,
        Self::UnsupportedTransferCoding,
        Self::ContextLengthExceeded,
        Self::IdempotencyMismatch,
        Self::RunEnded,
        Self::RunNotEnded,
        Self::RunNotSuspended,
        Self::PlanningFailed,
        Self::StepFailed,
        Self::FinalStepFailed,
        Self::RunDeadlineExceeded,
        Self::SuspensionExpired,
        Self::CostCapReached,
        Self::InsufficientQuota,
        Self::InvalidApiKey,
        Self::MissingApiKey,
        Self::RunCancelled,
        Self::AnswerRestarted,
        Self::CallDeadlineExceeded,
        Self::Stopping,
        Self::WorkerRateLimited,
        Self::TooManyStreams,
        Self::Overloaded,
        Self::Unavailable,
        Self::Internal,
    ];

    /// How each API reports this error.
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub const fn mapping(self) -> Mapping {
        let (reason, grpc, status, kind, code, retry) = match self {
            Self::InvalidJson => ("INVALID_JSON", Code::InvalidArgument, 400, INVALID, "invalid_json", false),
            Self::MissingParameter => (
                "MISSING_PARAMETER",
                Code::InvalidArgument,
                400,
                INVALID,
                "missing_required_parameter",
                false,
            ),
            Self::InvalidValue => {
                ("INVALID_VALUE", Code::InvalidArgument, 400, INVALID, "invalid_value", false)
            }
            Self::UnknownParameter => {
                ("UNKNOWN_PARAMETER", Code::InvalidArgument, 400, INVALID, "unknown_parameter", false)
            }
            Self::UnsupportedParameter => {
                ("UNSUPPORTED_PARAMETER", Code::InvalidArgument, 400, INVALID, "unsupported_parameter", false)
            }
            Self::NoWorkerAllowed => {
                ("NO_WORKER_ALLOWED", Code::InvalidArgument, 400, INVALID, "no_worker_allowed", false)
            }
            Self::ModelNotFound => {
                ("MODEL_NOT_FOUND", Code::NotFound, 404, INVALID, "model_not_found", false)
            }
            Self::RunNotFound => ("RUN_NOT_FOUND", Code::NotFound, 404, INVALID, "run_not_found", false),
            Self::ResponseNotFound => {
                ("RESPONSE_NOT_FOUND", Code::NotFound, 404, INVALID, "response_not_found", false)
            }
            Self::ConversationNotFound => {
                ("CONVERSATION_NOT_FOUND", Code::NotFound, 404, INVALID, "conversation_not_found", false)
            }
            Self::ConversationLocked => {
                ("CONVERSATION_LOCKED", Code::FailedPrecondition, 409, INVALID, "conversation_locked", false)
            }
            Self::PreviousResponseNotFound => (
                "PREVIOUS_RESPONSE_NOT_FOUND",
                Code::NotFound,
                400,
                INVALID,
                "previous_response_not_found",
                false,
            ),
            Self::RouteNotFound => {
                ("ROUTE_NOT_FOUND", Code::Unimplemented, 404, INVALID, "unknown_url", false)
            }
            Self::MethodNotAllowed => {
                ("METHOD_NOT_ALLOWED", Code::Unimplemented, 405, INVALID, "method_not_allowed", false)
            }
            Self::BodyTooLarge => {
                ("BODY_TOO_LARGE", Code::ResourceExhausted, 413, INVALID, "request_too_large", false)
            }
            Self::UnsupportedMediaType => (
                "UNSUPPORTED_MEDIA_TYPE",
                Code::InvalidArgument,
                415,
                INVALID,
                "unsupported_media_type",
                false,
            ),
            Self::RequestTimeout => {
                ("REQUEST_TIMEOUT", Code::Cancelled, 408, INVALID, "request_timeout", true)
            }
            Self::ForeignOrigin => {
                ("FOREIGN_ORIGIN", Code::PermissionDenied, 403, INVALID, "foreign_origin", false)
            }
            Self::UnsupportedTransferCoding => (
                "UNSUPPORTED_TRANSFER_CODING",
                Code::Unimplemented,
                501,
                INVALID,
                "unsupported_transfer_coding",
                false,
            ),
            Self::ContextLengthExceeded => (
                "CONTEXT_LENGTH_EXCEEDED",
                Code::InvalidArgument,
                400,
                INVALID,
                "context_length_exceeded",
                false,
            ),
            Self::IdempotencyMismatch => (
                "IDEMPOTENCY_MISMATCH",
                Code::FailedPrecondition,
                409,
                INVALID,
                "idempotency_mismatch",
                false,
            ),
            Self::RunEnded => ("RUN_ENDED", Code::FailedPrecondition, 409, INVALID, "run_ended", false),
            Self::RunNotEnded => {
                ("RUN_NOT_ENDED", Code::FailedPrecondition, 409, INVALID, "run_not_ended", false)
            }
            Self::RunNotSuspended => {
                ("RUN_NOT_SUSPENDED", Code::FailedPrecondition, 409, INVALID, "run_not_suspended", false)
            }
            Self::PlanningFailed => ("PLANNING_FAILED", Code::Aborted, 500, SERVER, "planning_failed", false),
            Self::StepFailed => ("STEP_FAILED", Code::Aborted, 500, SERVER, "step_failed", false),
            Self::FinalStepFailed => {
                ("FINAL_STEP_FAILED", Code::Aborted, 500, SERVER, "final_step_failed", false)
            }
            Self::RunDeadlineExceeded => {
                ("RUN_DEADLINE_EXCEEDED", Code::DeadlineExceeded, 504, SERVER, "deadline_exceeded", false)
            }
            Self::SuspensionExpired => {
                ("SUSPENSION_EXPIRED", Code::DeadlineExceeded, 504, SERVER, "suspension_expired", false)
            }
            Self::CostCapReached => {
                ("COST_CAP_REACHED", Code::ResourceExhausted, 429, QUOTA, "cost_cap_reached", false)
            }
            Self::InsufficientQuota => {
                ("INSUFFICIENT_QUOTA", Code::ResourceExhausted, 429, QUOTA, "insufficient_quota", false)
            }
            Self::InvalidApiKey => {
                ("INVALID_API_KEY", Code::Unauthenticated, 401, INVALID, "invalid_api_key", false)
            }
            Self::MissingApiKey => {
                ("MISSING_API_KEY", Code::Unauthenticated, 401, INVALID, "missing_api_key", false)
            }
            Self::RunCancelled => ("RUN_CANCELLED", Code::Cancelled, 409, INVALID, "run_cancelled", false),
            Self::AnswerRestarted => {
                ("ANSWER_RESTARTED", Code::Aborted, 500, SERVER, "answer_restarted", true)
            }
            Self::CallDeadlineExceeded => (
                "CALL_DEADLINE_EXCEEDED",
                Code::DeadlineExceeded,
                504,
                SERVER,
                "call_deadline_exceeded",
                true,
            ),
            Self::Stopping => ("STOPPING", Code::Unavailable, 503, SERVER, "stopping", true),
            Self::WorkerRateLimited => {
                ("WORKER_RATE_LIMITED", Code::ResourceExhausted, 429, RATE, "worker_rate_limited", true)
            }
            Self::TooManyStreams => {
                ("TOO_MANY_STREAMS", Code::ResourceExhausted, 429, RATE, "too_many_streams", true)
            }
            Self::Overloaded => ("OVERLOADED", Code::Unavailable, 503, SERVER, "overloaded", true),
            Self::Unavailable => ("UNAVAILABLE", Code::Unavailable, 503, SERVER, "unavailable", true),
            Self::Internal => ("INTERNAL", Code::Internal, 500, SERVER, "internal_error", false),
        };
        Mapping { reason, grpc, status, kind, code, retry }
    }

    /// The time after which the same request may succeed, if it depends on the code alone.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Stopping | Self::Unavailable | Self::Overloaded | Self::TooManyStreams => {
                Some(Duration::from_secs(1))
            }
            // The run has already waited until its deadline.
            Self::WorkerRateLimited => Some(Duration::from_secs(20)),
            _ => None,
        }
    }

    /// The code for a run's failure.
    pub fn of_failure(reason: &podium_domain::run::FailReason) -> Self {
        use podium_domain::run::FailReason as Reason;
        match reason {
            Reason::PlanningFailed { .. } => Self::PlanningFailed,
            Reason::FinalStepFailed { is_earlier, .. } => match reason.cause() {
                Some("worker_rate_limited") => Self::WorkerRateLimited,
                Some("context_length_exceeded") => Self::ContextLengthExceeded,
                _ if *is_earlier => Self::StepFailed,
                _ => Self::FinalStepFailed,
            },
            Reason::DeadlineExceeded { .. } => Self::RunDeadlineExceeded,
            Reason::SuspensionExpired { .. } => Self::SuspensionExpired,
            Reason::CostCapReached { .. } => Self::CostCapReached,
            Reason::BudgetExhausted { .. } => Self::InsufficientQuota,
        }
    }
}

/// A problem with one field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The field, as the client writes it: `messages[2].content`.
    pub field: String,
    /// The problem, in words.
    pub problem: String,
}

/// An error for a client. Holds nothing that the client may not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code, which both APIs map to their statuses.
    pub code: ErrorCode,
    /// The message for people.
    pub message: String,
    /// The fields that caused the error.
    pub fields: Vec<FieldProblem>,
    /// The time after which the request may succeed, if it differs from that of the code.
    retry_after: Option<Duration>,
}

impl ApiError {
    /// An error that no field caused.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: cut(message.into(), MESSAGE_BYTES_MAX), fields: Vec::new(), retry_after: None }
    }

    /// An error that one field caused.
    pub fn on_field(code: ErrorCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        let message = cut(message.into(), MESSAGE_BYTES_MAX);
        let field = cut(field.into(), FIELD_BYTES_MAX);
        let fields = vec![FieldProblem { field, problem: message.clone() }];
        Self { code, message, fields, retry_after: None }
    }

    /// All listed problems of a request, as one error.
    pub fn on_fields(problems: Problems) -> Self {
        let mut message = String::new();
        for problem in &problems.listed {
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&problem.problem);
        }
        let mut message = cut(message, MESSAGE_BYTES_MAX - MORE.len());
        if problems.are_cut {
            message.push_str(MORE);
        }
        Self { code: ErrorCode::InvalidValue, message, fields: problems.listed, retry_after: None }
    }

    /// The same error with the time after which the request may succeed.
    #[must_use]
    pub fn retrying_after(self, time: Option<Duration>) -> Self {
        Self { retry_after: time, ..self }
    }

    /// The time after which the same request may succeed, if known. Both APIs tell it to the client.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.or_else(|| self.code.retry_after())
    }

    /// The first field that caused the error.
    pub fn param(&self) -> Option<&str> {
        self.fields.first().map(|field| field.field.as_str())
    }
}

const MORE: &str = "; and more";

/// The first few problems of a request's fields. The number is bounded, so that an invalid request costs no more than a valid one.
#[derive(Debug, Default)]
pub struct Problems {
    listed: Vec<FieldProblem>,
    are_cut: bool,
}

impl Problems {
    /// Lists a problem, unless the list is full.
    pub fn add(&mut self, field: &str, problem: impl Into<String>) {
        if self.listed.len() == PROBLEMS_MAX {
            self.are_cut = true;
            return;
        }
        let (field, problem) =
            (cut(field.to_owned(), FIELD_BYTES_MAX), cut(problem.into(), MESSAGE_BYTES_MAX));
        self.listed.push(FieldProblem { field, problem });
    }

    /// Whether no problem is listed.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The number of listed problems.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether further problems are left out.
    pub fn is_full(&self) -> bool {
        self.are_cut
    }
}

/// The beginning of a text, at most `bytes` long.
fn cut(mut text: String, bytes: usize) -> String {
    const MARK: &str = "…";
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let mapping = error.code.mapping();
        let mut details = ErrorDetails::new();
        details.set_error_info(mapping.reason, DOMAIN, [] as [(String, String); 0]);
        if let Some(time) = error.retry_after() {
            details.set_retry_info(Some(time));
        }
        if !error.fields.is_empty() {
            let each = VIOLATIONS_BYTES_MAX / error.fields.len();
            let violations = error.fields.into_iter().map(|problem| {
                let rest = each.saturating_sub(problem.field.len());
                FieldViolation::new(problem.field, cut(problem.problem, rest))
            });
            details.set_bad_request(violations.collect::<Vec<_>>());
        }
        Self::with_error_details(mapping.grpc, cut(error.message, STATUS_MESSAGE_BYTES_MAX), details)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_its_own_names_and_statuses_that_agree() {
        let mut reasons = BTreeSet::new();
        let mut codes = BTreeSet::new();
        for code in ErrorCode::ALL {
            let mapping = code.mapping();
            assert!(reasons.insert(mapping.reason) && codes.insert(mapping.code), "{code:?}");
            assert!(mapping.reason.len() <= 63);
            if mapping.status == 501 {
                assert_eq!(mapping.grpc, Code::Unimplemented, "{code:?}");
                continue;
            }
            let is_server_fault = matches!(mapping.grpc, Code::Internal | Code::Unavailable | Code::Aborted);
            assert_eq!(
                mapping.status >= 500,
                is_server_fault || mapping.grpc == Code::DeadlineExceeded,
                "{code:?}"
            );
        }
    }

    #[test]
    fn a_status_names_the_reason_and_the_field() {
        let error = ApiError::on_field(ErrorCode::InvalidValue, "policy.steps_max", "steps_max is 99");
        let status = Status::from(error);
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(
            (status.code(), info.reason.as_str(), info.domain.as_str()),
            (Code::InvalidArgument, "INVALID_VALUE", "podium")
        );
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "policy.steps_max");
    }

    #[test]
    fn a_status_says_when_to_retry() {
        let delay = |error: ApiError| {
            Status::from(error).get_error_details().retry_info().and_then(|info| info.retry_delay)
        };
        for code in
            [ErrorCode::Stopping, ErrorCode::Unavailable, ErrorCode::Overloaded, ErrorCode::TooManyStreams]
        {
            assert_eq!(delay(ApiError::new(code, "later")), Some(Duration::from_secs(1)), "{code:?}");
        }
        let quota = ApiError::new(ErrorCode::InsufficientQuota, "tomorrow");
        assert_eq!(delay(quota.clone()), None);
        let day = Some(Duration::from_hours(24));
        assert_eq!(delay(quota.retrying_after(day)), day);
    }

    #[test]
    fn an_error_with_many_long_problems_fits_the_headers_of_a_grpc_client() {
        let mut problems = Problems::default();
        for index in 0..100_000 {
            problems.add(&format!("messages[{index}].role"), "é".repeat(5_000));
        }
        assert!(problems.is_full());
        let error = ApiError::on_fields(problems);
        assert!(error.message.len() <= 2048 && error.message.ends_with("; and more"), "{}", error.message);
        assert_eq!(error.fields.len(), 12);
        let mut headers = tonic::codegen::http::HeaderMap::new();
        Status::from(error).add_header(&mut headers).unwrap();
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(bytes < 8 << 10, "{bytes}");
    }

    #[test]
    fn a_cut_text_ends_at_a_character() {
        assert_eq!(cut("ééé".to_owned(), 6), "ééé");
        assert_eq!(cut("ééé".to_owned(), 5), "é…");
        assert_eq!(cut("abcdef".to_owned(), 5), "ab…");
    }
}
