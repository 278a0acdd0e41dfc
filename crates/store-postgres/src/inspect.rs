//! Inspects a database for a diagnosis, without opening a store and without changing anything.

use std::time::Duration;

use podium_store_format::schema::Migrations;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::time::{Instant, timeout};

use crate::clock::ClockReading;
use crate::open::{CHECK_MAX, OpenError, find_primary, look_at};
use crate::{Options, Store};

/// The numbers of a server; not prepared, so that a pooler in between does not matter.
const READ_FACTS: &str = "SELECT current_setting('server_version_num')::int4, current_setting('server_version'),
    current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
        - coalesce(current_setting('reserved_connections', true)::int8, 0),
    (SELECT coalesce(sum(numbackends), 0)::int8 FROM pg_stat_database),
    (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'podium' AND datname = current_database()),
    current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
    pg_database_size(current_database())::int8";
const READ_SCHEMA: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
const READ_TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
/// The fastest answer of these counts.
const READINGS: usize = 5;

/// The state of a database and of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Host, port and name, without user and password.
    pub database: String,
    /// The server's version, such as `15.8 (Debian 15.8-0+deb12u1)`.
    pub version: String,
    /// The major version.
    pub major: u32,
    /// The newest applied migration; 0 if there is none.
    pub schema: i64,
    /// Migrations of this version that the database lacks.
    pub pending: Migrations,
    /// Connections that a role without special rights may have, of all clients together.
    pub connections_max: i64,
    /// Connections in use, of all clients together.
    pub connections_used: i64,
    /// Connections in use by Podium's processes.
    pub connections_ours: i64,
    /// Whether a confirmed write survives a crash of the server's machine.
    pub writes_are_safe: bool,
    /// The size of the database.
    pub bytes: i64,
    /// The fastest of several readings of the server's clock.
    pub clock: ClockReading,
}

impl DatabaseFacts {
    /// The time of one round trip.
    pub fn latency(&self) -> Duration {
        self.clock.answered_at.saturating_duration_since(self.clock.asked_at)
    }
}

impl Store {
    /// Inspects a database. Only reads; needs no right but `SELECT`.
    pub async fn inspect(address: &str, options: Options) -> Result<DatabaseFacts, OpenError> {
        let (servers, primary) = find_primary(address, &options).await?;
        let database = servers.name();
        let (mut connection, pending) = look_at(servers.get(primary), &options, &database).await?;
        let read = timeout(CHECK_MAX, read(&mut connection, database.clone(), pending)).await;
        let read = read.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        // It does not matter whether the server receives the farewell.
        connection.close().await.ok();
        read.map_err(|source| OpenError::Connect { database, source: source.into() })
    }
}

async fn read(
    connection: &mut PgConnection,
    database: String,
    pending: Migrations,
) -> Result<DatabaseFacts, sqlx::Error> {
    let facts = sqlx::raw_sql(READ_FACTS).fetch_one(&mut *connection).await?;
    // Without the first migration there is no table of migrations.
    let schema = match pending.0.first() {
        Some(1) => 0,
        _ => sqlx::raw_sql(READ_SCHEMA).fetch_one(&mut *connection).await?.try_get(0)?,
    };
    let mut clock = read_time(connection).await?;
    for _ in 1..READINGS {
        let reading = read_time(connection).await?;
        if reading.answered_at - reading.asked_at < clock.answered_at - clock.asked_at {
            clock = reading;
        }
    }
    let number: i32 = facts.try_get(0)?;
    Ok(DatabaseFacts {
        database,
        version: facts.try_get(1)?,
        major: u32::try_from(number / 10_000).unwrap_or_default(),
        schema,
        pending,
        connections_max: facts.try_get(2)?,
        connections_used: facts.try_get(3)?,
        connections_ours: facts.try_get(4)?,
        writes_are_safe: facts.try_get(5)?,
        bytes: facts.try_get(6)?,
        clock,
    })
}

async fn read_time(connection: &mut PgConnection) -> Result<ClockReading, sqlx::Error> {
    let asked_at = Instant::now();
    let now_us: i64 = sqlx::raw_sql(READ_TIME).fetch_one(connection).await?.try_get(0)?;
    let shown = Duration::from_micros(u64::try_from(now_us).unwrap_or_default());
    Ok(ClockReading { asked_at, answered_at: Instant::now(), shown })
}

#[cfg(test)]
mod tests {
    use podium_harness::{Fsync, Postgres};

    use super::*;

    #[tokio::test]
    async fn a_database_is_inspected_before_and_after_its_migrations() {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let empty = Store::inspect(&address, Options::default()).await.unwrap();
        assert_eq!((empty.schema, empty.pending.0.first()), (0, Some(&1)));
        assert!(!empty.writes_are_safe, "the server was started without fsync");
        let store = Store::open(&address, Options::default()).await.unwrap();
        let ready = Store::inspect(&address, Options::default()).await.unwrap();
        assert!(ready.pending.0.is_empty() && ready.schema >= 7, "{ready:?}");
        assert!(ready.major >= 15 && ready.connections_max > ready.connections_used, "{ready:?}");
        assert!(ready.connections_ours >= 2, "the store's and the inspection's: {ready:?}");
        assert!(ready.latency() < Duration::from_secs(5) && ready.bytes > 0, "{ready:?}");
        store.close().await;
    }
}
