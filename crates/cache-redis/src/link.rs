//! The connection to Redis. Every call has a time limit and fails at once while Redis is unreachable.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use podium_domain::time::Timestamp;
use podium_ports::cache::CacheError;
use podium_ports::clock::Clock;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, FromRedisValue, IntoConnectionInfo, RedisError, RedisResult, ScriptInvocation};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::OpenError;

/// Why a call to Redis failed. Redis may have executed it all the same.
///
/// The messages contain nothing of the URL. Of an error answer only the first word is kept: the rest may repeat the request.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// No answer in time.
    #[error("Redis did not answer within {answer_max:?}")]
    Late {
        /// The time limit.
        answer_max: Duration,
    },
    /// The connection failed.
    #[error("Redis is unreachable: {what}")]
    Unreachable {
        /// The message of the operating system or the TLS library.
        what: String,
    },
    /// Redis answered with an error.
    #[error("Redis answered `{code}`")]
    Refused {
        /// Its code, such as `LOADING`.
        code: String,
    },
    /// It failed recently.
    #[error("Redis failed recently and is not called")]
    Away,
}

impl Failure {
    fn from_redis(error: &RedisError) -> Self {
        if error.is_io_error() {
            return Self::Unreachable { what: error.to_string() };
        }
        Self::Refused { code: error.code().unwrap_or(error.category()).to_owned() }
    }
}

/// A connection that reconnects by itself.
pub(crate) struct Link {
    client: Client,
    answer_max: Duration,
    away_for: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    manager: ConnectionManager,
    /// Calls fail until this time; `None` while Redis answers.
    away_until: Option<Timestamp>,
}

impl Link {
    /// Creates the link without connecting.
    pub(crate) fn open(
        server: impl IntoConnectionInfo,
        (answer_max, away_for): (Duration, Duration),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        install_tls_provider();
        let client = Client::open(server).map_err(|_| OpenError::Url)?;
        let manager = manage(&client, answer_max).map_err(|_| OpenError::Url)?;
        let state = Mutex::new(State { manager, away_until: None });
        Ok(Self { client, answer_max, away_for, clock, state })
    }

    /// Runs a script.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, CacheError> {
        self.call(|mut manager| async move { call.invoke_async(&mut manager).await }).await
    }

    /// Reads a string.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, CacheError> {
        self.call(|mut manager| async move { redis::cmd("GET").arg(key).query_async(&mut manager).await })
            .await
    }

    async fn call<T, F>(&self, call: impl FnOnce(ConnectionManager) -> F) -> Result<T, CacheError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let manager = {
            let state = self.lock();
            if state.away_until.is_some_and(|until| self.clock.now() < until) {
                return Err(CacheError(Failure::Away.into()));
            }
            state.manager.clone()
        };
        let failure = match timeout(self.answer_max, call(manager)).await {
            Ok(Ok(answer)) => {
                self.answered();
                return Ok(answer);
            }
            Ok(Err(error)) => Failure::from_redis(&error),
            Err(_) => Failure::Late { answer_max: self.answer_max },
        };
        self.failed(&failure);
        Err(CacheError(failure.into()))
    }

    fn answered(&self) {
        if self.lock().away_until.take().is_some() {
            info!("Redis is reachable again; outputs are cached");
        }
    }

    fn failed(&self, failure: &Failure) {
        let until = self.clock.now().after(self.away_for);
        let mut state = self.lock();
        if state.away_until.replace(until).is_none() {
            warn!(error = failure as &dyn std::error::Error, "Redis is unreachable; outputs are not cached");
        }
        // An error answer may come from the wrong server, which only a new connection can change.
        if let Ok(manager) = manage(&self.client, self.answer_max) {
            state.manager = manager;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manager that tries to connect once per call.
fn manage(client: &Client, answer_max: Duration) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(answer_max))
        .set_response_timeout(Some(answer_max));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// Makes ring the process's TLS provider, unless the process chose one already.
fn install_tls_provider() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    });
}
