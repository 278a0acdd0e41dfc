//! What can go wrong with NATS.

use std::path::PathBuf;
use std::time::Duration;

use podium_ports::BoxError;
use podium_ports::live::LiveError;
use podium_ports::queue::QueueError;

use crate::link::ServerVersion;

/// NATS could not do it. Only a server that is too old, a refusal and an option need a person; the rest may pass by itself.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// An option cannot be.
    #[error("option `{option}` {message}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it must be.
        message: String,
    },
    /// No server could be reached, or none let us in.
    #[error("could not connect to NATS")]
    Connect(#[source] BoxError),
    /// The file with credentials cannot be used.
    #[error("option `credentials`: {} cannot be used", file.display())]
    Credentials {
        /// Which.
        file: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// There is no connection.
    #[error("NATS did not {call}, since it cannot be reached: {why}")]
    Away {
        /// What was asked.
        call: &'static str,
        /// What each server that was tried said or did.
        why: String,
    },
    /// The server cannot do what is needed.
    #[error("the NATS server has version {found}; {} or newer is needed", ServerVersion::MIN)]
    TooOld {
        /// Its version, as it says.
        found: String,
    },
    /// No answer in time: the connection is down, or the server is busy or stuck.
    #[error("NATS did not {call} within {} ms", limit.as_millis())]
    Timeout {
        /// What was asked.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Nobody listens for such a request: the stream or consumer is gone, or JetStream is not enabled.
    #[error("nothing in NATS answers when asked to {call}: is JetStream enabled?")]
    NobodyThere {
        /// What was asked.
        call: &'static str,
    },
    /// JetStream said no.
    #[error("JetStream refused to {call}, error {code}: {message}")]
    Refused {
        /// What was asked.
        call: &'static str,
        /// JetStream's own number for the error.
        code: u64,
        /// What it said.
        message: String,
    },
    /// The answer does not read.
    #[error("NATS answered something that does not read when asked to {call}")]
    Garbled {
        /// What was asked.
        call: &'static str,
        /// Why it does not.
        #[source]
        source: BoxError,
    },
    /// The client failed.
    #[error("the NATS client could not {call}")]
    Client {
        /// What was asked.
        call: &'static str,
        /// What happened.
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
