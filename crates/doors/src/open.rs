//! Opening both doors, and closing them without dropping anybody who is half-way through.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use podium_engine::Engine;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

use crate::access::Access;
use crate::grpc::GrpcError;
use crate::{Closing, grpc, http};

/// How long the doors may take to end requests that were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// Both doors' ports, taken. Nobody is answered before [`Listeners::open`].
pub struct Listeners {
    http: TcpListener,
    grpc: TcpListener,
}

/// A door cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {door}")]
pub struct ListenError {
    /// Where.
    pub address: SocketAddr,
    /// What for.
    pub door: &'static str,
    /// What the system says.
    #[source]
    pub source: io::Error,
}

/// A door ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The HTTP door.
    #[error("the HTTP door broke down")]
    Http(#[source] io::Error),
    /// The gRPC door.
    #[error(transparent)]
    Grpc(#[from] GrpcError),
    /// One of them, without saying why.
    #[error("a door closed by itself")]
    Closed,
}

impl Listeners {
    /// Takes both ports: one in use is found out before anything else is started.
    pub async fn bind(http: SocketAddr, grpc: SocketAddr) -> Result<Self, ListenError> {
        Ok(Self { http: bind(http, "HTTP").await?, grpc: bind(grpc, "gRPC").await? })
    }

    /// Where the doors are: HTTP, gRPC.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.http.local_addr()?, self.grpc.local_addr()?))
    }

    /// Opens the doors to an engine. `started` is in seconds since the Unix epoch.
    pub fn open(self, engine: &Engine, access: &Access, started: u64) -> Doors {
        let closing = Closing::default();
        let mut tasks = JoinSet::new();
        let http = http::serve(self.http, (engine.clone(), access.clone()), started, closing.clone());
        tasks.spawn(async move { http.await.map_err(DoorError::Http) });
        let grpc = grpc::serve(self.grpc, (engine.clone(), access.clone()), closing.stopping.clone());
        tasks.spawn(async move { grpc.await.map_err(DoorError::from) });
        Doors { tasks, closing }
    }
}

async fn bind(address: SocketAddr, door: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, door, source })
}

/// Both doors, open.
pub struct Doors {
    tasks: JoinSet<Result<(), DoorError>>,
    closing: Closing,
}

impl Doors {
    /// Waits until a door ends by itself, which it should not.
    pub async fn broke_down(&mut self) -> DoorError {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            _ => DoorError::Closed,
        }
    }

    /// Takes no new requests and waits for those under way; cuts what is left after `drain`.
    pub async fn close(mut self, drain: Duration) {
        self.closing.stopping.cancel();
        let mut all_closed = async || while self.tasks.join_next().await.is_some() {};
        if timeout(drain, all_closed()).await.is_err() {
            info!("the drain time of the doors is over: requests under way are cut");
            self.closing.cut.cancel();
            let _ = timeout(CUT_WAIT, all_closed()).await;
        }
        // A connection that will not end holds nobody back.
        self.tasks.abort_all();
    }
}
