//! The start of every program: settings, log, clock, ids, signals.
#![deny(missing_docs)]

mod anchored;
mod clock;
pub mod doctor;
mod follow;
mod logging;
mod pool_change;
pub mod settings;
mod signals;
mod version;

pub use anchored::AnchoredClock;
pub use clock::{CellIds, RandomIds, SystemClock};
pub use follow::{Announcer, Changes, Followed, changes, follow_settings};
pub use logging::{Identity, LogFormat, LogSink, add_log_sink, start_log};
pub use pool_change::log_pool_change;
pub use signals::Signals;
pub use version::VERSION;

/// Used by all programs. A run consists of many small texts, and glibc's allocator took a quarter of an executor's CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
