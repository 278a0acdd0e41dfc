//! Removes runs that ended long ago. The file does not shrink, but their space is reused.

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::accounts::SUMS_KEPT;
use podium_ports::store::StoreError;
use podium_store_format::stored;

use crate::Store;
use crate::row::{id_bytes, unavailable};
use crate::write::begin;

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
    let before = RunId::least_at(Timestamp::from_unix_ms(ended_by.unix_ms().saturating_add(1)));
    let find = || {
        let find = sqlx::query_scalar::<_, String>(FIND_ENDED).bind(id_bytes(&before));
        find.bind(stored(ended_by.unix_ms())).bind(limit)
    };
    remove_sums(store, ended_by.before(SUMS_KEPT)).await?;
    // Usually there is nothing to remove, which takes no lock.
    if find().fetch_one(&store.readers).await.map_err(unavailable)? == NONE {
        return Ok(0);
    }
    let mut transaction = begin(store).await?;
    let runs = find().fetch_one(&mut *transaction).await.map_err(unavailable)?;
    let mut removed = 0;
    for remove in [REMOVE_EVENTS, REMOVE_TASKS, REMOVE_RATINGS, REMOVE_RUNS] {
        let done = sqlx::query(remove).bind(&runs).execute(&mut *transaction).await.map_err(unavailable)?;
        removed = done.rows_affected();
    }
    transaction.commit().await.map_err(unavailable)?;
    Ok(u32::try_from(removed).unwrap_or(u32::MAX))
}

/// Removes the sums of periods that began before `before`. Usually there are none, and no lock is taken.
async fn remove_sums(store: &Store, before: Timestamp) -> Result<(), StoreError> {
    let before = stored(before.unix_ms());
    let found: Option<i64> = sqlx::query_scalar(FIND_OLD_SUM)
        .bind(before)
        .fetch_optional(&store.readers)
        .await
        .map_err(unavailable)?;
    if found.is_some() {
        sqlx::query(REMOVE_SUMS).bind(before).execute(&store.writer).await.map_err(unavailable)?;
    }
    Ok(())
}
