//! The ports that one process can serve from its own memory: queue, live stream, limiter and step cache of an embedded Podium.
//!
//! All of it may be lost at any time with the process: the store is authoritative, and the sweeper publishes lost tasks again.
//! Everything is bounded, and nothing runs in the background.
#![deny(missing_docs)]

mod cache;
mod limiter;
mod live;
mod queue;

pub use cache::MemoryCache;
pub use limiter::MemoryLimiter;
pub use live::{LiveOptions, MemoryLive};
pub use queue::{MemoryQueue, QueueOptions};
