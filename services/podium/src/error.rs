//! The errors of commands, with their exit codes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use podium_bundle::BundleError;
use podium_bundle::manifest::OtherPool;
use podium_domain::pool::PoolError;
use podium_engine::{NotReady, OtherConductors};
use podium_planning::ChooseError;
use podium_ports::BoxError;
use podium_ports::causes::causes;
use podium_ports::conductor::ConductorError;
use podium_ports::store::StoreError;
use podium_server::{ListenError, ServerError, TlsError};
use podium_setup::settings::SettingsError;
use podium_telemetry::TelemetryError;

use crate::data_dir::DataDirError;
use crate::terminal;

/// The exit code for failed runs and all other failures.
const FAILED: u8 = 1;
/// The exit code for invalid input: arguments, settings, files.
const USAGE: u8 = 2;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Metrics can be neither delivered nor shown.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A pool file is invalid.
    #[error("invalid pool {}", path.display())]
    Pool {
        /// The file.
        path: PathBuf,
        /// The problem.
        #[source]
        source: PoolError,
    },
    /// A conductor's bundle is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A conductor's bundle does not run on the pool.
    #[error(transparent)]
    OtherPool(#[from] OtherPool),
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A mini head's files are invalid.
    #[error(transparent)]
    HeadFile(#[from] podium_head::FileError),
    /// The data to train or measure a mini head are missing or invalid.
    #[error(transparent)]
    Dataset(#[from] podium_head::DatasetError),
    /// A mini head cannot be trained.
    #[error(transparent)]
    Train(#[from] podium_head::train::TrainError),
    /// The mini head does not fit the data.
    #[error("{0}")]
    OtherHead(String),
    /// Hidden states are unavailable.
    #[error("the conductor's hidden states are unavailable")]
    Reading(#[source] BoxError),
    /// Flags that are valid alone contradict each other.
    #[error("{flag}: {problem}")]
    Contradiction {
        /// The flag.
        flag: &'static str,
        /// The problem.
        problem: String,
    },
    /// A line of an input file is invalid.
    #[error("{}, line {line}: {problem}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// The conductor is unavailable.
    #[error(transparent)]
    Conductor(#[from] ChooseError),
    /// A changed pool would change the conductors.
    #[error(transparent)]
    OtherConductors(#[from] OtherConductors),
    /// The demo's conductor is missing.
    #[error("the demo needs its conductor: {problem}")]
    NoDemoConductor {
        /// The missing part, and how to get it.
        problem: String,
    },
    /// The workers' vendors cannot be set up.
    #[error("cannot set up the pool's vendors")]
    Vendors(#[source] BoxError),
    /// The demo's workers cannot start.
    #[error("cannot start the simulated workers")]
    Simulation(#[source] BoxError),
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A cluster's store cannot be opened.
    #[error("cannot open the cluster's Postgres")]
    OpenPostgres(#[source] BoxError),
    /// The store cannot be opened.
    #[error("cannot open the store in {}", path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine cannot start.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A listener cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A listener failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A server, or the engine in this process, refused.
    #[error("{0}")]
    Refused(String),
    /// The named server does not answer.
    #[error("server {url} does not answer")]
    NoServer {
        /// Its URL.
        url: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The server refuses the caller's key.
    #[error("server {url} refused the request: {message}; set {variable} to a valid key")]
    KeyRefused {
        /// The server.
        url: String,
        /// Its message.
        message: String,
        /// The variable that holds the key.
        variable: &'static str,
    },
    /// A server other than Podium's gRPC API answers.
    #[error(
        "server {url} answers, but is not Podium's gRPC API ({message}); name its gRPC port, which is 8081 by default, \
         not its HTTP port"
    )]
    NotPodium {
        /// The server.
        url: String,
        /// The problem with its answer.
        message: String,
    },
    /// A server's URL cannot be parsed.
    #[error("invalid server URL `{url}`: it must look like http://127.0.0.1:8081")]
    BadUrl {
        /// The given URL.
        url: String,
    },
    /// No worker can be called.
    #[error(
        "no worker of pool {pool} can be called: none of its vendors has a key; set the keys that are named above"
    )]
    NoKeys {
        /// The pool.
        pool: String,
    },
    /// The question is blank.
    #[error("the question is blank")]
    NoQuestion,
    /// A file for the question is not an image.
    #[error("{} is not an image: it must be PNG, JPEG, WebP or GIF", path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
    },
    /// A file for the question is not a PDF.
    #[error("{} is not a PDF: it must begin with `%PDF-`", path.display())]
    NoPdf {
        /// The file.
        path: PathBuf,
    },
    /// An image or a PDF is too long for a question.
    #[error("{} has more than {max} bytes, the limit of a file in a question; pass its URL instead", path.display())]
    FileTooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// Planning failed.
    #[error("no plan could be made")]
    Planning(#[from] ConductorError),
    /// The operating system refused something.
    #[error("{what}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let usage = matches!(
            self,
            Self::Settings(_)
                | Self::Pool { .. }
                | Self::Bundle(_)
                | Self::OtherPool(_)
                | Self::Unreadable { .. }
                | Self::Contradiction { .. }
                | Self::BadLine { .. }
                | Self::HeadFile(_)
                | Self::Dataset(_)
                | Self::Train(_)
                | Self::OtherHead(_)
                | Self::Conductor(_)
                | Self::NoDemoConductor { .. }
                | Self::Vendors(_)
                | Self::BadUrl { .. }
                | Self::NoKeys { .. }
                | Self::NoQuestion
                | Self::NoImage { .. }
                | Self::NoPdf { .. }
                | Self::FileTooLong { .. }
        );
        ExitCode::from(if usage { USAGE } else { FAILED })
    }
}

/// The exit code of a run that ended without an answer.
pub(crate) fn run_failed() -> ExitCode {
    ExitCode::from(FAILED)
}

/// Writes an error with its causes.
pub(crate) fn print(error: &Error) {
    terminal::note(&error.to_string());
    for cause in causes(error) {
        eprintln!("  because: {}", terminal::visible(&cause));
    }
}
