//! What every program of ours does before it works: reads its settings, starts its log, takes the time, makes its conductor,
//! listens for the signals that end it.
#![deny(missing_docs)]

mod anchored;
mod clock;
pub mod conductor;
mod logging;
pub mod settings;
mod signals;

pub use anchored::AnchoredClock;
pub use clock::{RandomIds, SystemClock};
pub use logging::{LogFormat, start_log};
pub use signals::Signals;

/// Of all programs of ours. A run's life is many small texts, and glibc's allocator took a quarter of an executor's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
