//! Calls of the cache. They fail at once while Redis is unreachable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::time::Timestamp;
use podium_ports::cache::CacheError;
use podium_ports::clock::Clock;
use redis::aio::ConnectionManager;
use redis::{FromRedisValue, IntoConnectionInfo, RedisResult, ScriptInvocation};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::cache::RedisOptions;
use crate::connection::{Connection, InvalidUrl};
use crate::failure::Failure;

/// Redis failed less than [`away_for`](crate::cache::RedisOptions::away_for) ago.
#[derive(Debug, thiserror::Error)]
#[error("Redis failed recently and is not called")]
struct FailedRecently;

/// A connection that is not used for a time after a failure.
pub(crate) struct Link {
    connection: Connection,
    away_for: Duration,
    clock: Arc<dyn Clock>,
    /// Calls fail until this time; `None` while Redis answers.
    away_until: Mutex<Option<Timestamp>>,
}

impl Link {
    /// Creates the link without connecting.
    pub(crate) fn open(
        server: impl IntoConnectionInfo,
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InvalidUrl> {
        let connection = Connection::open(server, options.answer_max)?;
        Ok(Self { connection, away_for: options.away_for, clock, away_until: Mutex::default() })
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
        if self.lock().is_some_and(|until| self.clock.now() < until) {
            return Err(CacheError(FailedRecently.into()));
        }
        let answer = self.connection.answer(Instant::now(), call(self.connection.manager())).await;
        match &answer {
            Ok(_) => self.answered(),
            Err(failure) => self.failed(failure),
        }
        answer.map_err(|failure| CacheError(failure.into()))
    }

    fn answered(&self) {
        if self.lock().take().is_some() {
            info!("Redis is reachable again; outputs are cached");
        }
    }

    fn failed(&self, failure: &Failure) {
        let until = self.clock.now().after(self.away_for);
        if self.lock().replace(until).is_none() {
            warn!(error = failure as &dyn std::error::Error, "Redis is unreachable; outputs are not cached");
        }
        // An error answer may come from the wrong server, which only a new connection can change.
        self.connection.reconnect();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.away_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
