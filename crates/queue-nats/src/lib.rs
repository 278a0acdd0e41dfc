//! The step queue on NATS JetStream, and the live stream on core NATS.
//!
//! NATS may lose all data or be unreachable at any time: the store is the source of truth, and the sweeper republishes what
//! the queue lost. Each call has a time limit, missing streams and consumers are recreated, and every buffer is bounded.
//!
//! The queue and the live stream use separate connections, so that a burst of text does not delay messages.
#![deny(missing_docs)]

mod error;
mod link;
mod live;
mod queue;
mod subjects;

pub use error::NatsError;
pub use link::{AtStart, ConnectionOptions, ServerVersion, SignIn};
pub use live::{LiveOptions, NatsLive};
pub use queue::{LaneFacts, NatsQueue, QueueFacts, QueueOptions, Storage, StreamFacts};
