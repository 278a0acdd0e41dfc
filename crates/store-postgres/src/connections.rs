//! Connections for one statement each.
//!
//! The pool checks a connection whenever it is returned: one round trip and one wake-up of a process per statement, as much as a
//! small statement costs. So a connection that has just answered is kept at hand. Only now and then it goes through the pool,
//! which also closes connections that are too old.
//!
//! If the address names several servers, connections go to the one that takes writes. When that one fails or becomes a standby,
//! all servers are asked again before anything else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_ports::BoxError;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::Options;
use crate::call::Standby;
use crate::servers::{NoPrimary, Servers, follows};
use crate::sessions::with_settings;

/// Statements on a connection between two returns to the pool.
const STATEMENTS_MAX: u32 = 64;
/// A connection that was idle for longer is checked before use, because servers and proxies close idle connections.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(1);

/// A pool, and its connections that are at hand.
#[derive(Debug)]
pub(crate) struct Connections {
    servers: Servers,
    make_pool: PoolMaker,
    /// As many permits as the pool has connections: the holder of one finds a connection at hand, or the pool has one left.
    turns: Arc<Semaphore>,
    state: Mutex<State>,
    /// Whether the current server may not take writes any more. Always false if there is only one.
    is_doubted: AtomicBool,
    /// Held by the caller that looks for the server that takes writes.
    looking: tokio::sync::Mutex<()>,
}

/// The current server.
#[derive(Debug)]
struct State {
    server: usize,
    pool: PgPool,
    at_hand: Vec<AtHand>,
    /// How often another server was chosen.
    turn: u64,
}

/// Creates pools, which connect on demand, and records whether a connected server is a standby.
#[derive(Clone, Debug)]
pub(crate) struct PoolMaker {
    options: Options,
    meets_standby: Arc<AtomicBool>,
}

/// An unused connection.
#[derive(Debug)]
struct AtHand {
    pooled: PoolConnection<Postgres>,
    statements: u32,
    used_at: Instant,
}

/// A connection in use. It is closed unless it is [kept](Connections::keep), so that the answer to an abandoned statement does not
/// reach the next caller.
#[derive(Debug)]
pub(crate) struct Connection {
    pooled: Option<PoolConnection<Postgres>>,
    statements: u32,
    server_turn: u64,
    _turn: OwnedSemaphorePermit,
}

/// The server has as many connections as it allows.
#[derive(Debug, thiserror::Error)]
#[error(
    "Postgres allows no further connection: postgres_connections times the number of processes is more than its max_connections; lower the one or raise the other"
)]
pub(crate) struct TooManyConnections(#[source] sqlx::Error);

/// The error code of a server that allows no further connection.
const TOO_MANY: &str = "53300";

/// An error of connecting, with advice for operators if Postgres' own message has none.
pub(crate) fn explained(error: sqlx::Error) -> BoxError {
    let code = error.as_database_error().and_then(DatabaseError::code);
    if code.is_some_and(|code| code == TOO_MANY) {
        return Box::new(TooManyConnections(error));
    }
    error.into()
}

impl PoolMaker {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, meets_standby: Arc::default() }
    }

    fn make(&self, server: &PgConnectOptions) -> PgPool {
        let meets_standby = Arc::clone(&self.meets_standby);
        PgPoolOptions::new()
            .max_connections(self.options.connections_max.max(1))
            .acquire_timeout(self.options.acquire_max)
            .test_before_acquire(false)
            .before_acquire(|connection, used| {
                Box::pin(async move {
                    if used.idle_for > IDLE_MAX {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .after_connect(move |connection, _| {
                let meets_standby = Arc::clone(&meets_standby);
                Box::pin(async move {
                    meets_standby.store(follows(connection).await?, Ordering::Release);
                    Ok(())
                })
            })
            .connect_lazy_with(with_settings(server.clone(), &self.options))
    }
}

impl Connections {
    /// Connections to one of these servers; connects on demand.
    pub(crate) fn new(servers: Servers, server: usize, make_pool: PoolMaker) -> Self {
        let connections_max = usize::try_from(make_pool.options.connections_max.max(1)).unwrap_or(usize::MAX);
        let turns = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let pool = make_pool.make(servers.get(server));
        let state = Mutex::new(State { server, pool, at_hand: Vec::new(), turn: 0 });
        Self {
            servers,
            make_pool,
            turns,
            state,
            is_doubted: false.into(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// How many are in use, and how many more may be.
    pub(crate) fn in_use_and_free(&self) -> (usize, usize) {
        let connections_max =
            usize::try_from(self.make_pool.options.connections_max.max(1)).unwrap_or(usize::MAX);
        let free = self.turns.available_permits();
        (connections_max.saturating_sub(free), free)
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> PgPool {
        self.lock().pool.clone()
    }

    /// The connection that was used last, or else one from the pool.
    pub(crate) async fn take(&self) -> Result<Connection, BoxError> {
        let wait_max = self.make_pool.options.acquire_max;
        let turn = timeout(wait_max, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        if self.is_doubted.load(Ordering::Acquire) {
            self.look_for_the_primary().await?;
        }
        let (at_hand, pool, server_turn) = {
            let mut state = self.lock();
            (state.at_hand.pop(), state.pool.clone(), state.turn)
        };
        let (pooled, statements) = match at_hand {
            Some(used) if used.used_at.elapsed() <= IDLE_MAX => (used.pooled, used.statements),
            idle => {
                // Returned to the pool, which checks it.
                drop(idle);
                let acquired = pool.acquire().await;
                (acquired.inspect_err(|_| self.doubt()).map_err(explained)?, 0)
            }
        };
        let mut connection = Connection { pooled: Some(pooled), statements, server_turn, _turn: turn };
        // Reads from a standby would be stale.
        if self.make_pool.meets_standby.load(Ordering::Acquire)
            && let Some(pooled) = connection.get()
            && follows(pooled).await?
        {
            self.doubt();
            return Err(Standby.into());
        }
        Ok(connection)
    }

    /// Records that the current server failed or takes no writes; if there are others, one of them may do so now.
    pub(crate) fn doubt(&self) {
        if self.servers.are_several() {
            self.is_doubted.store(true, Ordering::Release);
        }
    }

    async fn look_for_the_primary(&self) -> Result<(), NoPrimary> {
        let _looking = self.looking.lock().await;
        if !self.is_doubted.load(Ordering::Acquire) {
            return Ok(());
        }
        let server = self.servers.primary().await?;
        self.is_doubted.store(false, Ordering::Release);
        let mut state = self.lock();
        if state.server != server {
            warn!(server = self.servers.get(server).get_host(), "switched to another Postgres server");
            let pool = self.make_pool.make(self.servers.get(server));
            // Connections to the former server read stale data. They count as closed from here on.
            drop(std::mem::replace(&mut state.pool, pool).close());
            state.at_hand.clear();
            state.server = server;
            state.turn += 1;
        }
        Ok(())
    }

    /// Keeps a connection whose statement was answered.
    pub(crate) fn keep(&self, mut connection: Connection) {
        let Some(pooled) = connection.pooled.take() else { return };
        let statements = connection.statements + 1;
        let mut state = self.lock();
        if statements < STATEMENTS_MAX && !state.pool.is_closed() && state.turn == connection.server_turn {
            state.at_hand.push(AtHand { pooled, statements, used_at: Instant::now() });
        }
    }

    /// Closes all connections and the pool.
    pub(crate) async fn close(&self) {
        let pool = self.lock().pool.clone();
        // The pool counts as closed from here on: once the lock was held, no connection is kept any more.
        let closing = pool.close();
        self.lock().at_hand.clear();
        closing.await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The connection itself; `None` after it was closed.
    pub(crate) fn get(&mut self) -> Option<&mut PoolConnection<Postgres>> {
        self.pooled.as_mut()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.pooled.take().map(PoolConnection::detach));
    }
}
