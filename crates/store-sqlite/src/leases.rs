//! The leases of processes, and the claims that depend on them.

use std::time::Duration;

use podium_domain::ids::ProcessId;
use podium_domain::time::Timestamp;
use podium_ports::store::{ClaimRef, StoreError};
use podium_store_format::stored;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::Store;
use crate::row::{execute, id_bytes, value};

pub(crate) const READ_LEASE: &str = "-- read_lease
SELECT until_ms > ?2 FROM process_leases WHERE process = ?1";

// A file has one process at a time, except during a restart: the leases of all others are over.
pub(crate) const REMOVE_LEASES: &str = "-- remove_leases
DELETE FROM process_leases WHERE until_ms <= ?1";

pub(crate) const EXTEND_LEASE: &str = "-- extend_lease
INSERT INTO process_leases (process, until_ms) VALUES (?1, ?2)
ON CONFLICT (process) DO UPDATE SET until_ms = excluded.until_ms";

pub(crate) const FIND_CLAIM: &str = "-- find_claim
SELECT 1 FROM tasks WHERE run_id = ?1 AND task = ?2 AND claim = ?3 AND state = 'running'";

pub(crate) const DISOWN: &str = "-- disown
UPDATE tasks SET process = NULL, lease_until_ms = 0
WHERE run_id = ?1 AND task = ?2 AND claim = ?3 AND state = 'running'";

pub(crate) async fn extend(
    store: &Store,
    process: ProcessId,
    now: Timestamp,
    span: Duration,
) -> Result<bool, StoreError> {
    let (now_ms, until_ms) = (stored(now.unix_ms()), stored(now.after(span).unix_ms()));
    let extend = move |connection: &Connection| {
        let id = &process.as_uuid().as_bytes()[..];
        let known: Option<bool> = value(connection, READ_LEASE, params![id, now_ms])?;
        if known.is_none() {
            execute(connection, REMOVE_LEASES, [now_ms])?;
        }
        execute(connection, EXTEND_LEASE, params![id, until_ms])?;
        Ok(known == Some(true))
    };
    store.write(extend).await
}

pub(crate) async fn held(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let claims = claims.to_vec();
    let is_held = |connection: &Connection, claim: &ClaimRef| {
        let found: Option<i64> = value(connection, FIND_CLAIM, columns(claim))?;
        Ok(found.is_some())
    };
    store.read(move |connection| claims.iter().map(|claim| is_held(connection, claim)).collect()).await
}

/// There is one writer, so no other transaction locks a row.
pub(crate) async fn disown(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    let claims = claims.to_vec();
    let disown = move |connection: &Connection| {
        for claim in &claims {
            execute(connection, DISOWN, columns(claim))?;
        }
        Ok(vec![true; claims.len()])
    };
    store.write(disown).await
}

fn columns(claim: &ClaimRef) -> [Value; 3] {
    let id = claim.claim.as_uuid().as_bytes();
    [id_bytes(&claim.run).to_vec().into(), claim.task.to_string().into(), id.to_vec().into()]
}
