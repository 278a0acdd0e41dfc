//! The step queue on NATS JetStream, and the live stream on core NATS.
//!
//! NATS may lose everything, or be away, at any time: the store is the truth, and the sweeper publishes again what the
//! queue forgot. Each call ends within its time limit, streams and consumers are made again when they are gone, and all
//! that waits is bounded.
//!
//! The queue and the live stream have a connection each, so that a burst of text does not hold a message up.
#![deny(missing_docs)]

mod error;
mod link;
mod live;
mod queue;
mod subjects;

pub use error::NatsError;
pub use link::{AtStart, ConnectionOptions, ServerVersion, SignIn};
pub use live::{LiveOptions, NatsLive};
pub use queue::{NatsQueue, QueueOptions, Storage};
