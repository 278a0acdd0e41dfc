//! Removes runs that ended long ago. The file does not shrink, but their space is reused.

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::accounts::SUMS_KEPT;
use podium_ports::store::StoreError;
use podium_store_format::stored;
use rusqlite::{Connection, params};

use crate::Store;
use crate::row::{execute, id_bytes, value};

// Ids sort by the time of acceptance, and no run ends before it is accepted. So the scan from the oldest id stops where no run can
// have ended early enough.
pub(crate) const FIND_ENDED: &str = "-- find_ended
SELECT json_group_array(hex(id)) FROM (
    SELECT id FROM runs WHERE id < ?1 AND state <> 'active' AND ended_ms <= ?2 ORDER BY id LIMIT ?3
)";

pub(crate) const REMOVE_EVENTS: &str = "-- remove_events
DELETE FROM run_events WHERE run_id IN (SELECT unhex(value) FROM json_each(?1))";

pub(crate) const REMOVE_TASKS: &str = "-- remove_tasks
DELETE FROM tasks WHERE run_id IN (SELECT unhex(value) FROM json_each(?1))";

pub(crate) const REMOVE_RATINGS: &str = "-- remove_ratings
DELETE FROM ratings WHERE run_id IN (SELECT unhex(value) FROM json_each(?1))";

pub(crate) const REMOVE_RUNS: &str = "-- remove_runs
DELETE FROM runs WHERE id IN (SELECT unhex(value) FROM json_each(?1))";

// The all-time sum begins at 0 and stays.
pub(crate) const REMOVE_SUMS: &str = "-- remove_sums
DELETE FROM budget_sums WHERE from_ms > 0 AND from_ms < ?1";

pub(crate) const FIND_OLD_SUM: &str = "-- find_old_sum
SELECT from_ms FROM budget_sums WHERE from_ms > 0 AND from_ms < ?1 LIMIT 1";

const NONE: &str = "[]";

pub(crate) async fn remove_ended(store: &Store, ended_by: Timestamp, limit: u32) -> Result<u32, StoreError> {
    remove_sums(store, ended_by.before(SUMS_KEPT)).await?;
    // Usually there is nothing to remove, which takes no lock.
    if store.read(move |connection| find(connection, ended_by, limit)).await? == NONE {
        return Ok(0);
    }
    let remove = move |connection: &Connection| {
        let runs = find(connection, ended_by, limit)?;
        let mut removed = 0;
        for remove in [REMOVE_EVENTS, REMOVE_TASKS, REMOVE_RATINGS, REMOVE_RUNS] {
            removed = execute(connection, remove, [&runs])?;
        }
        Ok(u32::try_from(removed).unwrap_or(u32::MAX))
    };
    store.write(remove).await
}

/// A JSON list of runs that ended early enough.
fn find(connection: &Connection, ended_by: Timestamp, limit: u32) -> Result<String, StoreError> {
    let before = RunId::least_at(Timestamp::from_unix_ms(ended_by.unix_ms().saturating_add(1)));
    let found = value(connection, FIND_ENDED, params![id_bytes(&before), stored(ended_by.unix_ms()), limit])?;
    Ok(found.unwrap_or_else(|| NONE.to_owned()))
}

/// Removes the sums of periods that began before `before`. Usually there are none, and no lock is taken.
async fn remove_sums(store: &Store, before: Timestamp) -> Result<(), StoreError> {
    let before = stored(before.unix_ms());
    let found: Option<i64> = store.read(move |connection| value(connection, FIND_OLD_SUM, [before])).await?;
    if found.is_some() {
        store.write(move |connection| execute(connection, REMOVE_SUMS, [before])).await?;
    }
    Ok(())
}
