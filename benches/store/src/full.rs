//! A database full of finished runs: copies of one that the store itself wrote.

use anyhow::{Context, Result};
use podium_ports::store::RunLog;
use podium_store_postgres::Store;
use podium_testkit::{SeededIds, TestClock};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::course::Course;

const COPY_RUNS: &str = include_str!("../../../crates/store-postgres/tests/postgres/copy_runs.sql");
/// Runs copied in one transaction.
const CHUNK: u32 = 20_000;
/// The copies are spread over this time before the new runs: 30 days.
const SPAN_MS: u64 = 30 * 24 * 3_600_000;

/// Makes `finished` runs that ended within the last thirty days, and lets the server count them.
pub(crate) async fn fill(store: &Store, address: &str, finished: u32) -> Result<()> {
    let template = Course::new(&SeededIds::new(2)).whole()?;
    let id = template.after.id();
    store.append(&[template]).await?;
    let mut raw = PgConnection::connect(address).await?;
    raw.execute(sqlx::raw_sql(COPY_RUNS)).await.context("making the copier")?;
    let every_ms = SPAN_MS / u64::from(finished.max(1));
    let from_ms = TestClock::START.unix_ms() - SPAN_MS - 3_600_000;
    for first in (1..=finished).step_by(CHUNK as usize) {
        let last = finished.min(first + CHUNK - 1);
        let copy = format!("SELECT copy_run('{id}', {first}, {last}, {from_ms}, {every_ms})");
        raw.execute(sqlx::raw_sql(AssertSqlSafe(copy))).await.context("copying")?;
    }
    for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
        raw.execute(sql).await?;
    }
    Ok(())
}
