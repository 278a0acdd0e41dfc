//! A connection to NATS with a time limit for every call.
//!
//! The client library reconnects without a limit. Until it is connected, it queues commands that no server processes. So each
//! call waits for the connection first, and then for an answer.

mod version;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message, RequestErrorKind, Server, Subscriber};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::error::NatsError;
pub use version::ServerVersion;

/// A connection without traffic for two to three of these intervals counts as dead.
const PING_EVERY: Duration = Duration::from_secs(5);
const RECONNECT_AFTER_MIN: Duration = Duration::from_millis(50);
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(2);
/// Interval between log lines about a missing connection.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The servers of one cluster, such as `nats://127.0.0.1:4222`. If one is `tls://`, or certificates are given, every
    /// connection is encrypted.
    pub servers: Vec<String>,
    /// The connection's name in the server's monitoring.
    pub name: String,
    /// How the process authenticates.
    pub sign_in: SignIn,
    /// A file of trusted certificate authorities, instead of the system's.
    pub root_certificates: Option<PathBuf>,
    /// The files of a client certificate and its key, for servers that require one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Time limit of a call, except calls that wait for messages.
    pub call_max: Duration,
    /// The reaction if no server answers at the start.
    pub at_start: AtStart,
}

impl ConnectionOptions {
    /// Connects to one server, and fails if it is unreachable.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            name: "podium".to_owned(),
            sign_in: SignIn::Anonymous,
            root_certificates: None,
            client_certificate: None,
            call_max: Duration::from_secs(2),
            at_start: AtStart::Fail,
        }
    }
}

/// How a process authenticates.
#[derive(Clone, Debug)]
pub enum SignIn {
    /// Without credentials, or by its client certificate.
    Anonymous,
    /// A user with a password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// With a token.
    Token(SecretString),
    /// With the seed of an nkey.
    NKey(SecretString),
    /// With a credentials file.
    Credentials(PathBuf),
}

/// The reaction if no server answers at the start. Later connections are retried without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStart {
    /// Return an error.
    Fail,
    /// Start without a connection and keep trying. Calls fail until then.
    Retry,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) is_connected: bool,
    /// Number of connections so far. Subscriptions of earlier connections may be lost.
    pub(crate) connections: u64,
    /// How often the client dropped messages because a subscription was read too slowly.
    pub(crate) overflows: u64,
}

impl Health {
    /// Whether messages may have been lost since the state was `before`.
    pub(crate) const fn has_lost_since(&self, before: &Self) -> bool {
        self.connections != before.connections || self.overflows != before.overflows
    }
}

#[derive(Clone)]
pub(crate) struct Link {
    client: Client,
    call_max: Duration,
    health: watch::Receiver<Health>,
    checked: Arc<Mutex<Checked>>,
    outage: Arc<Mutex<Outage>>,
}

/// The failures since the last connection.
#[derive(Debug, Default)]
struct Outage {
    /// The last known error of each server that was tried. It contains no secret.
    why: Option<String>,
    logged_at: Option<Instant>,
}

/// The server's version, checked once per connection.
#[derive(Debug, Default)]
struct Checked {
    connections: u64,
    version: Option<ServerVersion>,
}

impl Link {
    /// Connects. Each subscription buffers at most `subscription_messages_max` messages.
    pub(crate) async fn connect(
        options: &ConnectionOptions,
        subscription_messages_max: usize,
    ) -> Result<Self, NatsError> {
        if options.call_max.is_zero() {
            return Err(NatsError::Option {
                option: "call_max",
                message: "must be longer than zero".to_owned(),
            });
        }
        let (health_sender, health) = watch::channel(Health::default());
        let outage = Arc::default();
        let connecting = client_options(options, health_sender, &outage)
            .await?
            .subscription_capacity(subscription_messages_max)
            .connect(&options.servers[..]);
        let client = connecting.await.map_err(|e| NatsError::Connect(Box::new(e)))?;
        let link = Self { client, call_max: options.call_max, health, checked: Arc::default(), outage };
        if options.at_start == AtStart::Fail {
            link.within("report its version", async { link.connected().await }).await?;
        }
        Ok(link)
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn call_max(&self) -> Duration {
        self.call_max
    }

    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.health.borrow().is_connected
    }

    /// The server's version, if a connection was ever made.
    pub(crate) fn version(&self) -> Option<ServerVersion> {
        self.lock_checked().version
    }

    /// Waits for a connection to a supported server. Returns the number of connections so far.
    pub(crate) async fn connected(&self) -> Result<u64, NatsError> {
        let mut health = self.health.clone();
        let found = health.wait_for(|health| health.is_connected).await;
        let connections = found.map_err(|e| NatsError::Connect(Box::new(e)))?.connections;
        if self.lock_checked().connections != connections {
            // The client accepts commands only after it has processed the server's INFO.
            self.client.flush().await.map_err(|e| NatsError::Connect(Box::new(e)))?;
            self.check_version(connections)?;
        }
        Ok(connections)
    }

    fn check_version(&self, connections: u64) -> Result<(), NatsError> {
        let found = self.client.server_info().version;
        let mut checked = self.lock_checked();
        checked.version = ServerVersion::read(&found);
        if checked.version.is_none_or(|version| version < ServerVersion::MIN) {
            return Err(NatsError::TooOld { found });
        }
        if checked.connections != connections {
            checked.connections = connections;
            info!(version = %found, "connected to NATS");
        }
        Ok(())
    }

    fn lock_checked(&self) -> MutexGuard<'_, Checked> {
        lock(&self.checked)
    }

    /// Runs a call with the time limit.
    pub(crate) async fn within<T, E: From<NatsError>>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let limit = self.call_max;
        let late = || match self.why_unreachable() {
            Some(why) => NatsError::Unreachable { call, why },
            None => NatsError::Timeout { call, limit },
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(late().into()))
    }

    /// The reason for a missing connection, if known.
    fn why_unreachable(&self) -> Option<String> {
        if self.is_connected() { None } else { lock(&self.outage).why.clone() }
    }

    /// Sends a request and waits for the answer. Use it [`within`](Self::within) a limit.
    pub(crate) async fn ask(
        &self,
        call: &'static str,
        subject: String,
        body: Bytes,
    ) -> Result<Message, NatsError> {
        self.connected().await?;
        self.client.request(subject, body).await.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => NatsError::NoResponders { call },
            RequestErrorKind::TimedOut => NatsError::Timeout { call, limit: self.call_max },
            _ => NatsError::Client { call, source: Box::new(error) },
        })
    }

    pub(crate) async fn subscribe(
        &self,
        call: &'static str,
        subject: String,
    ) -> Result<Subscriber, NatsError> {
        self.client.subscribe(subject).await.map_err(|e| NatsError::Client { call, source: Box::new(e) })
    }

    /// Waits until the client has written all messages. Use it [`within`](Self::within) a limit.
    pub(crate) async fn flush(&self) -> Result<(), NatsError> {
        self.client.flush().await.map_err(|e| NatsError::Client { call: "flush", source: Box::new(e) })
    }

    /// Passes a message to the client, which writes it when it can.
    pub(crate) async fn send(
        &self,
        call: &'static str,
        subject: String,
        body: Bytes,
    ) -> Result<(), NatsError> {
        let sent = self.client.publish(subject, body).await;
        sent.map_err(|e| NatsError::Client { call, source: Box::new(e) })
    }

    /// Like [`send`](Self::send), with a reply subject.
    pub(crate) async fn send_for_reply(
        &self,
        call: &'static str,
        subject: String,
        reply: String,
        body: Bytes,
    ) -> Result<(), NatsError> {
        let sent = self.client.publish_with_reply(subject, reply, body).await;
        sent.map_err(|e| NatsError::Client { call, source: Box::new(e) })
    }
}

/// Decodes an answer.
pub(crate) fn read<T: DeserializeOwned>(call: &'static str, body: &[u8]) -> Result<T, NatsError> {
    serde_json::from_slice(body).map_err(|e| NatsError::Undecodable { call, source: Box::new(e) })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn client_options(
    options: &ConnectionOptions,
    health: watch::Sender<Health>,
    outage: &Arc<Mutex<Outage>>,
) -> Result<ConnectOptions, NatsError> {
    let mut client = ConnectOptions::new()
        .name(&options.name)
        .ping_interval(PING_EVERY)
        .connection_timeout(options.call_max)
        .request_timeout(Some(options.call_max))
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_after)
        .reconnect_to_server_callback({
            let outage = Arc::clone(outage);
            move |servers, _| {
                note_failures(&outage, &servers);
                // The client chooses the next server.
                std::future::ready(None)
            }
        })
        .event_callback({
            let outage = Arc::clone(outage);
            move |event| {
                note(&health, &event);
                if matches!(event, Event::Connected) {
                    *lock(&outage) = Outage::default();
                }
                std::future::ready(())
            }
        });
    if let Some(file) = &options.root_certificates {
        client = client.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = &options.client_certificate {
        client = client.add_client_certificate(certificate.clone(), key.clone());
    }
    // Server addresses that a server announces have no scheme.
    let is_encrypted = options.servers.iter().any(|server| server.starts_with("tls://"))
        || options.root_certificates.is_some()
        || options.client_certificate.is_some();
    let client = sign_in(client.require_tls(is_encrypted), &options.sign_in).await?;
    Ok(match options.at_start {
        AtStart::Fail => client,
        AtStart::Retry => client.retry_on_initial_connect(),
    })
}

async fn sign_in(client: ConnectOptions, sign_in: &SignIn) -> Result<ConnectOptions, NatsError> {
    let exposed = |secret: &SecretString| secret.expose_secret().to_owned();
    Ok(match sign_in {
        SignIn::Anonymous => client,
        SignIn::Password { user, password } => client.user_and_password(user.clone(), exposed(password)),
        SignIn::Token(token) => client.token(exposed(token)),
        SignIn::NKey(seed) => client.nkey(exposed(seed)),
        SignIn::Credentials(file) => {
            let client = client.credentials_file(file).await;
            client.map_err(|source| NatsError::Credentials { file: file.clone(), source })?
        }
    })
}

/// Records why servers are unreachable, and logs it at intervals.
fn note_failures(outage: &Mutex<Outage>, servers: &[Server]) {
    let failures = servers.iter().filter_map(|server| {
        let (host, port) = (server.addr.host(), server.addr.port());
        server.last_error.as_ref().map(|error| format!("{host}:{port}: {error}{}", advice(error)))
    });
    let failures: Vec<_> = failures.collect();
    if failures.is_empty() {
        return;
    }
    let mut outage = lock(outage);
    let why = failures.join("; ");
    if outage.logged_at.is_none_or(|at| at.elapsed() > LOG_EVERY) {
        warn!(%why, "NATS is unreachable; retrying");
        outage.logged_at = Some(Instant::now());
    }
    outage.why = Some(why);
}

/// The option to check, for errors that are not temporary.
fn advice(error: &str) -> &'static str {
    const ADVICE: [(&str, &str); 6] = [
        ("UnknownIssuer", "; `root_certificates` lacks the authority of the server's certificate"),
        // The certificate is from another authority with the same name.
        ("BadSignature", "; `root_certificates` lacks the authority of the server's certificate"),
        ("not valid for name", "; the certificate is for another host than the one in the address"),
        ("CertificateRequired", "; the server requires a `client_certificate`"),
        ("authorization violation", "; the user, password, token, nkey or credentials are wrong or missing"),
        ("nonce", "; the server has no nkeys, or the seed is invalid"),
    ];
    ADVICE.iter().find(|(sign, _)| error.contains(sign)).map_or("", |(_, advice)| advice)
}

fn note(health: &watch::Sender<Health>, event: &Event) {
    match event {
        Event::Connected => health.send_modify(|health| {
            health.is_connected = true;
            health.connections += 1;
        }),
        Event::Disconnected => {
            warn!("the connection to NATS is down");
            health.send_modify(|health| health.is_connected = false);
        }
        // This process closed it: the client itself never gives up.
        Event::Closed => {
            debug!("the connection to NATS was closed");
            health.send_modify(|health| health.is_connected = false);
        }
        Event::SlowConsumer(_) => health.send_modify(|health| health.overflows += 1),
        Event::ServerError(error) => warn!(%error, "NATS reported an error"),
        // Each failed attempt to connect is one of them.
        Event::ClientError(error) => debug!(%error, "the NATS client reported an error"),
        Event::LameDuckMode | Event::Draining => {}
    }
}

/// The first delays are short, because a restarted server is usually reachable again soon.
fn reconnect_after(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    match attempts {
        0 | 1 => Duration::ZERO,
        _ => RECONNECT_AFTER_MIN.saturating_mul(1 << doublings).min(RECONNECT_AFTER_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delays_grow_to_a_bound() {
        let delays: Vec<_> = (0..100).map(reconnect_after).collect();
        assert!(delays.is_sorted());
        assert_eq!(
            (delays[1], delays[2], delays[99]),
            (Duration::ZERO, 2 * RECONNECT_AFTER_MIN, RECONNECT_AFTER_MAX)
        );
    }
}
