//! Opens a database: finds the server, checks sessions and applies migrations.

use std::sync::Arc;
use std::time::Duration;

use podium_ports::BoxError;
use podium_store_format::schema::{Migrations, UnusableSchema};
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use crate::call::{NoAnswer, Standby};
use crate::connections::{Connections, PoolMaker, explained};
use crate::migrate::{apply, read_schema};
use crate::remove::Walk;
use crate::servers::{NoPrimary, Servers, follows};
use crate::sessions::{self, WrongSessions};
use crate::{Migrate, Options, Store};

/// How long the migrations may take, including the wait for another process that applies them.
const MIGRATE_MAX: Duration = Duration::from_mins(5);
/// How long a check of a new connection may take.
pub(crate) const CHECK_MAX: Duration = Duration::from_secs(10);
/// Why a database cannot be opened. No error contains a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is invalid.
    #[error("the address of the database must look like `postgres://user:password@host:5432/name`")]
    Address(#[source] sqlx::Error),
    /// The server is unreachable, or refuses the connection.
    #[error("database `{database}` cannot be reached")]
    Connect {
        /// The host, port and name.
        database: String,
        /// The reason.
        #[source]
        source: BoxError,
    },
    /// None of its servers takes writes.
    #[error("database `{database}` has no primary server")]
    NoPrimary {
        /// The hosts, ports and name.
        database: String,
        /// The answers of the servers.
        #[source]
        source: NoPrimary,
    },
    /// A pooler refuses the settings of a session, and the options do not say that there is a pooler.
    #[error(
        "a pooler in front of database `{database}` refuses session settings; set postgres_pooler to transaction"
    )]
    Pooled {
        /// The host, port and name.
        database: String,
        /// The pooler's error.
        #[source]
        source: BoxError,
    },
    /// Sessions do not have the settings that the statements need.
    #[error("sessions of database `{database}` have the wrong settings")]
    Sessions {
        /// The host, port and name.
        database: String,
        /// The settings, with the cure.
        #[source]
        source: WrongSessions,
    },
    /// The migrations of the database cannot be read.
    #[error(
        "the migrations of database `{database}` cannot be read; its role needs SELECT on _sqlx_migrations and schema_floor"
    )]
    Schema {
        /// The host, port and name.
        database: String,
        /// The server's error.
        #[source]
        source: sqlx::Error,
    },
    /// This version cannot work with the tables.
    #[error("this version cannot use database `{database}`")]
    Unusable {
        /// The host, port and name.
        database: String,
        /// The reason.
        #[source]
        source: UnusableSchema,
    },
    /// Migrations are pending, and this process must not apply them.
    #[error(
        "database `{database}` lacks {pending}, and this process does not apply them; run `podium migrate --postgres URL` with a role that may create tables"
    )]
    Behind {
        /// The host, port and name.
        database: String,
        /// The pending migrations.
        pending: Migrations,
    },
    /// A migration failed and was rolled back.
    #[error(
        "database `{database}` could not be migrated; `podium migrate --postgres URL` does it with a role that may create tables"
    )]
    Migrate {
        /// The host, port and name.
        database: String,
        /// The error of the migration.
        #[source]
        source: MigrateError,
    },
    /// The migrations took too long.
    #[error("the migrations of database `{database}` took too long")]
    MigrateTime {
        /// The host, port and name.
        database: String,
        /// How long the process waited.
        #[source]
        source: NoAnswer,
    },
}

impl Store {
    /// Connects, and applies pending migrations if [`Options::migrate`] allows it. The address may have several hosts, separated by
    /// commas; the one that takes writes is used. Missing parts come from the usual environment variables (`PGPASSWORD`, `PGSSLMODE`
    /// and so on).
    pub async fn open(address: &str, options: Options) -> Result<Self, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let database = servers.name();
        let (mut connection, pending) = look_at(servers.get(primary), &options, &database).await?;
        if !pending.0.is_empty() {
            if options.migrate == Migrate::Never {
                return Err(OpenError::Behind { database, pending });
            }
            migrate(&mut connection, &database).await?;
        }
        // It does not matter whether the server receives the farewell.
        connection.close().await.ok();
        let connections = Connections::new(servers, primary, PoolMaker::new(options));
        let mut connection = connections.take().await.map_err(|source| refused(&database, source))?;
        if let Some(session) = connection.get() {
            right(&database, sessions::check(session, &options)).await?;
        }
        connections.keep(connection);
        Ok(Self { connections: Arc::new(connections), options, removal: Walk::default() })
    }

    /// The pending migrations of the database. Changes nothing.
    pub async fn pending_migrations(address: &str, options: Options) -> Result<Migrations, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let (connection, pending) = look_at(servers.get(primary), &options, &servers.name()).await?;
        connection.close().await.ok();
        Ok(pending)
    }

    /// Applies the pending migrations, whatever [`Options::migrate`] is, and returns them. Any number of processes may do so
    /// concurrently.
    pub async fn migrate(address: &str, options: Options) -> Result<Migrations, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let (mut connection, pending) = look_at(servers.get(primary), &options, &servers.name()).await?;
        if !pending.0.is_empty() {
            migrate(&mut connection, &servers.name()).await?;
        }
        connection.close().await.ok();
        Ok(pending)
    }

    /// Waits for running calls and closes the connections. Without it nothing is lost either.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// Waits for a check of sessions and converts its error.
async fn right(
    database: &str,
    check: impl Future<Output = Result<Result<(), WrongSessions>, sqlx::Error>>,
) -> Result<(), OpenError> {
    let checked = timeout(CHECK_MAX, check).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let checked = checked.map_err(|source| refused(database, source.into()))?;
    checked.map_err(|source| OpenError::Sessions { database: database.to_owned(), source })
}

/// Whether a pooler refuses the settings of a session.
fn refused(database: &str, source: BoxError) -> OpenError {
    let database = database.to_owned();
    if source.to_string().contains("unsupported startup parameter") {
        return OpenError::Pooled { database, source };
    }
    OpenError::Connect { database, source }
}

/// The servers of an address, and the one that takes writes.
pub(crate) async fn find_primary(address: &str, options: &Options) -> Result<(Servers, usize), OpenError> {
    let servers = Servers::read(address, options.acquire_max).map_err(OpenError::Address)?;
    if !servers.are_several() {
        return Ok((servers, 0));
    }
    match servers.primary().await {
        Ok(primary) => Ok((servers, primary)),
        Err(source) => Err(OpenError::NoPrimary { database: servers.name(), source }),
    }
}

/// Connects with a separate connection, without limits for statements, and reads which migrations are pending.
pub(crate) async fn look_at(
    connect: &PgConnectOptions,
    options: &Options,
    database: &str,
) -> Result<(PgConnection, Migrations), OpenError> {
    let connection = timeout(options.acquire_max, PgConnection::connect_with(connect)).await;
    let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let mut connection = connection.map_err(|source| refused(database, explained(source)))?;
    let standby = timeout(CHECK_MAX, follows(&mut connection)).await;
    match standby.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
        Ok(false) => {}
        Ok(true) => return Err(refused(database, Standby.into())),
        Err(source) => return Err(refused(database, source.into())),
    }
    right(database, sessions::check_tracking(&mut connection, options)).await?;
    let schema = timeout(CHECK_MAX, read_schema(&mut connection)).await;
    let schema = schema.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let schema = schema.map_err(|source| OpenError::Schema { database: database.to_owned(), source })?;
    let pending = schema.pending(&crate::migrate::known());
    let pending = pending.map_err(|source| OpenError::Unusable { database: database.to_owned(), source })?;
    Ok((connection, pending))
}

async fn migrate(connection: &mut PgConnection, database: &str) -> Result<(), OpenError> {
    let migrated = timeout(MIGRATE_MAX, apply(connection)).await;
    let database = || database.to_owned();
    migrated
        .map_err(|_| OpenError::MigrateTime { database: database(), source: NoAnswer(MIGRATE_MAX) })?
        .map_err(|source| OpenError::Migrate { database: database(), source })
}

#[cfg(test)]
mod tests {
    use podium_harness::{Fsync, Postgres};

    use super::*;

    #[tokio::test]
    async fn sessions_have_the_settings_that_statements_need() {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, Options::default()).await.unwrap();
        let weaken = "ALTER DATABASE podium_1 SET synchronous_commit = off;
                      ALTER DATABASE podium_1 SET default_transaction_isolation = 'serializable'";
        sqlx::raw_sql(weaken).execute(&store.connections.pool()).await.unwrap();
        store.close().await;

        let store = Store::open(&address, Options::default()).await.unwrap();
        for (question, expected) in [
            ("SHOW synchronous_commit", "on"),
            ("SHOW transaction_isolation", "read committed"),
            ("SHOW statement_timeout", "10s"),
            ("SHOW lock_timeout", "5s"),
            ("SHOW enable_seqscan", "off"),
            ("SHOW jit", "off"),
        ] {
            let setting: String =
                sqlx::query_scalar(question).fetch_one(&store.connections.pool()).await.unwrap();
            assert_eq!(setting, expected, "{question}");
        }
    }
}
