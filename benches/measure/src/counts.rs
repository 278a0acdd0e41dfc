//! Requests of a run to the servers: statements and commits of Postgres, messages of NATS, calls of Redis.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use podium_harness::Postgres;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::{get, rounded};

/// The servers whose counters are read.
#[derive(Clone, Debug)]
pub struct Servers {
    /// URL of the database; its server counts statements, see [`count_statements`].
    pub database: String,
    /// Where nats-server answers its monitoring requests.
    pub nats_monitor: SocketAddr,
    /// URL of Redis.
    pub redis: String,
}

/// Counters of the servers since they started, by name.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    counts: BTreeMap<String, f64>,
}

impl Counts {
    /// Reads the counters of all three servers.
    pub async fn read(servers: &Servers) -> Result<Self> {
        let mut counts = BTreeMap::new();
        postgres(&servers.database, &mut counts).await?;
        nats(servers.nats_monitor, &mut counts).await?;
        redis(&servers.redis, &mut counts).await?;
        Ok(Self { counts })
    }

    /// The difference of two readings.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |(name, count): (&String, &f64)| {
            (name.clone(), count - before.counts.get(name).copied().unwrap_or_default())
        };
        Self { counts: self.counts.iter().map(since).collect() }
    }

    /// Sum of the counters whose names begin with `prefix` and end with `suffix`.
    pub fn sum(&self, prefix: &str, suffix: &str) -> f64 {
        let named = self.counts.iter().filter(|(name, _)| name.starts_with(prefix) && name.ends_with(suffix));
        named.map(|(_, count)| count).sum()
    }

    /// Each counter that is not zero, divided by the number of runs.
    pub fn per_run(&self, runs: u32) -> Value {
        let used = self.counts.iter().filter(|(_, count)| **count > 0.0);
        used.map(|(name, count)| (name.clone(), json!(rounded(count / f64::from(runs))))).collect()
    }
}

/// Statements by the name in the comment that each of ours begins with; what the log of changes grew by; flushes to disk.
async fn postgres(database: &str, counts: &mut BTreeMap<String, f64>) -> Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    let statements: Vec<(String, i64, f64, i64)> = sqlx::query_as(
        "SELECT coalesce(substring(query FROM '^-- ([a-z_]+)'), 'other'), sum(calls)::bigint, sum(total_exec_time), \
         sum(rows)::bigint FROM pg_stat_statements GROUP BY 1",
    )
    .fetch_all(&mut connection)
    .await?;
    for (name, calls, ms, rows) in statements {
        counts.insert(format!("postgres.{name}.calls"), count(calls));
        counts.insert(format!("postgres.{name}.ms"), ms);
        counts.insert(format!("postgres.{name}.rows"), count(rows));
    }
    let (records, bytes, syncs): (i64, i64, i64) =
        sqlx::query_as("SELECT wal_records, wal_bytes::bigint, wal_sync FROM pg_stat_wal")
            .fetch_one(&mut connection)
            .await?;
    for (name, value) in [("records", records), ("bytes", bytes), ("syncs", syncs)] {
        counts.insert(format!("postgres.wal.{name}"), count(value));
    }
    Ok(connection.close().await?)
}

/// Makes the server of `database` count statements by their text. The server is restarted.
pub async fn count_statements(postgres: &mut Postgres, database: &str) -> Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    sqlx::raw_sql("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    postgres.restart().await?;
    let mut connection = PgConnection::connect(database).await?;
    let extension = sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&mut connection).await;
    extension.context("counting needs Postgres' own module pg_stat_statements")?;
    Ok(connection.close().await?)
}

async fn nats(monitor: SocketAddr, counts: &mut BTreeMap<String, f64>) -> Result<()> {
    let varz: Value = serde_json::from_slice(&get(monitor, "/varz").await?)?;
    for name in ["in_msgs", "out_msgs", "in_bytes", "out_bytes"] {
        let value = varz[name].as_f64().with_context(|| format!("varz has no {name}"))?;
        counts.insert(format!("nats.{name}"), value);
    }
    let streams: Value = serde_json::from_slice(&get(monitor, "/jsz").await?)?;
    counts
        .insert("nats.jetstream.api_calls".to_owned(), streams["api"]["total"].as_f64().unwrap_or_default());
    Ok(())
}

async fn redis(url: &str, counts: &mut BTreeMap<String, f64>) -> Result<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
    // `cmdstat_evalsha:calls=12,usec=340,…`
    for line in info.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").context("a line of commandstats cannot be parsed")?;
        let calls = rest.split(',').next().unwrap_or_default();
        counts.insert(format!("redis.{name}"), calls.parse()?);
    }
    Ok(())
}

/// Counters stay far below what a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counters stay far below 2 to the power of 52")]
fn count(value: i64) -> f64 {
    value as f64
}
