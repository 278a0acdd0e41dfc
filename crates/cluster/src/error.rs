//! The errors that end a process of a cluster.

use std::io;
use std::path::PathBuf;

use podium_engine::OtherConductors;
use podium_planning::ChooseError;
use podium_ports::BoxError;
use podium_setup::settings::SecretError;
use podium_telemetry::TelemetryError;

/// Why a process of a cluster ended.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A secret cannot be read.
    #[error("the secret of `{key}` is unavailable")]
    Secret {
        /// The key that references it.
        key: &'static str,
        /// The cause.
        #[source]
        source: SecretError,
    },
    /// A file that the settings name cannot be read any more.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The pool's vendors cannot be set up.
    #[error("the pool's vendors cannot be set up")]
    Vendors(#[source] BoxError),
    /// A server that the process needs does not answer or refuses.
    #[error("cannot use {server}{hint}")]
    Server {
        /// Postgres, NATS or Redis.
        server: &'static str,
        /// A hint which setting may be wrong, after `; `, or nothing.
        hint: &'static str,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The conductor is unavailable.
    #[error(transparent)]
    Conductor(#[from] ChooseError),
    /// A changed pool would change the conductors.
    #[error(transparent)]
    OtherConductors(#[from] OtherConductors),
    /// The operating system refused something.
    #[error("{what}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Metrics can be neither delivered nor shown.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// A part that must run as long as the process has ended or panicked.
    #[error("a part of the process failed")]
    Failed(#[source] BoxError),
    /// A listener failed.
    #[error("a listener failed")]
    Listener(#[source] BoxError),
}
