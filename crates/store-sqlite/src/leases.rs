//! The leases of processes, and the claims that depend on them.

use std::collections::HashSet;
use std::time::Duration;

use podium_domain::ids::ProcessId;
use podium_domain::time::Timestamp;
use podium_ports::store::{ClaimRef, StoreError};
use podium_store_format::stored;
use serde::Serialize;

use crate::Store;
use crate::row::{hex, id_bytes, unavailable};
use crate::sweep::claim_ref;

pub(crate) const READ_LEASE: &str = "-- read_lease
SELECT until_ms > ?2 FROM process_leases WHERE process = ?1";

// A file has one process at a time, except during a restart: the leases of all others are over.
pub(crate) const REMOVE_LEASES: &str = "-- remove_leases
DELETE FROM process_leases WHERE until_ms <= ?1";

pub(crate) const EXTEND_LEASE: &str = "-- extend_lease
INSERT INTO process_leases (process, until_ms) VALUES (?1, ?2)
ON CONFLICT (process) DO UPDATE SET until_ms = excluded.until_ms";

pub(crate) const FIND_HELD: &str = "-- find_held
SELECT tasks.run_id AS run_id, tasks.task AS task, tasks.claim AS claim
FROM (SELECT unhex(value ->> 'run') AS run_id, value ->> 'task' AS task, unhex(value ->> 'claim') AS claim
      FROM json_each(?1)) AS hold
CROSS JOIN tasks
WHERE tasks.run_id = hold.run_id AND tasks.task = hold.task AND tasks.claim = hold.claim AND state = 'running'";

pub(crate) const DISOWN: &str = "-- disown
UPDATE tasks SET process = NULL, lease_until_ms = 0
WHERE run_id = ?1 AND task = ?2 AND claim = ?3 AND state = 'running'";

#[derive(Serialize)]
struct ClaimRow {
    run: String,
    task: String,
    claim: String,
}

pub(crate) async fn extend(
    store: &Store,
    process: ProcessId,
    now: Timestamp,
    span: Duration,
) -> Result<bool, StoreError> {
    let id = &process.as_uuid().as_bytes()[..];
    let (now_ms, until_ms) = (stored(now.unix_ms()), stored(now.after(span).unix_ms()));
    let mut transaction = store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    let known: Option<bool> = sqlx::query_scalar(READ_LEASE)
        .bind(id)
        .bind(now_ms)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(unavailable)?;
    if known.is_none() {
        let remove = sqlx::query(REMOVE_LEASES).bind(now_ms);
        remove.execute(&mut *transaction).await.map_err(unavailable)?;
    }
    let extend = sqlx::query(EXTEND_LEASE).bind(id).bind(until_ms);
    extend.execute(&mut *transaction).await.map_err(unavailable)?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(known == Some(true))
}

pub(crate) async fn held(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let rows = claims.iter().map(|claim| ClaimRow {
        run: hex(claim.run.as_uuid()),
        task: claim.task.to_string(),
        claim: hex(claim.claim.as_uuid()),
    });
    let rows =
        serde_json::to_string(&rows.collect::<Vec<_>>()).map_err(|e| StoreError::Unavailable(Box::new(e)))?;
    let held = sqlx::query(FIND_HELD).bind(rows).fetch_all(&store.readers).await.map_err(unavailable)?;
    let held = held.iter().map(claim_ref).collect::<Result<HashSet<_>, _>>()?;
    Ok(claims.iter().map(|claim| held.contains(claim)).collect())
}

/// There is one writer, so no other transaction locks a row.
pub(crate) async fn disown(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    let mut transaction = store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    for claim in claims {
        let disown = sqlx::query(DISOWN).bind(id_bytes(&claim.run)).bind(claim.task.to_string());
        let disown = disown.bind(&claim.claim.as_uuid().as_bytes()[..]);
        disown.execute(&mut *transaction).await.map_err(unavailable)?;
    }
    transaction.commit().await.map_err(unavailable)?;
    Ok(vec![true; claims.len()])
}
