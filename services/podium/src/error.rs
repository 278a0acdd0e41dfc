//! Why a command of the command line failed, and with which exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use podium_bundle::BundleError;
use podium_bundle::manifest::OtherPool;
use podium_domain::pool::PoolError;
use podium_engine::NotReady;
use podium_planning::ChooseError;
use podium_ports::BoxError;
use podium_ports::conductor::ConductorError;
use podium_ports::store::StoreError;
use podium_server::{ListenError, ServerError};
use podium_setup::settings::SettingsError;
use podium_telemetry::TelemetryError;

use crate::data_dir::DataDirError;
use crate::terminal;

/// The exit code for a run that failed, and for everything else that went wrong.
const FAILED: u8 = 1;
/// The exit code for what the user has to write otherwise: arguments, configuration, input files.
const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The setup is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Metrics can be neither delivered nor shown.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// A pool file is wrong.
    #[error("pool {} cannot be used", path.display())]
    Pool {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: PoolError,
    },
    /// A conductor's bundle is wrong.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A conductor's bundle does not run on the pool.
    #[error(transparent)]
    OtherPool(#[from] OtherPool),
    /// A file does not read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A mini head's files are wrong.
    #[error(transparent)]
    HeadFile(#[from] podium_head::FileError),
    /// There is nothing that a mini head could be trained or measured on.
    #[error(transparent)]
    Dataset(#[from] podium_head::DatasetError),
    /// A mini head cannot be trained.
    #[error(transparent)]
    Train(#[from] podium_head::train::TrainError),
    /// The mini head and what it is to be held against do not belong together.
    #[error("{0}")]
    OtherHead(String),
    /// Hidden states cannot be had.
    #[error("the conductor's hidden states cannot be had")]
    Reading(#[source] BoxError),
    /// A line of an input file is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The conductor cannot be had.
    #[error(transparent)]
    Conductor(#[from] ChooseError),
    /// The demo needs a conductor that is not there.
    #[error("the demo needs its conductor: {problem}")]
    NoDemoConductor {
        /// What is missing, and what helps.
        problem: String,
    },
    /// The workers' vendors cannot be set up.
    #[error("the pool's vendors cannot be set up")]
    Vendors(#[source] BoxError),
    /// The demo's workers do not start.
    #[error("the simulated workers do not start")]
    Simulation(#[source] BoxError),
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A cluster's store does not open.
    #[error("the cluster's Postgres does not open")]
    OpenPostgres(#[source] BoxError),
    /// The store does not open.
    #[error("the store in {} does not open", path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine does not come up.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A server cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A server refused, or the engine in this process did.
    #[error("{0}")]
    Refused(String),
    /// The named server does not answer.
    #[error("server {url} does not answer")]
    NoServer {
        /// As it was named.
        url: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The server refuses the caller's key.
    #[error("server {url} refused the request: {message}; set {variable} to a valid key")]
    KeyRefused {
        /// The server.
        url: String,
        /// What it says.
        message: String,
        /// The variable that holds the key.
        variable: &'static str,
    },
    /// Something else than Podium's gRPC API answers.
    #[error(
        "server {url} answers, but is not Podium's gRPC API ({message}); name its gRPC port, which is 8081 by default, \
         not its HTTP port"
    )]
    NotPodium {
        /// The server.
        url: String,
        /// What is wrong with its answer.
        message: String,
    },
    /// A server's URL cannot be parsed.
    #[error("invalid server URL `{url}`: it must be like http://127.0.0.1:8081")]
    BadUrl {
        /// As it was given.
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
    /// The question is not one.
    #[error("the question is blank")]
    NoQuestion,
    /// A file that was to go with the question is no picture.
    #[error("{} is no picture: it must be PNG, JPEG, WebP or GIF", path.display())]
    NoPicture {
        /// The file.
        path: PathBuf,
    },
    /// A picture does not fit into a question.
    #[error("{} has more than {max} bytes, which is all that fits into a question; give its address", path.display())]
    PictureTooLong {
        /// The file.
        path: PathBuf,
        /// The most that fits.
        max: u64,
    },
    /// Planning failed.
    #[error("no plan could be made")]
    Planning(#[from] ConductorError),
    /// Something of the operating system's.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it says.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let usage = matches!(
            self,
            Self::Settings(_)
                | Self::Pool { .. }
                | Self::Bundle(_)
                | Self::OtherPool(_)
                | Self::Unreadable { .. }
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
                | Self::NoPicture { .. }
                | Self::PictureTooLong { .. }
        );
        ExitCode::from(if usage { USAGE } else { FAILED })
    }
}

/// A run that ended without an answer.
pub(crate) fn run_failed() -> ExitCode {
    ExitCode::from(FAILED)
}

/// Writes an error with everything that caused it.
pub(crate) fn print(error: &Error) {
    terminal::note(&error.to_string());
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        eprintln!("  because: {}", terminal::visible(&cause.to_string()));
        source = cause.source();
    }
}
