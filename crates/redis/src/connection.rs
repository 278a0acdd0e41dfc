//! A connection to a Redis server. Every call has a time limit.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use podium_domain::ids::NAME_BYTES_MAX;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, IntoConnectionInfo, RedisResult};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;

/// How long the server's TCP may stay silent before the connection counts as lost. Without it a call to a machine that is gone
/// would wait until the operating system gives up, after a quarter of an hour.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The URL is invalid. It is not repeated because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the URL must be `redis://`, `rediss://` or `unix://` with a host or a path, and what Redis needs besides"
)]
pub(crate) struct InvalidUrl;

/// A connection that reconnects by itself.
pub(crate) struct Connection {
    /// Host and port, or path.
    server: String,
    client: Client,
    manager: Mutex<ConnectionManager>,
    answer_max: Duration,
}

impl Connection {
    /// Creates the connection without connecting. A call may take `answer_max`, connecting included.
    pub(crate) fn open(server: impl IntoConnectionInfo, answer_max: Duration) -> Result<Self, InvalidUrl> {
        install_tls_provider();
        let address = server.into_connection_info().map_err(|_| InvalidUrl)?;
        let server = address.addr().to_string();
        let keepalive = TcpKeepalive::new().with_time(SILENCE_MAX).with_interval(SILENCE_MAX / 3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(SILENCE_MAX);
        let client = Client::open(address.set_tcp_settings(tcp)).map_err(|_| InvalidUrl)?;
        let manager = manage(&client, answer_max).map_err(|_| InvalidUrl)?;
        Ok(Self { server, client, manager: Mutex::new(manager), answer_max })
    }

    /// The server's host and port, or path, without credentials.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// A handle for commands.
    pub(crate) fn manager(&self) -> ConnectionManager {
        self.lock().clone()
    }

    /// Waits for a call until its time limit, counted from `since`.
    pub(crate) async fn answer<T>(
        &self,
        since: Instant,
        call: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Failure> {
        let answer_max = self.answer_max;
        match timeout_at(since + answer_max, call).await {
            Ok(answer) => answer.map_err(|error| Failure::from_redis(&error)),
            Err(_) => Err(Failure::Late { answer_max }),
        }
    }

    /// Drops the connection; the next call makes a new one.
    pub(crate) fn reconnect(&self) {
        if let Ok(manager) = manage(&self.client, self.answer_max) {
            *self.lock() = manager;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionManager> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a prefix of keys is valid. Braces are not: they would start another hash tag.
pub(crate) fn is_key_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// A manager that tries to connect once per call: the caller decides when to try again.
fn manage(client: &Client, answer_max: Duration) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(answer_max))
        // The callers' own limit ends first, so an answer that is late never looks like a connection that failed.
        .set_response_timeout(Some(answer_max * 2));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// Makes ring the process's TLS provider, unless the process chose one already.
fn install_tls_provider() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    });
}
