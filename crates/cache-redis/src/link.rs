//! The connection to Redis. Every call through it ends in time, and at once while Redis is away.

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

/// Why Redis did not do what it was asked. Whether it did so all the same is not known.
///
/// Nothing here comes from the URL. Of an answer only its first word is kept: the rest may repeat what was sent.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// No answer in time.
    #[error("Redis did not answer within {answer_max:?}")]
    Late {
        /// The time that it had.
        answer_max: Duration,
    },
    /// The connection failed.
    #[error("Redis cannot be reached: {what}")]
    Unreachable {
        /// The operating system's or the TLS library's words.
        what: String,
    },
    /// It answered with an error.
    #[error("Redis answered `{code}`")]
    Refused {
        /// Such as `LOADING`.
        code: String,
    },
    /// It failed a moment ago.
    #[error("Redis failed a moment ago and is not asked")]
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

/// A connection that comes back by itself.
pub(crate) struct Link {
    client: Client,
    answer_max: Duration,
    away_for: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    manager: ConnectionManager,
    /// Until when it is not asked; none while it answers.
    away_until: Option<Timestamp>,
}

impl Link {
    /// Connects to nothing yet.
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
        self.ask(|mut manager| async move { call.invoke_async(&mut manager).await }).await
    }

    /// Reads a string.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, CacheError> {
        self.ask(|mut manager| async move { redis::cmd("GET").arg(key).query_async(&mut manager).await })
            .await
    }

    async fn ask<T, F>(&self, call: impl FnOnce(ConnectionManager) -> F) -> Result<T, CacheError>
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
            info!("Redis is back: outputs are cached again");
        }
    }

    fn failed(&self, failure: &Failure) {
        let until = self.clock.now().after(self.away_for);
        let mut state = self.lock();
        if state.away_until.replace(until).is_none() {
            warn!(error = failure as &dyn std::error::Error, "Redis is away: no output is cached");
        }
        // A server that answers with an error may be the wrong one, which only another connection finds out.
        if let Ok(manager) = manage(&self.client, self.answer_max) {
            state.manager = manager;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A manager that tries to connect once for each call.
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
