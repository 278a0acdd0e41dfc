//! Errors of calls to Redis.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a call to Redis failed. Redis may have executed it nevertheless.
///
/// The messages contain nothing of the URL. Only the first word of an error answer is kept: the rest may repeat the request,
/// which may contain a password.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No answer in time.
    #[error("Redis did not answer within {answer_max:?}")]
    Late {
        /// The time limit.
        answer_max: Duration,
    },
    /// The connection failed.
    #[error("Redis is unreachable: {what}")]
    Unreachable {
        /// The message of the operating system or the TLS library.
        what: String,
    },
    /// It rejects all requests at present.
    #[error("Redis answered `{code}`")]
    NotServing {
        /// Its code, such as `LOADING`.
        code: String,
    },
    /// It rejects this request, now and later.
    #[error("Redis refused the request with `{code}`")]
    Refused {
        /// Its code, such as `WRONGTYPE`.
        code: String,
    },
}

impl Failure {
    pub(crate) fn from_redis(error: &RedisError) -> Self {
        let code = || error.code().unwrap_or(error.category()).to_owned();
        match error.kind() {
            ErrorKind::Io => Self::Unreachable { what: error.to_string() },
            ErrorKind::UnexpectedReturnType
            | ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::NoPerm) => {
                Self::Refused { code: code() }
            }
            ErrorKind::Extension if error.code() == Some("WRONGTYPE") => Self::Refused { code: code() },
            _ => Self::NotServing { code: code() },
        }
    }

    /// Whether other requests would fail as well.
    pub(crate) fn is_unreachable(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Whether another server may answer next, or the same one without its data. After an answer that is merely late, it has its data.
    pub(crate) fn may_lose_data(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotServing { .. })
    }

    /// Whether the connection works, so that only a new one can lead to another answer: from another server, or after a handshake
    /// that succeeds. The connection manager reconnects only after failures of the connection.
    pub(crate) fn needs_new_connection(&self) -> bool {
        matches!(self, Self::NotServing { .. } | Self::Refused { .. })
    }
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    fn failure(code: &str) -> Failure {
        Failure::from_redis(&make_extension_error(code.to_owned(), Some("near `hunter2`".to_owned())))
    }

    #[test]
    fn an_error_of_one_key_does_not_make_redis_unreachable() {
        assert!(!failure("WRONGTYPE").is_unreachable());
        assert!(failure("OOM").is_unreachable());
        assert!(Failure::Late { answer_max: Duration::from_secs(1) }.is_unreachable());
    }

    #[test]
    fn an_error_keeps_only_the_code_of_an_answer() {
        for code in ["WRONGTYPE", "OOM"] {
            let failure = failure(code);
            let texts = [failure.to_string(), format!("{failure:?}")];
            assert!(texts.iter().all(|text| text.contains(code) && !text.contains("hunter2")), "{texts:?}");
        }
    }
}
