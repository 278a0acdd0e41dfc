//! Leases, and what a sweeper must act on.

use std::collections::HashSet;

use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::store::{Due, Hold, StoreError};
use podium_ports::stored::{stored, task};
use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::Store;
use crate::row::{claim_id, hex, run_id, unavailable};

pub(crate) const EXTEND_LEASES: &str = "-- extend_leases
UPDATE tasks SET lease_until_ms = max(lease_until_ms, ?2)
FROM (SELECT unhex(value ->> 'run') AS run_id, value ->> 'task' AS task, unhex(value ->> 'claim') AS claim
      FROM json_each(?1)) AS hold
WHERE tasks.run_id = hold.run_id AND tasks.task = hold.task AND tasks.claim = hold.claim AND state = 'running'
RETURNING run_id, task, claim";

pub(crate) const TELL_READY: &str = "-- tell_ready
UPDATE tasks SET dispatch_after_ms = ?2
WHERE (run_id, task) IN (SELECT run_id, task FROM tasks WHERE state = 'ready' AND dispatch_after_ms <= ?1
                         ORDER BY dispatch_after_ms LIMIT ?3)
RETURNING run_id, task";

pub(crate) const FIND_EXPIRED: &str = "-- find_expired
SELECT run_id, task, claim FROM tasks WHERE state = 'running' AND lease_until_ms <= ?1 ORDER BY lease_until_ms LIMIT ?2";

pub(crate) const FIND_OVERDUE: &str = "-- find_overdue
SELECT id FROM runs WHERE state = 'active' AND deadline_ms <= ?1 ORDER BY deadline_ms LIMIT ?2";

#[derive(Serialize)]
struct HoldRow {
    run: String,
    task: String,
    claim: String,
}

pub(crate) async fn extend_leases(
    store: &Store,
    holds: &[Hold],
    until: Timestamp,
) -> Result<Vec<bool>, StoreError> {
    if holds.is_empty() {
        return Ok(Vec::new());
    }
    let rows = holds.iter().map(|hold| HoldRow {
        run: hex(hold.run.as_uuid()),
        task: hold.task.to_string(),
        claim: hex(hold.claim.as_uuid()),
    });
    let rows =
        serde_json::to_string(&rows.collect::<Vec<_>>()).map_err(|e| StoreError::Unavailable(Box::new(e)))?;
    let extended = sqlx::query(EXTEND_LEASES)
        .bind(rows)
        .bind(stored(until.unix_ms()))
        .fetch_all(&store.writer)
        .await
        .map_err(unavailable)?;
    let extended = extended.iter().map(hold).collect::<Result<HashSet<_>, _>>()?;
    Ok(holds.iter().map(|hold| extended.contains(hold)).collect())
}

pub(crate) async fn due(
    store: &Store,
    now: Timestamp,
    again_at: Timestamp,
    limit: u32,
) -> Result<Due, StoreError> {
    let now = stored(now.unix_ms());
    let ready = sqlx::query(TELL_READY).bind(now).bind(stored(again_at.unix_ms())).bind(limit);
    let ready = ready.fetch_all(&store.writer).await.map_err(unavailable)?;
    let expired = sqlx::query(FIND_EXPIRED).bind(now).bind(limit);
    let expired = expired.fetch_all(&store.readers).await.map_err(unavailable)?;
    let overdue = sqlx::query(FIND_OVERDUE).bind(now).bind(limit);
    let overdue = overdue.fetch_all(&store.readers).await.map_err(unavailable)?;
    Ok(Due {
        ready: ready.iter().map(run_and_task).collect::<Result<_, _>>()?,
        expired: expired.iter().map(hold).collect::<Result<_, _>>()?,
        overdue: overdue.iter().map(|row| run_id(row, "id")).collect::<Result<_, _>>()?,
    })
}

fn run_and_task(row: &SqliteRow) -> Result<(RunId, TaskRef), StoreError> {
    let run = run_id(row, "run_id")?;
    let text: &str = row.try_get("task").map_err(unavailable)?;
    Ok((run, task(run, text)?))
}

fn hold(row: &SqliteRow) -> Result<Hold, StoreError> {
    let (run, task) = run_and_task(row)?;
    Ok(Hold { run, task, claim: claim_id(row, "claim")? })
}
