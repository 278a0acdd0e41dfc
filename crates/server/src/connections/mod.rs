//! The connections of a server: their number, and how long they may be silent.
//!
//! All listeners share one limit. At the limit, a new connection replaces the one that has waited longest for its client. While
//! all connections have requests to answer, the new one waits. So a client that opens connections and stays silent locks nobody
//! else out, and does not use up the files that the store needs.

mod activity;
mod files;
mod request;
mod response;
mod stall;
mod tls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use podium_ports::server::ServerLimits;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use activity::{Activity, RequestGuard};
use request::TimedBody;
use response::{Terms, send};
use stall::StallGuard;

pub(crate) use request::BodyTimeout;
pub(crate) use response::{Held, Unread};
pub use tls::{ServerTls, TlsError};

/// Pause after a connection could not be accepted, mostly because there are too many open files.
const TROUBLE_PAUSE: Duration = Duration::from_millis(100);
/// How long a silent client may take to close its connection.
const LINGER: Duration = Duration::from_secs(1);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, or HTTP/2 with prior knowledge.
    Http,
    /// HTTP/2.
    Grpc,
}

impl Protocol {
    fn builder(self, limits: &ServerLimits) -> Builder<TokioExecutor> {
        let narrow = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().max_buf_size(limits.header_bytes_max);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_EVERY)
            .keep_alive_timeout(KEEPALIVE_WAIT)
            .max_concurrent_streams(narrow(limits.connection_streams_max))
            .max_header_list_size(narrow(limits.header_bytes_max));
        match self {
            Self::Http => builder,
            Self::Grpc => builder.http2_only(),
        }
    }
}

/// The connections of all listeners of a process.
pub(crate) struct Connections {
    limits: ServerLimits,
    /// None: clients use no TLS.
    tls: Option<Arc<ServerTls>>,
    most: usize,
    unread: Unread,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
    next: AtomicU64,
    /// Another connection may fit now.
    freed: Arc<Notify>,
    /// The tasks that hand answers over; each ends with its connection.
    relays: TaskTracker,
}

impl Connections {
    /// Raises the process's limit of open files as far as permitted, and takes a part of it.
    pub(crate) fn new(limits: ServerLimits, tls: Option<Arc<ServerTls>>) -> Arc<Self> {
        let most = files::connections_max(limits.connections_max);
        info!(connections_max = most, "accepting connections");
        Arc::new(Self {
            most,
            unread: Unread::new(limits.unread_bytes_max),
            limits,
            tls,
            open: Mutex::default(),
            next: AtomicU64::new(0),
            freed: Arc::default(),
            relays: TaskTracker::new(),
        })
    }

    /// Serves a listener until `stopping` is cancelled and the requests under way are done.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        router: Router,
        protocol: Protocol,
        stopping: CancellationToken,
    ) {
        let builder = Arc::new(protocol.builder(&self.limits));
        let mut tasks = JoinSet::new();
        while let Some(accepted) = stopping.run_until_cancelled(listener.accept()).await {
            while tasks.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    let Some(place) = stopping.run_until_cancelled(self.place()).await else { break };
                    let connection = Connection {
                        place,
                        router: router.clone(),
                        builder: Arc::clone(&builder),
                        stopping: stopping.clone(),
                    };
                    let tls = self.tls.as_ref().map(|tls| tls.config(protocol));
                    tasks.spawn(connection.serve(stream, tls));
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                    end_oldest(&self.lock());
                    stopping.run_until_cancelled(sleep_until(Instant::now() + TROUBLE_PAUSE)).await;
                }
            }
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
        self.relays.close();
    }

    /// Waits for a place for a new connection. At the limit, closes another connection for it.
    async fn place(self: &Arc<Self>) -> Place {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on, no notification is missed.
            freed.as_mut().enable();
            {
                let mut open = self.lock();
                if open.len() < self.most {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    let activity = Arc::new(Activity::new(Arc::clone(&self.freed)));
                    open.insert(id, Arc::clone(&activity));
                    return Place { id, activity, connections: Arc::clone(self) };
                }
                end_oldest(&open);
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Activity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the connection that has waited for its client for longest, unless one is ending already.
fn end_oldest(open: &HashMap<u64, Arc<Activity>>) {
    let mut oldest: Option<(Instant, &Arc<Activity>)> = None;
    for activity in open.values() {
        if activity.close.is_cancelled() {
            return;
        }
        let Some(since) = activity.waiting_since() else { continue };
        if oldest.is_none_or(|(before, _)| since < before) {
            oldest = Some((since, activity));
        }
    }
    if let Some((_, activity)) = oldest {
        activity.close.cancel();
    }
}

/// Whether the client caused the failure to accept its connection.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A connection's place under the limit. Dropping it frees the place.
struct Place {
    id: u64,
    activity: Arc<Activity>,
    connections: Arc<Connections>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.id);
        self.connections.freed.notify_waiters();
    }
}

impl Place {
    /// The age at which the connection takes no further requests. It differs from connection to connection by up to a tenth, so that
    /// those of one moment do not end in one moment.
    fn age_max(&self) -> Option<Duration> {
        let age = self.connections.limits.age?;
        // Consecutive numbers are spread evenly.
        let share = u32::try_from(self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).unwrap_or_default();
        Some(age.mul_f64(0.9 + 0.2 * f64::from(share) / f64::from(u32::MAX)))
    }

    fn is_old(&self) -> bool {
        self.age_max().is_some_and(|age| self.activity.is_older_than(age))
    }
}

/// Keeps the place of a connection, also when it speaks another protocol than HTTP now.
#[derive(Clone)]
pub(crate) struct Occupied(Arc<Place>);

impl Occupied {
    /// Counts the connection as busy until the guard is dropped: it is not closed for another one.
    pub(crate) fn busy(&self) -> RequestGuard {
        let guard = self.0.activity.begin();
        guard.received();
        guard
    }

    /// Returns once the connection must end at once.
    pub(crate) async fn must_close(&self) {
        self.0.activity.close.cancelled().await;
    }
}

struct Connection {
    place: Place,
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    stopping: CancellationToken,
}

/// Why a connection takes no further requests.
enum Ending {
    /// Its client is silent.
    Silent,
    /// It is too old.
    Old,
    /// The server stops.
    Stopping,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) {
        // Small chunks of a stream must not wait to fill packets. The connection works even if this fails.
        let _ = stream.set_nodelay(true);
        let stream = StallGuard::new(stream, self.place.connections.limits.stall);
        match tls {
            None => self.serve_requests(stream).await,
            // In the heap, so that connections without TLS take no memory for it.
            Some(config) => {
                Box::pin(async move {
                    if let Some(stream) = self.handshake(stream, config).await {
                        self.serve_requests(stream).await;
                    }
                })
                .await;
            }
        }
    }

    /// The encrypted connection; none if the handshake fails or takes too long, or if the connection must end.
    async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        config: Arc<ServerConfig>,
    ) -> Option<TlsStream<S>> {
        let activity = &self.place.activity;
        let handshake = tokio::select! {
            handshake = TlsAcceptor::from(config).accept(stream) => handshake,
            () = activity.close.cancelled() => return None,
            () = activity.is_silent(&self.place.connections.limits) => return None,
            () = self.stopping.cancelled() => return None,
        };
        // An error concerns the client, which sees it.
        handshake.inspect_err(|error| debug!(%error, "a TLS handshake failed")).ok()
    }

    async fn serve_requests<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { place, router, builder, stopping } = self;
        let place = Arc::new(place);
        let (activity, connections) = (&place.activity, &place.connections);
        let limits = &connections.limits;
        let terms = Terms {
            stall: limits.stall,
            unread: connections.unread.clone(),
            close: activity.close.clone(),
            relays: connections.relays.clone(),
        };
        let occupied = Occupied(Arc::clone(&place));
        let answer = |request: Request<Incoming>| answer(request, router.clone(), &occupied, &terms, limits);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service_fn(answer));
        tokio::pin!(connection);
        let ending = tokio::select! {
            _ = connection.as_mut() => return,
            () = activity.close.cancelled() => return,
            () = activity.is_silent(limits) => Ending::Silent,
            () = activity.is_old(place.age_max()) => Ending::Old,
            () = stopping.cancelled() => Ending::Stopping,
        };
        // An error of the connection is not logged: it concerns its client, which sees it.
        connection.as_mut().graceful_shutdown();
        let patience = async {
            match (ending, limits.age_grace) {
                (Ending::Silent, _) => {}
                (Ending::Old, Some(grace)) => sleep_until(Instant::now() + grace).await,
                (Ending::Old, None) | (Ending::Stopping, _) => activity.is_silent(limits).await,
            }
            sleep_until(Instant::now() + LINGER).await;
        };
        tokio::select! {
            _ = connection => {}
            () = activity.close.cancelled() => {}
            () = patience => {}
        }
    }
}

/// Answers one request.
fn answer(
    request: Request<Incoming>,
    router: Router,
    occupied: &Occupied,
    terms: &Terms,
    limits: &ServerLimits,
) -> impl Future<Output = Result<http::Response<Body>, Infallible>> + Send + use<> {
    let guard = Arc::new(occupied.0.activity.begin());
    let (version, terms, limit) = (request.version(), terms.clone(), limits.body);
    if version == Version::HTTP_2 {
        occupied.0.activity.speaks_http2();
    }
    let is_last = version < Version::HTTP_2 && occupied.0.is_old();
    let mut request = request.map(|body| Body::new(TimedBody::new(body, limit, Arc::clone(&guard))));
    request.extensions_mut().insert(terms.unread.clone());
    request.extensions_mut().insert(occupied.clone());
    async move {
        let mut response = router.oneshot(request).await?;
        // Over HTTP/1, the client must learn it from a response: a request could cross with the end of a silent connection.
        if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        guard.received();
        Ok(send(response, guard, &terms, version))
    }
}
