//! Podium in one process: the command line, and the embedded server.
//!
//! This is where the adapters are chosen and put together; the engine that runs on them is the same everywhere.

mod assemble;
mod cli;
mod data_dir;
mod demo;
mod draw;
mod error;
mod pool;
mod report;
mod serve;
mod settings;
mod terminal;
mod trial;

use podium_planning::OpenBundle;

pub use cli::main;

/// How this program loads a model that runs here.
#[cfg(feature = "llama")]
const OPEN_BUNDLE: Option<OpenBundle> = Some(podium_llama::open);
#[cfg(not(feature = "llama"))]
const OPEN_BUNDLE: Option<OpenBundle> = None;
