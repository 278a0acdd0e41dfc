//! The servers in front of an engine: OpenAI's Chat Completions and Responses over HTTP, and `podium.v1` over gRPC.
#![deny(missing_docs)]

mod auth;
mod cells;
mod connections;
mod conversations;
mod error_mapping;
mod grpc;
mod http;
mod listeners;
mod request_metrics;
mod slots;
mod tenant_streams;
mod use_cases;
mod watch;

use std::sync::Arc;

use podium_engine::Engine;
use podium_ports::objects::Objects;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use request_metrics::RequestMetrics;
use slots::Slots;
use tenant_streams::TenantStreams;

pub use auth::{ApiKey, Authenticator, Caller, sums};
pub use cells::{CellIdentity, CellRouter, CellTls, ConnectorError};
pub use connections::{ServerTls, TlsError};
pub use error_mapping::watch_error;
pub use grpc::{GrpcError, Runs};
pub use listeners::{ListenError, Listeners, ServerError, Servers};
pub use use_cases::{load, submit};

/// The parts behind both servers.
#[derive(Clone)]
struct Backend {
    engine: Engine,
    auth: Authenticator,
    /// The conversations of clients.
    objects: Arc<dyn Objects>,
    /// The open streams of each tenant, over both APIs.
    streams: TenantStreams,
    /// The requests under way, over both APIs.
    requests: Slots,
    /// Each open WebSocket.
    sockets: Slots,
    /// None if this cluster is the only cell.
    cells: Option<CellRouter>,
    metrics: RequestMetrics,
}

/// The stages of stopping the servers.
#[derive(Clone, Debug, Default)]
struct Closing {
    /// Report that the servers are not ready.
    leaving: CancellationToken,
    /// Accept no new connections; finish the requests under way.
    stopping: CancellationToken,
    /// End the requests under way.
    cut: CancellationToken,
    /// Work that outlives a client's connection: cancelling its run.
    left: TaskTracker,
}
