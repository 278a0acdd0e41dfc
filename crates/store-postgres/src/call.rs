//! One call of the database: a connection, a time limit, and a retry if nothing was done.

use std::time::Duration;

use podium_ports::store::StoreError;
use sqlx::PgConnection;
use sqlx::error::DatabaseError;
use tokio::time::timeout;

use crate::Store;

/// Most tries of a statement that Postgres rolls back in favour of another one.
const TRIES_MAX: u32 = 5;
/// How much later than the server we give up on a statement: the server's own error is more precise.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);
/// Error codes of a broken deadlock and of a transaction that could not be serialized. Postgres has rolled back.
const ROLLED_BACK: [&str; 2] = ["40P01", "40001"];
/// Error code of a server that takes no writes (any more); the connection is useless.
const READ_ONLY: &str = "25006";
/// Prefixes of the error codes of a failed connection, and of a server that shuts down or has not started.
const GONE: [&str; 2] = ["08", "57P"];

/// Error codes of a row that stayed locked, a statement that took too long, and a damaged page.
const REFUSALS: [&str; 4] = ["55P03", "57014", "XX001", "XX002"];
/// Prefixes of the error codes of rejected values: by data types, constraints, limits, and rules such as triggers.
const REFUSED_CLASSES: [&str; 4] = ["22", "23", "54", "P0"];

/// The server did not answer; it is unknown whether the statement was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database did not answer within {0:?}")]
pub struct NoAnswer(
    /// How long the call waited.
    pub Duration,
);

/// The server is reachable and takes no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database is a standby and takes no writes")]
pub struct Standby;

/// A call of the database. It can be repeated if nothing of it was done.
pub(crate) trait Call: Sync {
    /// The result.
    type Answer: Send;

    /// Executes the call once.
    fn ask(
        &self,
        connection: &mut PgConnection,
    ) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;
}

/// The error of a statement. If the server refused it, nothing was done; otherwise the outcome is unknown.
pub(crate) fn unavailable(source: sqlx::Error) -> StoreError {
    if is_one_of(&source, is_refusal) {
        return StoreError::Refused(Box::new(source));
    }
    StoreError::Unavailable(Box::new(source))
}

fn is_refusal(code: &str) -> bool {
    REFUSALS.contains(&code) || REFUSED_CLASSES.iter().any(|class| code.starts_with(class))
}

impl Store {
    /// Executes the call, and repeats it if Postgres rolled it back in favour of another one.
    pub(crate) async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, StoreError> {
        for _ in 1..TRIES_MAX {
            match self.ask(call).await? {
                Err(error) if is_one_of(&error, |code| ROLLED_BACK.contains(&code)) => {}
                answer => return answer.map_err(unavailable),
            }
        }
        self.ask(call).await?.map_err(unavailable)
    }

    async fn ask<C: Call>(&self, call: &C) -> Result<Result<C::Answer, sqlx::Error>, StoreError> {
        let mut taken = self.connections.take().await.map_err(StoreError::Unavailable)?;
        let Some(connection) = taken.get() else { return Err(unavailable(sqlx::Error::PoolClosed)) };
        let answer_max = self.options.statement_max + ANSWER_MARGIN;
        let answer = timeout(answer_max, call.ask(connection)).await;
        let Ok(answer) = answer else {
            self.connections.doubt();
            return Err(StoreError::Unavailable(Box::new(NoAnswer(answer_max))));
        };
        if answer.as_ref().map_or_else(is_usable_after, |_| true) {
            self.connections.keep(taken);
        } else {
            self.connections.doubt();
        }
        Ok(answer)
    }
}

/// Whether the server refused a statement, in contrast to a broken or useless connection.
fn is_usable_after(error: &sqlx::Error) -> bool {
    is_one_of(error, |code| code != READ_ONLY && !GONE.iter().any(|gone| code.starts_with(gone)))
}

fn is_one_of(error: &sqlx::Error, is_it: impl FnOnce(&str) -> bool) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| is_it(&code))
}
