//! One call of the database: a connection, a time limit, and another try where nothing was done.

use std::time::Duration;

use podium_ports::store::StoreError;
use sqlx::PgConnection;
use sqlx::error::DatabaseError;
use tokio::time::timeout;

use crate::Store;

/// How often a statement is tried that Postgres rolled back to let another one through.
const TRIES_MAX: u32 = 5;
/// How much later than the server a statement is given up here: the server's own word says more.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);
/// What Postgres says when a deadlock was broken, or a transaction could not be serialized. It has rolled back.
const ROLLED_BACK: [&str; 2] = ["40P01", "40001"];
/// What it says when the connection is of no more use: this server takes no writes (any more).
const READ_ONLY: &str = "25006";
/// Beginnings of what it says when the connection failed, or the server shuts down or has not started.
const GONE: [&str; 2] = ["08", "57P"];

/// What it says when a row stayed locked, the statement took too long, or a page is damaged.
const REFUSALS: [&str; 4] = ["55P03", "57014", "XX001", "XX002"];
/// Beginnings of what it says when it does not take a value: of data, of constraints, of its limits, of rules such as triggers.
const REFUSED_CLASSES: [&str; 4] = ["22", "23", "54", "P0"];

/// The server did not answer; whether it did what it was asked is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database did not answer within {0:?}")]
pub struct NoAnswer(
    /// How long it was waited for.
    pub Duration,
);

/// The server answers and takes no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database is a standby and takes no writes")]
pub struct Standby;

/// What is asked of the database. It can be asked again when nothing of it was done.
pub(crate) trait Call: Sync {
    /// What is answered.
    type Answer: Send;

    /// Asks.
    fn ask(
        &self,
        connection: &mut PgConnection,
    ) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;
}

/// The error of a statement. Where the server said that it refuses the statement, nothing was done; else nothing is known.
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
    /// Asks, and asks again if Postgres rolled back for another one's sake.
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

/// Whether the server refused a statement, rather than the connection being broken or of no use.
fn is_usable_after(error: &sqlx::Error) -> bool {
    is_one_of(error, |code| code != READ_ONLY && !GONE.iter().any(|gone| code.starts_with(gone)))
}

fn is_one_of(error: &sqlx::Error, is_it: impl FnOnce(&str) -> bool) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| is_it(&code))
}
