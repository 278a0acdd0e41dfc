//! How this process is set up: from defaults, a file, the environment and flags, in rising order. Everything that is wrong
//! is found at once, and each problem says where its value came from.

mod check;
mod sources;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use podium_domain::ids::WorkerId;

pub(crate) use sources::Sources;

/// The keys, their defaults, and what they are. The file has them as `key = value`, the environment as `PODIUM__KEY`.
pub(crate) const KEYS: &[(&str, Option<&str>)] = &[
    // Where the OpenAI-compatible HTTP door listens.
    ("listen", Some("127.0.0.1:8080")),
    // Where the gRPC door listens.
    ("grpc_listen", Some("127.0.0.1:8081")),
    // Whether the doors may listen where other machines reach them.
    ("allow_remote", Some("false")),
    // The folder that keeps the runs. Default: in the user's data folder.
    ("data", None),
    // `demo`, or a pool file.
    ("pool", Some("demo")),
    // `auto`, `llama:FOLDER`, `worker:WORKER`, `remote:URL#MODEL`, `fixed:FILE`, `direct` or `direct:WORKER`.
    ("conductor", Some("auto")),
    // Milliseconds that requests and calls under way may still take once the server is told to stop.
    ("drain_ms", Some("10000")),
    // What is logged: a level, or a list such as `info,podium_engine=debug`. Default: `info` for a server, else `warn`.
    ("log", None),
    // `text` or `json`.
    ("log_format", Some("text")),
];

/// A checked setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the HTTP door listens.
    pub(crate) listen: SocketAddr,
    /// Where the gRPC door listens.
    pub(crate) grpc_listen: SocketAddr,
    /// The folder that keeps the runs.
    pub(crate) data: PathBuf,
    /// The workers.
    pub(crate) pool: PoolChoice,
    /// Who plans.
    pub(crate) conductor: ConductorChoice,
    /// How long work under way may still take at the end.
    pub(crate) drain: Duration,
    /// What is logged; the command knows the default.
    pub(crate) log: Option<String>,
    /// How it is logged.
    pub(crate) log_format: LogFormat,
}

/// Which workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolChoice {
    /// Those of the demo: small programs in this process that play models.
    Demo,
    /// Those of a file.
    File(PathBuf),
}

/// Who plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConductorChoice {
    /// The demo's own model where it fits, else no planning at all.
    Auto,
    /// A bundle under llama.cpp.
    Llama(PathBuf),
    /// A worker of the pool.
    Worker(WorkerId),
    /// A model behind an OpenAI-compatible endpoint.
    Remote {
        /// Where the API begins.
        url: String,
        /// The model's name there.
        model: String,
    },
    /// A workflow that a person wrote.
    Fixed(PathBuf),
    /// No planning: one worker gets the question as it is.
    Direct(Option<WorkerId>),
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// As it is written in settings.
impl fmt::Display for ConductorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Llama(folder) => write!(f, "llama:{}", folder.display()),
            Self::Worker(worker) => write!(f, "worker:{worker}"),
            Self::Remote { url, model } => write!(f, "remote:{url}#{model}"),
            Self::Fixed(file) => write!(f, "fixed:{}", file.display()),
            Self::Direct(None) => f.write_str("direct"),
            Self::Direct(Some(worker)) => write!(f, "direct:{worker}"),
        }
    }
}

/// Everything that is wrong with a setup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingsError(pub(crate) Vec<String>);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "the configuration has a problem: {only}"),
            all => {
                write!(f, "the configuration has {} problems:", all.len())?;
                all.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests;
