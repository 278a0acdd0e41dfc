//! The start of every program: settings, log, clock, ids, signals.
#![deny(missing_docs)]

mod anchored;
mod clock;
pub mod doctor;
mod log_reload;
mod logging;
pub mod settings;
mod signals;
mod version;

pub use anchored::AnchoredClock;
pub use clock::{CellIds, RandomIds, SystemClock};
pub use log_reload::follow_log_setting;
pub use logging::{Identity, LogFormat, LogSink, add_log_sink, start_log};
pub use signals::Signals;
pub use version::VERSION;

/// Used by all programs. A run consists of many small texts, and glibc's allocator took a quarter of an executor's CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
