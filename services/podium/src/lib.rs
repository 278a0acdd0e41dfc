//! Podium in one process: the command line, and the server.
//!
//! It chooses the embedded adapters. The engine that runs on them is the same as in a cluster.

mod assemble;
mod cli;
mod data_dir;
mod demo;
mod draw;
mod error;
mod grading;
mod pool;
mod probe;
mod report;
mod rollout;
mod serve;
mod settings;
mod terminal;

use podium_planning::OpenBundle;

pub use cli::main;

/// Loads a model in this process, if the program was built with llama.cpp.
#[cfg(feature = "llama")]
const OPEN_BUNDLE: Option<OpenBundle> = Some(podium_llama::open);
#[cfg(not(feature = "llama"))]
const OPEN_BUNDLE: Option<OpenBundle> = None;
