//! The session settings that the statements need, and their checks.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::Options;

/// How long a session may leave a transaction open. None of ours does.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(10);
/// The prefix of the names of the client's prepared statements. A pooler that tracks them renames them.
const PREPARED: &str = "sqlx_s_";
/// The error code of a statement whose name is in use.
const NAME_TAKEN: &str = "42P05";

/// Whether a connection is a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sessions {
    /// It is; its settings are made when it connects.
    #[default]
    Own,
    /// A pooler lends a session for one transaction at a time. It must track prepared statements, as `PgBouncer` does from 1.21 on
    /// if `max_prepared_statements` is not 0. The role or the database must have the settings.
    Lent,
}

/// Why sessions do not suit the statements.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WrongSessions {
    /// Settings have wrong values.
    #[error("execute as this role, then connect again, through the pooler too: {statements}")]
    Settings {
        /// Statements that correct them.
        statements: String,
    },
    /// A prepared statement is known in one session only, and the pooler lends another one next.
    #[error(
        "the pooler does not track prepared statements: PgBouncer does from 1.21 on if max_prepared_statements is \
         not 0; without a pooler, set postgres_pooler to none"
    )]
    Untracked,
}

/// The settings that the statements need, independent of the server's settings.
fn settings(options: &Options) -> [(&'static str, String); 8] {
    let ms = |time: Duration| time.as_millis().max(1).to_string();
    [
        ("default_transaction_isolation", "read committed".to_owned()),
        // The events of an acknowledged commit record what was paid for, so they must be on disk.
        ("synchronous_commit", "on".to_owned()),
        // Each statement has its index. A plan made while a table was small is kept until the server has analysed the table again; it
        // must not scan a table that has grown since.
        ("enable_seqscan", "off".to_owned()),
        // Statements are short, and compiling one takes longer than running it.
        ("jit", "off".to_owned()),
        // Planning takes longer than running too; a server plans each time once its tables are large. The plans are the same.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        ("statement_timeout", ms(options.statement_max)),
        ("lock_timeout", ms(options.lock_max)),
        ("idle_in_transaction_session_timeout", ms(IDLE_IN_TRANSACTION_MAX)),
    ]
}

/// Adds the settings to a connection that is a session.
pub(crate) fn with_settings(connect: PgConnectOptions, options: &Options) -> PgConnectOptions {
    match options.sessions {
        Sessions::Own => connect.options(settings(options)),
        Sessions::Lent => connect,
    }
}

/// Checks the settings of a session. It may be one of many that a pooler lends, but all have their settings from the same place.
pub(crate) async fn check(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<Result<(), WrongSessions>, sqlx::Error> {
    let settings = settings(options);
    let names: Vec<_> = settings.iter().map(|(name, _)| (*name).to_owned()).collect();
    // In the unit of each setting, which is milliseconds for times.
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

/// Checks that a pooler tracks prepared statements. Otherwise a statement that another client prepared could be executed in place
/// of our own.
pub(crate) async fn check_tracking(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<Result<(), WrongSessions>, sqlx::Error> {
    if options.sessions == Sessions::Own {
        return Ok(Ok(()));
    }
    // This statement is among them.
    let prepared = sqlx::query_scalar("SELECT name FROM pg_prepared_statements").fetch_all(connection).await;
    let prepared: Vec<String> = match prepared {
        Err(error) if is_taken(&error) => return Ok(Err(WrongSessions::Untracked)),
        prepared => prepared?,
    };
    let is_tracked = !prepared.iter().any(|name| name.starts_with(PREPARED));
    Ok(if is_tracked { Ok(()) } else { Err(WrongSessions::Untracked) })
}

/// Whether another client has prepared a statement with this name in the same session.
fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == NAME_TAKEN)
}
