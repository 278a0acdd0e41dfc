//! The start of every program: settings, log, clock, ids, signals.
#![deny(missing_docs)]

mod anchored;
mod clock;
mod logging;
pub mod settings;
mod signals;

pub use anchored::AnchoredClock;
pub use clock::{CellIds, RandomIds, SystemClock};
pub use logging::{Identity, LogFormat, LogSink, add_log_sink, start_log};
pub use signals::Signals;

/// Used by all programs. A run consists of many small texts, and glibc's allocator took a quarter of an executor's CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
