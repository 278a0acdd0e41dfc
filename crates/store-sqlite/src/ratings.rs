//! Tenants' ratings of their runs.

use podium_domain::ids::{RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::time::Timestamp;
use podium_ports::store::{RatedRun, StoreError};
use podium_store_format::{Damage, stored, time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::Store;
use crate::row::{id_bytes, run_id, unavailable};

pub(crate) const RATE_RUN: &str = "-- rate_run
INSERT INTO ratings (run_id, tenant, score, comment, rated_ms)
SELECT id, tenant, ?3, ?4, ?5 FROM runs WHERE id = ?1 AND tenant = ?2 AND ended_ms IS NOT NULL
ON CONFLICT (run_id) DO UPDATE SET score = excluded.score, comment = excluded.comment, rated_ms = excluded.rated_ms";

pub(crate) const LIST_RATED: &str = "-- list_rated
SELECT run_id, score, comment, rated_ms
FROM ratings WHERE tenant = ?1 AND run_id > ?2 AND run_id < ?3 ORDER BY run_id LIMIT ?4";

/// Smaller than every id, because ids have bytes.
const BEFORE_ALL_IDS: [u8; 0] = [];

pub(crate) async fn rate(
    store: &Store,
    tenant: &TenantId,
    run: RunId,
    rating: &Rating,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let rate = sqlx::query(RATE_RUN)
        .bind(id_bytes(&run))
        .bind(tenant.as_str())
        .bind(rating.score())
        .bind(rating.comment())
        .bind(stored(at.unix_ms()));
    Ok(rate.execute(&store.writer).await.map_err(unavailable)?.rows_affected() > 0)
}

pub(crate) async fn rated(
    store: &Store,
    tenant: &TenantId,
    after: Option<RunId>,
    before: RunId,
    limit: u32,
) -> Result<Vec<RatedRun>, StoreError> {
    let after = after.as_ref().map_or(&BEFORE_ALL_IDS[..], id_bytes);
    let list = sqlx::query(LIST_RATED).bind(tenant.as_str()).bind(after).bind(id_bytes(&before)).bind(limit);
    list.fetch_all(&store.readers).await.map_err(unavailable)?.iter().map(rated_run).collect()
}

fn rated_run(row: &SqliteRow) -> Result<RatedRun, StoreError> {
    let run = run_id(row, "run_id")?;
    let score: f64 = row.try_get("score").map_err(unavailable)?;
    let comment: Option<String> = row.try_get("comment").map_err(unavailable)?;
    let rated_ms: i64 = row.try_get("rated_ms").map_err(unavailable)?;
    let rating = Rating::new(score, comment)
        .map_err(|_| Damage::Column { column: "ratings.score", value: score.to_string() }.of(run))?;
    Ok(RatedRun { run, rating, rated_at: time(rated_ms) })
}
