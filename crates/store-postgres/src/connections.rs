//! Connections for one statement each.
//!
//! The pool asks the server on every return of a connection whether it is still there: a round trip and a process woken for
//! each statement, as much again as a small one costs. So a connection that has just answered is kept at hand, and goes through
//! the pool, which also ends what is too old, only now and then.

//!
//! Where the address names several servers, connections go to the one that takes writes. When that one fails or becomes a
//! follower, all are asked again, before anything else is.

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

/// Statements between two returns to the pool.
const STATEMENTS_MAX: u32 = 64;
/// A connection that did nothing for longer is tried before it is used: servers and what is before them close idle ones.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(1);

/// A pool, and those of its connections that are at hand.
#[derive(Debug)]
pub(crate) struct Connections {
    servers: Servers,
    make_pool: PoolMaker,
    /// As many as the pool has connections: who holds a turn finds one at hand, or the pool has one left.
    turns: Arc<Semaphore>,
    state: Mutex<State>,
    /// Whether the server that is used may not be the one that takes writes any more. Never, if there is only one.
    is_doubted: AtomicBool,
    /// Held by whoever looks for the one that does.
    looking: tokio::sync::Mutex<()>,
}

/// The server that is used.
#[derive(Debug)]
struct State {
    server: usize,
    pool: PgPool,
    at_hand: Vec<AtHand>,
    /// How often another server was chosen.
    turn: u64,
}

/// Makes pools of connections, none of which is made yet, and notes for each that is made whether its server follows another.
#[derive(Clone, Debug)]
pub(crate) struct PoolMaker {
    options: Options,
    meets_standby: Arc<AtomicBool>,
}

/// A connection that nobody uses.
#[derive(Debug)]
struct AtHand {
    pooled: PoolConnection<Postgres>,
    statements: u32,
    used_at: Instant,
}

/// A connection. It is closed unless it is [kept](Connections::keep): who gives up waiting for an answer must not leave the
/// question to the next one.
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

/// What Postgres says when it allows no further connection.
const TOO_MANY: &str = "53300";

/// An error of connecting, in words for operators where Postgres' own do not say what to do.
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
    /// Connections to one of these servers; none is made yet.
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

    #[cfg(test)]
    pub(crate) fn pool(&self) -> PgPool {
        self.lock().pool.clone()
    }

    /// The one that was used last, or else one from the pool.
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
                // Back to the pool, which tries it.
                drop(idle);
                let acquired = pool.acquire().await;
                (acquired.inspect_err(|_| self.doubt()).map_err(explained)?, 0)
            }
        };
        let mut connection = Connection { pooled: Some(pooled), statements, server_turn, _turn: turn };
        // Reads of a server that follows another one would be old.
        if self.make_pool.meets_standby.load(Ordering::Acquire)
            && let Some(pooled) = connection.get()
            && follows(pooled).await?
        {
            self.doubt();
            return Err(Standby.into());
        }
        Ok(connection)
    }

    /// The server that is used failed, or says that it takes no writes: if there are others, it may be another one's turn.
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
            warn!(server = self.servers.get(server).get_host(), "another Postgres server takes writes now");
            let pool = self.make_pool.make(self.servers.get(server));
            // Whatever is still connected to the other one reads what is old. It counts as closed from here on.
            drop(std::mem::replace(&mut state.pool, pool).close());
            state.at_hand.clear();
            state.server = server;
            state.turn += 1;
        }
        Ok(())
    }

    /// Takes back one whose statement was answered.
    pub(crate) fn keep(&self, mut connection: Connection) {
        let Some(pooled) = connection.pooled.take() else { return };
        let statements = connection.statements + 1;
        let mut state = self.lock();
        if statements < STATEMENTS_MAX && !state.pool.is_closed() && state.turn == connection.server_turn {
            state.at_hand.push(AtHand { pooled, statements, used_at: Instant::now() });
        }
    }

    /// Closes all of them, and the pool.
    pub(crate) async fn close(&self) {
        let pool = self.lock().pool.clone();
        // It counts as closed from here on: nothing is kept any more after the lock was held once.
        let closing = pool.close();
        self.lock().at_hand.clear();
        closing.await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The connection itself; none after it was closed.
    pub(crate) fn get(&mut self) -> Option<&mut PoolConnection<Postgres>> {
        self.pooled.as_mut()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.pooled.take().map(PoolConnection::detach));
    }
}
