//! What the statements rely on in a session, and who sees to it.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::Options;

/// How long a session may leave a transaction open. None of ours does.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(10);
/// What our client calls the statements that it prepares. A pooler that keeps track of them gives them names of its own.
const PREPARED: &str = "sqlx_s_";
/// What Postgres says of a statement whose name another one has.
const NAME_TAKEN: &str = "42P05";

/// Whether a connection is a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// It is, and is set up when it is made.
    #[default]
    Own,
    /// A pooler lends a session for one transaction at a time. It must keep track of prepared statements, as `PgBouncer` does from
    /// 1.21 on where `max_prepared_statements` is not 0, and the role or the database must be set up.
    Lent,
}

/// Sessions are not as the statements need them.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WrongSessions {
    /// Settings are others than they must be.
    #[error("execute as its owner and connect anew, through the pooler as well: {statements}")]
    Settings {
        /// What makes them right.
        statements: String,
    },
    /// Statements that a client prepared are known in one session, and the next one is another.
    #[error(
        "nothing in between keeps track of prepared statements: PgBouncer does from 1.21 on where max_prepared_statements is \
         not 0; without a pooler postgres_pooler is none"
    )]
    Untracked,
}

/// What the statements rely on, whatever the server's own settings are.
fn settings(options: &Options) -> [(&'static str, String); 8] {
    let ms = |time: Duration| time.as_millis().max(1).to_string();
    [
        ("default_transaction_isolation", "read committed".to_owned()),
        // A commit that was answered says what was paid for.
        ("synchronous_commit", "on".to_owned()),
        // Each statement has its index. A plan that was made while a table was small is kept until the server has counted
        // again, and must not read all of a table that has grown since.
        ("enable_seqscan", "off".to_owned()),
        // They are short, and compiling one takes longer than running it.
        ("jit", "off".to_owned()),
        // So does planning one anew each time, which a server does once its tables are large. The plans are the same.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        ("statement_timeout", ms(options.statement_max)),
        ("lock_timeout", ms(options.lock_max)),
        ("idle_in_transaction_session_timeout", ms(IDLE_IN_TRANSACTION_MAX)),
    ]
}

/// Sets sessions up, if they are connections.
pub(crate) fn with_settings(connect: PgConnectOptions, options: &Options) -> PgConnectOptions {
    match options.sessions {
        Sessions::Own => connect.options(settings(options)),
        Sessions::Lent => connect,
    }
}

/// Whether a session is as it must be. One of many that are lent, but all of them have their settings from the same place.
pub(crate) async fn check(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<Result<(), WrongSessions>, sqlx::Error> {
    let settings = settings(options);
    let names: Vec<_> = settings.iter().map(|(name, _)| (*name).to_owned()).collect();
    // In the unit that each is set in, which for times is milliseconds.
    let found = sqlx::query_as("SELECT name, setting FROM pg_settings WHERE name = ANY($1)").bind(names);
    let found: HashMap<String, String> = match found.fetch_all(&mut *connection).await {
        Err(error) if is_taken(&error) => return Ok(Err(WrongSessions::Untracked)),
        found => found?.into_iter().collect(),
    };
    let wrong = settings.iter().filter(|(name, value)| found.get(*name) != Some(value));
    let statements: Vec<_> =
        wrong.map(|(name, value)| format!("ALTER ROLE CURRENT_USER SET {name} = '{value}'")).collect();
    if !statements.is_empty() {
        return Ok(Err(WrongSessions::Settings { statements: statements.join("; ") }));
    }
    Ok(Ok(()))
}

/// Whether whatever lends sessions keeps track of the statements that are prepared. If not, a statement that another one prepared
/// could be executed in the place of the own one.
pub(crate) async fn check_tracking(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<Result<(), WrongSessions>, sqlx::Error> {
    if options.sessions == Sessions::Own {
        return Ok(Ok(()));
    }
    // This one is among them.
    let prepared = sqlx::query_scalar("SELECT name FROM pg_prepared_statements").fetch_all(connection).await;
    let prepared: Vec<String> = match prepared {
        Err(error) if is_taken(&error) => return Ok(Err(WrongSessions::Untracked)),
        prepared => prepared?,
    };
    let is_tracked = !prepared.iter().any(|name| name.starts_with(PREPARED));
    Ok(if is_tracked { Ok(()) } else { Err(WrongSessions::Untracked) })
}

/// Whether somebody else prepared a statement of this name in the same session.
fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == NAME_TAKEN)
}
