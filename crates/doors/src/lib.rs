//! The doors: what a client may ask of an engine, over HTTP as OpenAI's Chat Completions and over gRPC as `podium.v1`.
#![deny(missing_docs)]

mod access;
mod asking;
mod grpc;
mod http;
mod open;

use tokio_util::sync::CancellationToken;

pub use access::{Access, ApiKey, Caller, sums};
pub use asking::{chain, load, submit, watch_error};
pub use grpc::{GrpcError, Runs};
pub use open::{DoorError, Doors, ListenError, Listeners};

/// When a door must close.
#[derive(Clone, Debug, Default)]
struct Closing {
    /// Take no new connections, finish the requests under way.
    stopping: CancellationToken,
    /// End the requests under way.
    cut: CancellationToken,
}
