//! Tenants' ratings of their runs.

use podium_domain::ids::{RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::time::Timestamp;
use podium_ports::store::{RatedRun, StoreError};
use podium_store_format::{Damage, stored, time};
use rusqlite::{Connection, Row, params};

use crate::Store;
use crate::row::{column, execute, id_bytes, rows, run_id};

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
    let (tenant, rating) = (tenant.clone(), rating.clone());
    let rate = move |connection: &Connection| {
        let columns =
            params![id_bytes(&run), tenant.as_str(), rating.score(), rating.comment(), stored(at.unix_ms())];
        Ok(execute(connection, RATE_RUN, columns)? > 0)
    };
    store.write(rate).await
}

pub(crate) async fn rated(
    store: &Store,
    tenant: &TenantId,
    after: Option<RunId>,
    before: RunId,
    limit: u32,
) -> Result<Vec<RatedRun>, StoreError> {
    let tenant = tenant.clone();
    let list = move |connection: &Connection| {
        let after = after.as_ref().map_or(&BEFORE_ALL_IDS[..], id_bytes);
        rows(connection, LIST_RATED, params![tenant.as_str(), after, id_bytes(&before), limit], rated_run)
    };
    store.read(list).await
}

fn rated_run(row: &Row<'_>) -> Result<RatedRun, StoreError> {
    let run = run_id(row, "run_id")?;
    let score: f64 = column(row, "score")?;
    let rating = Rating::new(score, column(row, "comment")?)
        .map_err(|_| Damage::Column { column: "ratings.score", value: score.to_string() }.of(run))?;
    Ok(RatedRun { run, rating, rated_at: time(column(row, "rated_ms")?) })
}
