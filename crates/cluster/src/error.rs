//! Why a process of a cluster ended.

use std::io;
use std::path::PathBuf;

use podium_planning::ChooseError;
use podium_ports::BoxError;
use podium_setup::settings::SecretError;
use podium_telemetry::TelemetryError;

/// Why a process of a cluster ended.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A secret is unavailable.
    #[error("the secret of {key} is unavailable")]
    Secret {
        /// The key that says where it is.
        key: &'static str,
        /// What is wrong.
        #[source]
        source: SecretError,
    },
    /// A file that the settings name cannot be read any more.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The pool's vendors cannot be set up.
    #[error("the pool's vendors cannot be set up")]
    Vendors(#[source] BoxError),
    /// A server that the process stands on does not answer or refuses.
    #[error("{server} cannot be used{advice}")]
    Server {
        /// Which: Postgres, NATS or Redis.
        server: &'static str,
        /// Which setting may be wrong, after `; `, or nothing.
        advice: &'static str,
        /// What is wrong.
        #[source]
        source: BoxError,
    },
    /// The conductor is unavailable.
    #[error(transparent)]
    Conductor(#[from] ChooseError),
    /// Something of the operating system's.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it says.
        #[source]
        source: io::Error,
    },
    /// Metrics can be neither delivered nor shown.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Something that must run as long as the process does has ended or panicked.
    #[error("the process broke down")]
    BrokeDown(#[source] BoxError),
    /// A listener failed.
    #[error("a listener failed")]
    Listener(#[source] BoxError),
}
