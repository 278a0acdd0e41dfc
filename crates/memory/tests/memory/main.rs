//! The adapters in memory.

mod limiter;
mod live_stream;
mod pace;
mod step_cache;
