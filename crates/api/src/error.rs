//! The one table of errors: what each is called, and what it looks like at the gRPC door and at the OpenAI door.

use std::fmt;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

/// The domain of every google.rpc.ErrorInfo.
const DOMAIN: &str = "podium";

/// Everything that can go wrong towards a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The request is not JSON.
    InvalidJson,
    /// A field is missing.
    MissingParameter,
    /// A field is of the wrong type or out of its bounds.
    InvalidValue,
    /// There is no field of that name.
    UnknownParameter,
    /// The field exists in the API that we speak, but what it asks for does not here.
    UnsupportedParameter,
    /// The policy allows no worker of the pool, or none that can be asked for what is wanted.
    NoWorkerAllowed,
    /// No model of that name is served.
    ModelNotFound,
    /// There is no such run.
    RunNotFound,
    /// There is no such route.
    RouteNotFound,
    /// The route exists, the method does not.
    MethodNotAllowed,
    /// The request is longer than allowed.
    BodyTooLarge,
    /// The run has ended and cannot be taken back.
    RunEnded,
    /// The run has not ended, and cannot be rated yet.
    RunNotEnded,
    /// The run has no answer: no plan could be made.
    PlanningFailed,
    /// The run has no answer: its final step failed.
    FinalStepFailed,
    /// The run has no answer: its deadline passed.
    RunDeadlineExceeded,
    /// The run has no answer: its cost cap was reached.
    CostCapReached,
    /// A budget has no room for the run; or the run has no answer, because a budget had no room for its plan.
    InsufficientQuota,
    /// The key is not one of ours, or was revoked.
    InvalidApiKey,
    /// A key is needed and there is none.
    MissingApiKey,
    /// The run has no answer: somebody took it back.
    RunCancelled,
    /// Part of an answer was streamed that the final answer does not begin with.
    AnswerRestarted,
    /// The call took longer than its caller allowed.
    CallDeadlineExceeded,
    /// The server is going down.
    Stopping,
    /// The store or the queue does not answer.
    Unavailable,
    /// A defect of ours.
    Internal,
}

/// What an error looks like at each door.
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
    /// Whether the same request may succeed later at no other price. OpenAI's clients repeat 409, 429 and 5xx by
    /// themselves; a run that ended is not to be paid for again, so they are told not to.
    pub retry: bool,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const QUOTA: &str = "insufficient_quota";

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 26] = [
        Self::InvalidJson,
        Self::MissingParameter,
        Self::InvalidValue,
        Self::UnknownParameter,
        Self::UnsupportedParameter,
        Self::NoWorkerAllowed,
        Self::ModelNotFound,
        Self::RunNotFound,
        Self::RouteNotFound,
        Self::MethodNotAllowed,
        Self::BodyTooLarge,
        Self::RunEnded,
        Self::RunNotEnded,
        Self::PlanningFailed,
        Self::FinalStepFailed,
        Self::RunDeadlineExceeded,
        Self::CostCapReached,
        Self::InsufficientQuota,
        Self::InvalidApiKey,
        Self::MissingApiKey,
        Self::RunCancelled,
        Self::AnswerRestarted,
        Self::CallDeadlineExceeded,
        Self::Stopping,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The table.
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
            Self::RouteNotFound => {
                ("ROUTE_NOT_FOUND", Code::Unimplemented, 404, INVALID, "unknown_url", false)
            }
            Self::MethodNotAllowed => {
                ("METHOD_NOT_ALLOWED", Code::Unimplemented, 405, INVALID, "method_not_allowed", false)
            }
            Self::BodyTooLarge => {
                ("BODY_TOO_LARGE", Code::ResourceExhausted, 413, INVALID, "request_too_large", false)
            }
            Self::RunEnded => ("RUN_ENDED", Code::FailedPrecondition, 409, INVALID, "run_ended", false),
            Self::RunNotEnded => {
                ("RUN_NOT_ENDED", Code::FailedPrecondition, 409, INVALID, "run_not_ended", false)
            }
            Self::PlanningFailed => ("PLANNING_FAILED", Code::Aborted, 500, SERVER, "planning_failed", false),
            Self::FinalStepFailed => {
                ("FINAL_STEP_FAILED", Code::Aborted, 500, SERVER, "final_step_failed", false)
            }
            Self::RunDeadlineExceeded => {
                ("RUN_DEADLINE_EXCEEDED", Code::DeadlineExceeded, 504, SERVER, "deadline_exceeded", false)
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
            Self::Unavailable => ("UNAVAILABLE", Code::Unavailable, 503, SERVER, "unavailable", true),
            Self::Internal => ("INTERNAL", Code::Internal, 500, SERVER, "internal_error", false),
        };
        Mapping { reason, grpc, status, kind, code, retry }
    }

    /// The code for a run's failure, by the stable name of its reason.
    pub fn of_failure(reason: &podium_domain::run::FailReason) -> Self {
        use podium_domain::run::FailReason as Reason;
        match reason {
            Reason::PlanningFailed { .. } => Self::PlanningFailed,
            Reason::FinalStepFailed { .. } => Self::FinalStepFailed,
            Reason::DeadlineExceeded { .. } => Self::RunDeadlineExceeded,
            Reason::CostCapReached { .. } => Self::CostCapReached,
            Reason::BudgetExhausted { .. } => Self::InsufficientQuota,
        }
    }
}

/// What is wrong with one field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The field, as the client writes it: `messages[2].content`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// An error on its way to a client. Holds nothing that a client may not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Which one.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The fields that are to blame.
    pub fields: Vec<FieldProblem>,
}

impl ApiError {
    /// An error that no field is to blame for.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fields: Vec::new() }
    }

    /// An error that one field is to blame for.
    pub fn on_field(code: ErrorCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        let fields = vec![FieldProblem { field: field.into(), problem: message.clone() }];
        Self { code, message, fields }
    }

    /// All that is wrong with a request; `problems` is not empty.
    pub fn on_fields(problems: Vec<FieldProblem>) -> Self {
        let lines: Vec<_> = problems.iter().map(|p| p.problem.as_str()).collect();
        Self { code: ErrorCode::InvalidValue, message: lines.join("; "), fields: problems }
    }

    /// The first field that is to blame.
    pub fn param(&self) -> Option<&str> {
        self.fields.first().map(|field| field.field.as_str())
    }
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
        if !error.fields.is_empty() {
            let violations = error.fields.into_iter().map(|p| FieldViolation::new(p.field, p.problem));
            details.set_bad_request(violations.collect::<Vec<_>>());
        }
        Self::with_error_details(mapping.grpc, error.message, details)
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
            let ours_to_mend = matches!(mapping.grpc, Code::Internal | Code::Unavailable | Code::Aborted);
            assert_eq!(
                mapping.status >= 500,
                ours_to_mend || mapping.grpc == Code::DeadlineExceeded,
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
}
