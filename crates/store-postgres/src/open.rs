//! Opens a database.

use std::sync::Arc;
use std::time::Duration;

use podium_ports::BoxError;
use podium_ports::schema::{Migrations, UnusableSchema};
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
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Why a database cannot be used. None of these tells a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error("the address of the database must look like `postgres://user:password@host:5432/name`")]
    Address(#[source] sqlx::Error),
    /// The server is not there, or does not let us in.
    #[error("database `{database}` does not answer")]
    Connect {
        /// Host, port and name.
        database: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// None of its servers is the one that takes writes.
    #[error("database `{database}` has no server to write to")]
    NoPrimary {
        /// Hosts, ports and name.
        database: String,
        /// Why.
        #[source]
        source: NoPrimary,
    },
    /// There is a pooler, and sessions are set up as if there were none.
    #[error(
        "before database `{database}` there is a pooler that takes no settings for sessions; postgres_pooler says that there is one"
    )]
    Pooled {
        /// Host, port and name.
        database: String,
        /// Its words.
        #[source]
        source: BoxError,
    },
    /// Sessions are not as the statements need them.
    #[error("the sessions of database `{database}` are not as they must be")]
    Sessions {
        /// Host, port and name.
        database: String,
        /// What is wrong.
        #[source]
        source: WrongSessions,
    },
    /// The database does not say which migrations it has.
    #[error(
        "database `{database}` does not say which migrations it has; its role needs SELECT on _sqlx_migrations and schema_floor"
    )]
    Schema {
        /// Host, port and name.
        database: String,
        /// Its words.
        #[source]
        source: sqlx::Error,
    },
    /// This version cannot work with the tables.
    #[error("this version cannot use database `{database}`")]
    Unusable {
        /// Host, port and name.
        database: String,
        /// Why.
        #[source]
        source: UnusableSchema,
    },
    /// Migrations are pending, and this process is not to apply them.
    #[error(
        "database `{database}` lacks {pending}, and this process does not apply them; run `podium migrate --postgres URL` with a role that may create tables"
    )]
    Behind {
        /// Host, port and name.
        database: String,
        /// Those that are missing.
        pending: Migrations,
    },
    /// A migration failed. Nothing of it remains.
    #[error(
        "database `{database}` could not be migrated; `podium migrate --postgres URL` does it with a role that may create tables"
    )]
    Migrate {
        /// Host, port and name.
        database: String,
        /// Why.
        #[source]
        source: MigrateError,
    },
    /// The migrations took too long.
    #[error("database `{database}` was not migrated in time")]
    MigrateTime {
        /// Host, port and name.
        database: String,
        /// How long the process waited.
        #[source]
        source: NoAnswer,
    },
}

impl Store {
    /// Connects, and applies pending migrations if [`Options::migrate`] allows it. The address may have several hosts, separated by
    /// commas: the one that takes writes is used. What it does not say is taken from the usual environment variables (`PGPASSWORD`,
    /// `PGSSLMODE` and so on).
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
        // Nothing depends on whether the server hears the farewell.
        connection.close().await.ok();
        let connections = Connections::new(servers, primary, PoolMaker::new(options));
        let mut connection = connections.take().await.map_err(|source| refused(&database, source))?;
        if let Some(session) = connection.get() {
            right(&database, sessions::check(session, &options)).await?;
        }
        connections.keep(connection);
        Ok(Self { connections: Arc::new(connections), options, removal: Walk::default() })
    }

    /// The migrations of this version that the database lacks. Changes nothing.
    pub async fn pending_migrations(address: &str, options: Options) -> Result<Migrations, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let (connection, pending) = look_at(servers.get(primary), &options, &servers.name()).await?;
        connection.close().await.ok();
        Ok(pending)
    }

    /// Applies the migrations that the database lacks, whatever [`Options::migrate`] says, and returns them. Any number of processes
    /// may do so at once.
    pub async fn migrate(address: &str, options: Options) -> Result<Migrations, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let (mut connection, pending) = look_at(servers.get(primary), &options, &servers.name()).await?;
        if !pending.0.is_empty() {
            migrate(&mut connection, &servers.name()).await?;
        }
        connection.close().await.ok();
        Ok(pending)
    }

    /// Waits for calls under way and closes the connections. Without it nothing is lost either.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// What a check of sessions found, in time.
async fn right(
    database: &str,
    check: impl Future<Output = Result<Result<(), WrongSessions>, sqlx::Error>>,
) -> Result<(), OpenError> {
    let checked = timeout(CHECK_MAX, check).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let checked = checked.map_err(|source| refused(database, source.into()))?;
    checked.map_err(|source| OpenError::Sessions { database: database.to_owned(), source })
}

/// A pooler that lends sessions takes no settings for them.
fn refused(database: &str, source: BoxError) -> OpenError {
    let database = database.to_owned();
    if source.to_string().contains("unsupported startup parameter") {
        return OpenError::Pooled { database, source };
    }
    OpenError::Connect { database, source }
}

/// The servers of an address, and which of them takes writes.
async fn find_primary(address: &str, options: &Options) -> Result<(Servers, usize), OpenError> {
    let servers = Servers::read(address, options.acquire_max).map_err(OpenError::Address)?;
    if !servers.are_several() {
        return Ok((servers, 0));
    }
    match servers.primary().await {
        Ok(primary) => Ok((servers, primary)),
        Err(source) => Err(OpenError::NoPrimary { database: servers.name(), source }),
    }
}

/// Connects with a connection of its own, which has no limits for statements, and reads which migrations are pending.
async fn look_at(
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
    async fn what_the_statements_rely_on_is_set_whatever_the_database_says() {
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
