//! Podium in one process: the command line, and the server with its doors.
//!
//! This is where the adapters are chosen and put together; the engine that runs on them is the same everywhere.

mod assemble;
mod cli;
mod clock;
mod conductor;
mod data_dir;
mod demo;
mod doors;
mod draw;
mod error;
mod grpc;
mod http;
mod logging;
mod pool;
mod report;
mod serve;
mod settings;

pub use cli::main;
