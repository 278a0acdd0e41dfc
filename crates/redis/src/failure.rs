//! Why Redis did not do what it was asked.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why Redis did not do what it was asked. Whether it did so all the same is not known.
///
/// Nothing here comes from the URL. Of an answer only its first word is kept: the rest may repeat what was sent, a password
/// among it.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No answer in time.
    #[error("Redis did not answer within {answer_max:?}")]
    Late {
        /// The time that it had.
        answer_max: Duration,
    },
    /// The connection failed.
    #[error("Redis is unreachable: {what}")]
    Unreachable {
        /// The operating system's or the TLS library's words.
        what: String,
    },
    /// It cannot serve anybody now.
    #[error("Redis answered `{code}`")]
    NotServing {
        /// Such as `LOADING`.
        code: String,
    },
    /// It refuses this request, and will again.
    #[error("Redis refused the request with `{code}`")]
    Refused {
        /// Such as `WRONGTYPE`.
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
    pub(crate) fn is_away(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Whether the connection itself is in order, so that only a new one can lead to a better answer: to another server, or with
    /// a handshake that succeeds. The connection manager connects again after failures of the connection only.
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
    fn what_concerns_one_key_is_told_from_what_concerns_all() {
        assert!(!failure("WRONGTYPE").is_away());
        assert!(failure("OOM").is_away());
        assert!(Failure::Late { answer_max: Duration::from_secs(1) }.is_away());
    }

    #[test]
    fn an_error_keeps_the_code_of_an_answer_and_nothing_else() {
        for code in ["WRONGTYPE", "OOM"] {
            let failure = failure(code);
            let texts = [failure.to_string(), format!("{failure:?}")];
            assert!(texts.iter().all(|text| text.contains(code) && !text.contains("hunter2")), "{texts:?}");
        }
    }
}
