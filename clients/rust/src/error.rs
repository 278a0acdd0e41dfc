//! Errors of the client.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Longest time that a limit may ask a client to wait before the call is repeated.
const LIMIT_DELAY_MAX: Duration = Duration::from_mins(1);

/// A client cannot be built, or a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not that of a server.
    #[error("invalid server address `{url}`: use http://HOST:PORT or https://HOST:PORT")]
    Address {
        /// The address.
        url: String,
        /// The cause.
        source: tonic::transport::Error,
    },
    /// The certificates cannot be used, or they were given for an address without TLS.
    #[error(
        "invalid TLS settings for `{url}`: certificates must be PEM, and the address must begin with https://"
    )]
    Tls {
        /// The address.
        url: String,
        /// The cause, if the TLS library reported one.
        source: Option<tonic::transport::Error>,
    },
    /// The API key has characters that a header must not have.
    #[error("invalid API key: it must have visible ASCII characters only")]
    Key(#[source] tonic::metadata::errors::InvalidMetadataValue),
    /// The server is unreachable.
    #[error("cannot connect to `{url}`")]
    Connect {
        /// The address.
        url: String,
        /// The cause.
        source: tonic::transport::Error,
    },
    /// The server, or the connection to it, reported an error.
    #[error(transparent)]
    Call(#[from] Box<CallError>),
    /// The server's response lacks a field that the API promises.
    #[error("the response to {method} has no `{field}`: is the server another version?")]
    Incomplete {
        /// The name of the call.
        method: &'static str,
        /// The missing field.
        field: &'static str,
    },
}

impl Error {
    /// The gRPC status code, if the error is of a call.
    pub fn code(&self) -> Option<Code> {
        self.call().map(|call| call.code)
    }

    /// The error of the call, if it is one.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// A call failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallError {
    /// The name of the call, such as `CreateRun`.
    pub method: &'static str,
    /// The status code. It is `Unavailable` if the connection was lost before the server answered.
    pub code: Code,
    /// The server's stable reason, such as `IDEMPOTENCY_MISMATCH`. None: the error is of the connection or of a proxy.
    pub reason: Option<String>,
    /// The message for people.
    pub message: String,
    /// The invalid fields of the request, the first dozen at most.
    pub fields: Vec<FieldViolation>,
    /// The time that the server asks the client to wait before it repeats the call.
    pub retry_delay: Option<Duration>,
    status: Status,
}

/// A field of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Its path, such as `policy.steps_max`.
    pub field: String,
    /// The problem, for people.
    pub description: String,
}

impl CallError {
    pub(crate) fn new(method: &'static str, status: Status) -> Self {
        let details = status.get_error_details();
        let reason = details.error_info().map(|info| info.reason.clone());
        let violations = details.bad_request().into_iter().flat_map(|bad| &bad.field_violations);
        let fields = violations.map(|violation| FieldViolation {
            field: violation.field.clone(),
            description: violation.description.clone(),
        });
        Self {
            method,
            code: code(&status),
            reason,
            message: status.message().to_owned(),
            fields: fields.collect(),
            retry_delay: details.retry_info().and_then(|info| info.retry_delay),
            status,
        }
    }

    /// Whether the same call may succeed later. Calls are repeated for this reason only.
    pub fn is_transient(&self) -> bool {
        match self.code {
            Code::Unavailable | Code::Aborted => true,
            // A limit that the server expects to have room again soon. A budget's next period may be weeks away.
            Code::ResourceExhausted => self.retry_delay.is_some_and(|delay| delay <= LIMIT_DELAY_MAX),
            _ => false,
        }
    }
}

/// The code, with a lost connection as `Unavailable`: tonic reports it as one of three other codes. Podium's own errors always
/// have details.
fn code(status: &Status) -> Code {
    match status.code() {
        Code::Unknown | Code::Internal | Code::Cancelled if status.details().is_empty() => Code::Unavailable,
        code => code,
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, code, message, .. } = self;
        match &self.reason {
            Some(reason) => write!(f, "{method} failed with {code:?} ({reason}): {message}"),
            None => write!(f, "{method} failed with {code:?}: {message}"),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.status)
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn the_details_of_a_status_become_fields_of_the_error() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID_VALUE", "podium", [] as [(String, String); 0]);
        details.add_bad_request_violation("policy.steps_max", "must be at most 16");
        details.set_retry_info(Some(Duration::from_secs(3)));
        let status = Status::with_error_details(Code::InvalidArgument, "steps_max is 99", details);
        let error = CallError::new("CreateRun", status);
        assert_eq!((error.code, error.reason.as_deref()), (Code::InvalidArgument, Some("INVALID_VALUE")));
        let field = FieldViolation {
            field: "policy.steps_max".to_owned(),
            description: "must be at most 16".to_owned(),
        };
        assert_eq!((&error.fields, error.retry_delay), (&vec![field], Some(Duration::from_secs(3))));
        assert_eq!(
            error.to_string(),
            "CreateRun failed with InvalidArgument (INVALID_VALUE): steps_max is 99"
        );
        assert!(!error.is_transient() && std::error::Error::source(&error).is_some());
    }

    #[test]
    fn a_limit_that_passes_soon_is_transient() {
        for (delay, is_transient) in [(None, false), (Some(1), true), (Some(60), true), (Some(61), false)] {
            let mut details = ErrorDetails::new();
            details.set_retry_info(delay.map(Duration::from_secs));
            let status = Status::with_error_details(Code::ResourceExhausted, "full", details);
            assert_eq!(CallError::new("WatchRun", status).is_transient(), is_transient, "{delay:?}");
        }
    }

    #[test]
    fn an_error_without_podiums_details_is_a_lost_connection() {
        for code in [Code::Unknown, Code::Internal, Code::Cancelled, Code::Unavailable] {
            assert_eq!(CallError::new("GetRun", Status::new(code, "reset")).code, Code::Unavailable);
        }
        for code in [Code::DeadlineExceeded, Code::NotFound, Code::OutOfRange, Code::ResourceExhausted] {
            assert!(!CallError::new("GetRun", Status::new(code, "no")).is_transient());
        }
        let ours = Status::with_error_details(Code::Internal, "a fault", {
            let mut details = ErrorDetails::new();
            details.set_error_info("INTERNAL", "podium", [] as [(String, String); 0]);
            details
        });
        assert!(!CallError::new("GetRun", ours).is_transient());
    }
}
