//! Opens a database: its connections, its migrations.

use std::sync::Arc;
use std::time::Duration;

use podium_ports::BoxError;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, SqlSafeStr};
use tokio::time::timeout;

use crate::call::{NoAnswer, Standby};
use crate::connections::{Connections, PoolMaker};
use crate::servers::{NoPrimary, Servers, follows};
use crate::sessions::{self, WrongSessions};
use crate::{Options, Store};

/// How long the migrations may take, waiting for another process's included.
const MIGRATE_MAX: Duration = Duration::from_mins(5);
/// How long a check of a new connection may take.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Until the transaction ends, without the limits that the role may have. The number is of no meaning.
const MIGRATION_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7382946150273645)";

/// The migrations, in order: each file of `migrations/postgres`.
const MIGRATIONS: &[(i64, &str, &str)] =
    &[(1, "create runs", include_str!("../../../migrations/postgres/0001_create_runs.sql"))];

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
    /// The tables cannot be brought up to date, or are a newer version's.
    #[error("database `{database}` cannot be brought up to date")]
    Migrate {
        /// Host, port and name.
        database: String,
        /// Why.
        #[source]
        source: MigrateError,
    },
    /// Bringing the tables up to date took too long.
    #[error("database `{database}` was not brought up to date in time")]
    MigrateTime {
        /// Host, port and name.
        database: String,
        /// How long it was waited for.
        #[source]
        source: NoAnswer,
    },
}

impl Store {
    /// Connects and brings the tables up to date. The address may have several hosts, with commas between them: the one is used
    /// that takes writes. What it does not say is taken from the usual variables of the environment (`PGPASSWORD`, `PGSSLMODE`
    /// and so on).
    pub async fn open(address: &str, options: Options) -> Result<Self, OpenError> {
        let servers = Servers::read(address, options.acquire_max).map_err(OpenError::Address)?;
        let database = servers.name();
        let primary = if servers.are_several() {
            let primary = servers.primary().await;
            primary.map_err(|source| OpenError::NoPrimary { database: database.clone(), source })?
        } else {
            0
        };
        migrate(servers.get(primary), &options, &database).await?;
        let connections = Connections::new(servers, primary, PoolMaker::new(options));
        let mut connection = connections.take().await.map_err(|source| refused(&database, source))?;
        if let Some(session) = connection.get() {
            right(&database, sessions::check(session, &options)).await?;
        }
        connections.keep(connection);
        Ok(Self { connections: Arc::new(connections), options })
    }

    /// Waits for what is under way and closes the connections. Without it nothing is lost either.
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

/// On a connection of its own, which has no limits for statements. It takes a lock for one transaction, which a pooler cannot lose:
/// so that of many processes that start at once one makes the tables.
async fn migrate(connect: &PgConnectOptions, options: &Options, database: &str) -> Result<(), OpenError> {
    let connection = timeout(options.acquire_max, PgConnection::connect_with(connect)).await;
    let connection = connection.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    let mut connection = connection.map_err(|source| refused(database, source.into()))?;
    let standby = timeout(CHECK_MAX, follows(&mut connection)).await;
    match standby.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
        Ok(false) => {}
        Ok(true) => return Err(refused(database, Standby.into())),
        Err(source) => return Err(refused(database, source.into())),
    }
    right(database, sessions::check_tracking(&mut connection, options)).await?;
    let migrated = timeout(MIGRATE_MAX, run_migrations(&mut connection)).await;
    let database = || database.to_owned();
    migrated
        .map_err(|_| OpenError::MigrateTime { database: database(), source: NoAnswer(MIGRATE_MAX) })?
        .map_err(|source| OpenError::Migrate { database: database(), source })?;
    // The tables are as they should be, whether or not the server hears the farewell.
    connection.close().await.ok();
    Ok(())
}

async fn run_migrations(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let migrations = MIGRATIONS.iter().map(|&(version, description, sql)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    let mut transaction = connection.begin().await?;
    sqlx::raw_sql(MIGRATION_LOCK).execute(&mut *transaction).await?;
    migrator.set_locking(false).run(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use podium_harness::{Fsync, Postgres};

    use super::*;

    #[test]
    fn every_migration_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres");
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let embedded = MIGRATIONS
            .iter()
            .map(|(version, words, _)| format!("{version:04}_{}.sql", words.replace(' ', "_")));
        assert_eq!(files, embedded.collect::<Vec<_>>());
    }

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
