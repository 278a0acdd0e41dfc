//! Connections for one statement each.
//!
//! The pool asks the server on every return of a connection whether it is still there: a round trip and a process woken for
//! each statement, as much again as a small one costs. So a connection that has just answered is kept at hand, and goes through
//! the pool, which also ends what is too old, only now and then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Statements between two returns to the pool.
const STATEMENTS_MAX: u32 = 64;
/// A connection that did nothing for longer is tried before it is used: servers and what is before them close idle ones.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(1);

/// A pool, and those of its connections that are at hand.
#[derive(Debug)]
pub(crate) struct Connections {
    pool: PgPool,
    /// As many as the pool has connections: who holds a turn finds one at hand, or the pool has one left.
    turns: Arc<Semaphore>,
    at_hand: Mutex<Vec<AtHand>>,
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
    _turn: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(pool: PgPool) -> Self {
        let turns = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let turns = Arc::new(Semaphore::new(turns.min(Semaphore::MAX_PERMITS)));
        Self { pool, turns, at_hand: Mutex::default() }
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The one that was used last, or else one from the pool.
    pub(crate) async fn take(&self) -> Result<Connection, sqlx::Error> {
        let wait_max = self.pool.options().get_acquire_timeout();
        let turn = timeout(wait_max, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let at_hand = self.lock().pop();
        let (pooled, statements) = match at_hand {
            Some(used) if used.used_at.elapsed() <= IDLE_MAX => (used.pooled, used.statements),
            idle => {
                // Back to the pool, which tries it.
                drop(idle);
                (self.pool.acquire().await?, 0)
            }
        };
        Ok(Connection { pooled: Some(pooled), statements, _turn: turn })
    }

    /// Takes back one whose statement was answered.
    pub(crate) fn keep(&self, mut connection: Connection) {
        let Some(pooled) = connection.pooled.take() else { return };
        let statements = connection.statements + 1;
        let mut at_hand = self.lock();
        if statements < STATEMENTS_MAX && !self.pool.is_closed() {
            at_hand.push(AtHand { pooled, statements, used_at: Instant::now() });
        }
    }

    /// Closes all of them, and the pool.
    pub(crate) async fn close(&self) {
        // It counts as closed from here on: nothing is kept any more after the lock was held once.
        let closing = self.pool.close();
        self.lock().clear();
        closing.await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AtHand>> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
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
