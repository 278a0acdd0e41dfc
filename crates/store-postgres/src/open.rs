//! Opens a database: its connections, its migrations.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{Connection, SqlSafeStr};
use tokio::time::timeout;

use crate::call::NoAnswer;
use crate::connections::{Connections, IDLE_MAX};
use crate::{Options, Store};

/// How long the migrations may take, waiting for another process's included.
const MIGRATE_MAX: Duration = Duration::from_mins(5);
/// How long a session may leave a transaction open. None of ours does.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(10);

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
        source: sqlx::Error,
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
    /// Connects and brings the tables up to date. What the address does not say is taken from the usual variables of the
    /// environment (`PGPASSWORD`, `PGSSLMODE` and so on).
    pub async fn open(address: &str, options: Options) -> Result<Self, OpenError> {
        let connect = PgConnectOptions::from_str(address).map_err(OpenError::Address)?;
        let connect = connect.application_name("podium");
        let database = named(&connect);
        migrate(&connect, &options, &database).await?;
        let pool = PgPoolOptions::new()
            .max_connections(options.connections_max.max(1))
            .acquire_timeout(options.acquire_max)
            .test_before_acquire(false)
            .before_acquire(|connection, used| {
                Box::pin(async move {
                    if used.idle_for > IDLE_MAX {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(with_settings(connect, &options))
            .await
            .map_err(|source| OpenError::Connect { database, source })?;
        Ok(Self { connections: Arc::new(Connections::new(pool)), options })
    }

    /// Waits for what is under way and closes the connections. Without it nothing is lost either.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// What the statements rely on, whatever the server's own settings are.
fn with_settings(connect: PgConnectOptions, options: &Options) -> PgConnectOptions {
    let ms = |time: Duration| time.as_millis().max(1).to_string();
    connect.options([
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
    ])
}

/// Host, port and name; neither user nor password.
fn named(connect: &PgConnectOptions) -> String {
    let (host, port) = (connect.get_host(), connect.get_port());
    format!("{host}:{port}/{}", connect.get_database().unwrap_or(connect.get_username()))
}

/// On a connection of its own, which has no limits for statements. It takes a lock, so that of many processes that start at
/// once one makes the tables.
async fn migrate(connect: &PgConnectOptions, options: &Options, database: &str) -> Result<(), OpenError> {
    let migrations = MIGRATIONS.iter().map(|&(version, description, sql)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let migrator = Migrator::with_migrations(migrations.collect());
    let failed = |source| OpenError::Connect { database: database.to_owned(), source };
    let connection = timeout(options.acquire_max, PgConnection::connect_with(connect)).await;
    let mut connection = connection.map_err(|_| failed(sqlx::Error::PoolTimedOut))?.map_err(failed)?;
    let migrated = timeout(MIGRATE_MAX, migrator.run(&mut connection)).await;
    let database = || database.to_owned();
    migrated
        .map_err(|_| OpenError::MigrateTime { database: database(), source: NoAnswer(MIGRATE_MAX) })?
        .map_err(|source| OpenError::Migrate { database: database(), source })?;
    // The tables are as they should be, whether or not the server hears the farewell.
    connection.close().await.ok();
    Ok(())
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
        sqlx::raw_sql(weaken).execute(store.connections.pool()).await.unwrap();
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
                sqlx::query_scalar(question).fetch_one(store.connections.pool()).await.unwrap();
            assert_eq!(setting, expected, "{question}");
        }
    }
}
