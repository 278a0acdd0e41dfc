//! The ports: traits through which the engine uses databases, queues, vendors and clocks, with their error types. Adapters
//! implement them, and the engine depends on nothing else of an adapter. `podium-testkit` has a conformance suite for each port.
#![deny(missing_docs)]

pub mod accounts;
pub mod cache;
pub mod causes;
pub mod clock;
pub mod conductor;
pub mod conductor_profile;
pub mod limiter;
pub mod live;
pub mod objects;
pub mod operations;
pub mod queue;
pub mod run_traces;
pub mod server;
pub mod store;
pub mod vendor;

/// An adapter's own error, kept as the source of a port's error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;
