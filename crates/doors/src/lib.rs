//! The servers: what a client may ask of an engine, over HTTP as OpenAI's Chat Completions and over gRPC as `podium.v1`.
#![deny(missing_docs)]

mod access;
mod asking;
mod cells;
mod connections;
mod grpc;
mod http;
mod open;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use access::{Access, ApiKey, Caller, sums};
pub use asking::{chain, load, submit, watch_error};
pub use cells::{CellRouter, ConnectorError};
pub use grpc::{GrpcError, Runs};
pub use open::{DoorError, Doors, ListenError, Listeners};

/// When the servers must stop.
#[derive(Clone, Debug, Default)]
struct Closing {
    /// Take no new connections, finish the requests under way.
    stopping: CancellationToken,
    /// End the requests under way.
    cut: CancellationToken,
    /// What goes on after a client has left: its run is cancelled.
    left: TaskTracker,
}
