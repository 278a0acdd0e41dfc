//! Errors of calls to NATS.

use std::path::PathBuf;
use std::time::Duration;

use podium_ports::BoxError;
use podium_ports::live::LiveError;
use podium_ports::queue::QueueError;

use crate::link::ServerVersion;

/// A failed call to NATS. An unsupported server version, a refusal and an invalid option need an operator; the others may be
/// temporary.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// An option is invalid.
    #[error("option `{option}` {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// The requirement.
        message: String,
    },
    /// No server is reachable, or none accepts the credentials.
    #[error("could not connect to NATS")]
    Connect(#[source] BoxError),
    /// The credentials file cannot be read.
    #[error("option `credentials`: file {} cannot be read", file.display())]
    Credentials {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The process has no connection to NATS.
    #[error("could not {call}: NATS is unreachable: {why}")]
    Unreachable {
        /// The attempted call.
        call: &'static str,
        /// The error of each server that was tried.
        why: String,
    },
    /// The server's version is not supported.
    #[error("NATS server version {found} is not supported; use {} or newer", ServerVersion::MIN)]
    TooOld {
        /// The version that it reports.
        found: String,
    },
    /// The server did not answer in time: the connection is down, or the server is overloaded or hangs.
    #[error("NATS did not {call} within {} ms", limit.as_millis())]
    Timeout {
        /// The attempted call.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The request had no responders: the stream or consumer is gone, or JetStream is not enabled.
    #[error("NATS could not {call}: no responders; check that JetStream is enabled on the server")]
    NoResponders {
        /// The attempted call.
        call: &'static str,
    },
    /// JetStream answered with an error.
    #[error("JetStream refused to {call}, error {code}: {message}")]
    Refused {
        /// The attempted call.
        call: &'static str,
        /// JetStream's error code.
        code: u64,
        /// JetStream's description.
        message: String,
    },
    /// The answer cannot be decoded.
    #[error("NATS could not {call}: its answer cannot be decoded")]
    Undecodable {
        /// The attempted call.
        call: &'static str,
        /// The decoding error.
        #[source]
        source: BoxError,
    },
    /// The client library failed.
    #[error("the NATS client could not {call}")]
    Client {
        /// The attempted call.
        call: &'static str,
        /// The library's error.
        #[source]
        source: BoxError,
    },
}

impl From<NatsError> for QueueError {
    fn from(error: NatsError) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl From<NatsError> for LiveError {
    fn from(error: NatsError) -> Self {
        Self(Box::new(error))
    }
}
