//! Starts both servers, and stops them without dropping requests under way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use podium_engine::Engine;
use podium_ports::objects::Objects;
use podium_ports::server::ServerLimits;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

use crate::auth::Authenticator;
use crate::cells::CellRouter;
use crate::connections::{Connections, Protocol};
use crate::grpc::GrpcError;
use crate::tenant_streams::TenantStreams;
use crate::{Backend, Closing, grpc, http};

/// How long the servers may take to end requests that were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// The bound ports of both servers. No request is answered before [`Listeners::open`].
pub struct Listeners {
    http: TcpListener,
    grpc: TcpListener,
    cells: Option<CellRouter>,
}

/// A server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {protocol}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The protocol: HTTP or gRPC.
    pub protocol: &'static str,
    /// The I/O error.
    #[source]
    pub source: io::Error,
}

/// A server ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The gRPC server.
    #[error(transparent)]
    Grpc(#[from] GrpcError),
    /// A server ended for an unknown reason.
    #[error("a server ended without being stopped")]
    Closed,
}

impl Listeners {
    /// Binds both ports, so that a port in use is found before anything else starts.
    pub async fn bind(http: SocketAddr, grpc: SocketAddr) -> Result<Self, ListenError> {
        Ok(Self { http: bind(http, "HTTP").await?, grpc: bind(grpc, "gRPC").await?, cells: None })
    }

    /// The addresses of the HTTP and the gRPC server.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.http.local_addr()?, self.grpc.local_addr()?))
    }

    /// Forwards requests of other cells to gateways there.
    #[must_use]
    pub fn in_cells(self, cells: CellRouter) -> Self {
        Self { cells: Some(cells), ..self }
    }

    /// Starts both servers. `started` is in seconds since the Unix epoch.
    pub fn open(
        self,
        engine: &Engine,
        auth: &Authenticator,
        objects: Arc<dyn Objects>,
        limits: ServerLimits,
        started: u64,
    ) -> Servers {
        let closing = Closing::default();
        let mut tasks = JoinSet::new();
        let streams = TenantStreams::new(limits.tenant_streams_max);
        let (engine, auth) = (engine.clone(), auth.clone());
        let backend = Backend { engine, auth, objects, streams, cells: self.cells };
        let http = http::router(backend.clone(), &limits, started, closing.clone());
        let connections = Connections::new(limits);
        let stopping = closing.stopping.clone();
        let http = Arc::clone(&connections).serve(self.http, http, Protocol::Http, stopping.clone());
        tasks.spawn(async move {
            http.await;
            Ok(())
        });
        let grpc = grpc::serve(self.grpc, connections, backend, stopping);
        tasks.spawn(async move { grpc.await.map_err(ServerError::from) });
        Servers { tasks, closing }
    }
}

async fn bind(address: SocketAddr, protocol: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, protocol, source })
}

/// Both running servers.
pub struct Servers {
    tasks: JoinSet<Result<(), ServerError>>,
    closing: Closing,
}

impl Servers {
    /// Waits until a server ends without being stopped, which it should not.
    pub async fn broke_down(&mut self) -> ServerError {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            _ => ServerError::Closed,
        }
    }

    /// Accepts no new requests and waits for those under way. Cuts the rest after `drain`.
    pub async fn close(mut self, drain: Duration) {
        self.closing.stopping.cancel();
        let mut all_closed = async || while self.tasks.join_next().await.is_some() {};
        if timeout(drain, all_closed()).await.is_err() {
            info!("the drain time is over; cutting the requests under way");
            self.closing.cut.cancel();
            let _ = timeout(CUT_WAIT, all_closed()).await;
        }
        self.closing.left.close();
        let _ = timeout(CUT_WAIT, self.closing.left.wait()).await;
        // A connection that does not close must not delay the stop.
        self.tasks.abort_all();
    }
}
