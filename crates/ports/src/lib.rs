//! What the engine needs of the world, as traits with their error types. Adapters implement them; the engine sees no other
//! side of a database, a queue or a vendor. `podium-testkit` holds the conformance suites.
#![deny(missing_docs)]

pub mod accounts;
pub mod cache;
pub mod charge;
pub mod clock;
pub mod conductor;
pub mod conductors;
pub mod hardware;
pub mod limiter;
pub mod live;
pub mod queue;
pub mod schema;
pub mod server;
pub mod store;
pub mod stored;
pub mod vendor;

/// An adapter's own error, kept as the source of a port's error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;
