//! Starts both servers, and stops them without dropping requests under way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use podium_engine::Engine;
use podium_ports::objects::Objects;
use podium_ports::server::{ServerLimits, TlsFiles};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::info;

use crate::auth::Authenticator;
use crate::cells::CellRouter;
use crate::connections::{Connections, Protocol, ServerTls, TlsError};
use crate::grpc::GrpcError;
use crate::request_metrics::RequestMetrics;
use crate::slots::Slots;
use crate::tenant_streams::TenantStreams;
use crate::{Backend, Closing, grpc, http};

/// How long the servers may take to end requests that were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// The bound ports of both servers. No request is answered before [`Listeners::open`].
pub struct Listeners {
    http: TcpListener,
    grpc: TcpListener,
    health: Option<Health>,
    cells: Option<CellRouter>,
    tls: Option<ServerTls>,
}

/// The listener for probes.
struct Health {
    listener: TcpListener,
    /// Further routes.
    routes: Router,
}

/// A server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {protocol}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The protocol: HTTP, gRPC or health.
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
        let (http, grpc) = (bind(http, "HTTP").await?, bind(grpc, "gRPC").await?);
        Ok(Self { http, grpc, health: None, cells: None, tls: None })
    }

    /// The addresses of the HTTP and the gRPC server.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.http.local_addr()?, self.grpc.local_addr()?))
    }

    /// Binds a further port if an address is given: without TLS, for `/healthz`, `/readyz` and these routes. It answers until the servers have closed.
    pub async fn with_health(self, address: Option<SocketAddr>, routes: Router) -> Result<Self, ListenError> {
        let Some(address) = address else { return Ok(self) };
        let health = Health { listener: bind(address, "health").await?, routes };
        Ok(Self { health: Some(health), ..self })
    }

    /// The address of the further port, if there is one.
    pub fn health_address(&self) -> io::Result<Option<SocketAddr>> {
        self.health.as_ref().map(|health| health.listener.local_addr()).transpose()
    }

    /// Requires TLS of the clients of both servers if there are files for it.
    pub fn with_tls(self, files: Option<TlsFiles>) -> Result<Self, TlsError> {
        Ok(Self { tls: files.map(ServerTls::load).transpose()?, ..self })
    }

    /// Forwards requests of other cells to gateways there, if there are other cells.
    #[must_use]
    pub fn in_cells(self, cells: Option<CellRouter>) -> Self {
        Self { cells, ..self }
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
        let requests = Slots::of_requests(limits.requests_in_flight_max);
        let sockets = Slots::of_sockets(limits.websockets_max);
        let metrics = RequestMetrics::new();
        let backend =
            Backend { engine, auth, objects, streams, requests, sockets, cells: self.cells, metrics };
        let (http, health) = http::routers(backend.clone(), &limits, started, closing.clone());
        let mut probes = JoinSet::new();
        if let Some(Health { listener, routes }) = self.health {
            probes.spawn(axum::serve(listener, health.merge(routes)).into_future());
        }
        let tls = self.tls.map(Arc::new);
        if let Some(tls) = &tls {
            probes.spawn(Arc::clone(tls).follow(closing.stopping.clone()).map(Ok));
        }
        let connections = Connections::new(limits, tls);
        let stopping = closing.stopping.clone();
        let http = Arc::clone(&connections).serve(self.http, http, Protocol::Http, stopping.clone());
        tasks.spawn(async move {
            http.await;
            Ok(())
        });
        let grpc = grpc::serve(self.grpc, connections, backend, closing.clone());
        tasks.spawn(async move { grpc.await.map_err(ServerError::from) });
        Servers { tasks, _probes: probes, closing }
    }
}

async fn bind(address: SocketAddr, protocol: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, protocol, source })
}

/// Both running servers.
pub struct Servers {
    tasks: JoinSet<Result<(), ServerError>>,
    /// They end with the servers.
    _probes: JoinSet<io::Result<()>>,
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

    /// Reports that the servers are not ready, and goes on for `delay`, so that load balancers send no more requests. Then accepts
    /// no new requests and waits for those under way. Cuts the rest after `drain`.
    pub async fn close(mut self, delay: Duration, drain: Duration) {
        self.closing.leaving.cancel();
        sleep_until(Instant::now() + delay).await;
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
