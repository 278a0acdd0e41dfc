//! Reads runs, events and lists of runs.

use std::collections::HashMap;

use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::run::{Run, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::store::{Lack, RunSummary, RunSums, StoreError};
use podium_store_format::{Damage, stored, time, unsigned};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::Store;
use crate::row::{event, hex, id_bytes, run_id, unavailable};

// A run without events is damaged, not absent, hence the outer join.
pub(crate) const LOAD_RUNS: &str = "-- load_runs
SELECT runs.id, runs.version, sequence, at_ms, format, data
FROM runs LEFT JOIN run_events ON run_id = runs.id
WHERE runs.id IN (SELECT unhex(value) FROM json_each(?1))
ORDER BY runs.id, sequence";

pub(crate) const READ_EVENTS: &str = "-- read_events
SELECT sequence, at_ms, format, data FROM run_events WHERE run_id = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";

pub(crate) const LIST_RUNS: &str = "-- list_runs
SELECT id, tenant, model, state, question, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks,
       failed_steps, degraded, refused, accepted_ms, ended_ms
FROM runs WHERE tenant = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

pub(crate) const FIND_UNSETTLED: &str = "-- find_unsettled
SELECT id FROM runs WHERE unsettled AND id > ?1 AND ended_ms <= ?2 ORDER BY id LIMIT ?3";

/// Larger than every id, which has one byte less.
const AFTER_ALL_IDS: [u8; 17] = [0xff; 17];

pub(crate) async fn load(store: &Store, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<_> = runs.iter().map(|run| hex(run.as_uuid())).collect();
    let ids = serde_json::to_string(&ids).map_err(|e| StoreError::Unavailable(Box::new(e)))?;
    let rows = sqlx::query(LOAD_RUNS).bind(ids).fetch_all(&store.readers).await.map_err(unavailable)?;
    let mut loaded = HashMap::with_capacity(runs.len());
    let id = |row: &SqliteRow| row.try_get::<Vec<u8>, _>("id").ok();
    for rows in rows.chunk_by(|a, b| id(a) == id(b)) {
        let run = replay(rows)?;
        loaded.insert(run.id(), run);
    }
    // A run may occur twice in the request.
    Ok(runs.iter().map(|run| loaded.get(run).cloned()).collect())
}

pub(crate) async fn unsettled(
    store: &Store,
    ended_by: Timestamp,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let after = after.as_ref().map_or(&[][..], id_bytes);
    let find = sqlx::query(FIND_UNSETTLED).bind(after).bind(stored(ended_by.unix_ms())).bind(limit);
    let rows = find.fetch_all(&store.readers).await.map_err(unavailable)?;
    rows.iter().map(|row| run_id(row, "id")).collect()
}

/// Folds a run from the rows of all its events.
fn replay(rows: &[SqliteRow]) -> Result<Run, StoreError> {
    let Some(first) = rows.first() else { return Err(unavailable(sqlx::Error::RowNotFound)) };
    let id = run_id(first, "id")?;
    let version: i64 = first.try_get("version").map_err(unavailable)?;
    let is_event =
        |row: &&SqliteRow| row.try_get::<Option<i64>, _>("sequence").is_ok_and(|sequence| sequence.is_some());
    let events = rows.iter().filter(is_event).map(|row| event(id, row)).collect::<Result<Vec<_>, _>>()?;
    let run = Run::replay(id, &events).map_err(|illegal| StoreError::illegal(id, illegal))?;
    if stored(run.version()) != version {
        return Err(Damage::Version { version, last: run.version() }.of(id));
    }
    Ok(run)
}

pub(crate) async fn events(
    store: &Store,
    run: RunId,
    after: u64,
    limit: u32,
) -> Result<Vec<SequencedEvent>, StoreError> {
    let rows = sqlx::query(READ_EVENTS)
        .bind(id_bytes(&run))
        .bind(stored(after))
        .bind(limit)
        .fetch_all(&store.readers)
        .await
        .map_err(unavailable)?;
    rows.iter().map(|row| event(run, row)).collect()
}

pub(crate) async fn list(
    store: &Store,
    tenant: &TenantId,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunSummary>, StoreError> {
    let before = before.as_ref().map_or(&AFTER_ALL_IDS[..], id_bytes);
    let rows = sqlx::query(LIST_RUNS)
        .bind(tenant.as_str())
        .bind(before)
        .bind(limit)
        .fetch_all(&store.readers)
        .await
        .map_err(unavailable)?;
    rows.iter().map(summary).collect()
}

fn summary(row: &SqliteRow) -> Result<RunSummary, StoreError> {
    let id = run_id(row, "id")?;
    let text = |column: &str| row.try_get::<String, _>(column).map_err(unavailable);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let cost = |column: &str| number(column).map(|nano| Cost::from_nano_usd(unsigned(nano)));
    let count = |column: &str| number(column).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let tenant = TenantId::new(text("tenant")?)
        .map_err(|invalid| Damage::Column { column: "runs.tenant", value: invalid.name }.of(id))?;
    let ended_ms: Option<i64> = row.try_get("ended_ms").map_err(unavailable)?;
    let failed_steps: Option<i64> = row.try_get("failed_steps").map_err(unavailable)?;
    let is = |column: &str| row.try_get::<Option<bool>, _>(column).map_err(unavailable);
    let (degraded, refused) = (is("degraded")?, is("refused")?);
    let lack = |failed_steps| {
        let failed_steps = u32::try_from(failed_steps).unwrap_or(u32::MAX);
        Some(Lack { failed_steps, degraded: degraded?, refused: refused? })
    };
    Ok(RunSummary {
        id,
        tenant,
        model: text("model")?,
        state: text("state")?,
        question: text("question")?,
        sums: RunSums {
            steps: count("steps")?,
            cost: cost("cost_nano_usd")?,
            wasted: cost("wasted_nano_usd")?,
            saved: cost("saved_nano_usd")?,
            fallbacks: count("fallbacks")?,
            lack: failed_steps.and_then(lack),
        },
        accepted_at: time(number("accepted_ms")?),
        ended_at: ended_ms.map(time),
    })
}

pub(crate) async fn ping(store: &Store) -> Result<(), StoreError> {
    sqlx::query("-- ping\nSELECT 1 FROM runs LIMIT 1")
        .fetch_optional(&store.readers)
        .await
        .map_err(unavailable)?;
    Ok(())
}
