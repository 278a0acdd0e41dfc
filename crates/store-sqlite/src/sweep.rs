//! The work of the sweeper, and the backlogs.

use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{Again, AgainParts, ClaimRef, Due, ReadyTask, StoreError};
use podium_store_format::{stored, task};
use rusqlite::{Connection, Row, params};

use crate::Store;
use crate::row::{claim_id, column, execute, id_bytes, json_list, rows, run_id, text};

/// Most outstanding tasks of a tenant in a lane that are counted. A tenant with more is last in any case.
const COUNTED_MAX: i64 = 1_000;

pub(crate) const TELL_READY: &str = "-- tell_ready
UPDATE tasks SET told_until_ms = max(?2, ?5 + min(?5 - ready_ms, ?6))
WHERE (run_id, task) IN (SELECT run_id, task FROM tasks
                         WHERE state = 'ready' AND told_until_ms IS NOT NULL AND told_until_ms <= ?1
                             AND run_id NOT IN (SELECT unhex(value) FROM json_each(?4))
                         ORDER BY told_until_ms LIMIT ?3)
RETURNING run_id, task, lane";

// Skips along the index from one lane to the next, without reading all waiting tasks.
pub(crate) const FIND_BACKLOGS: &str = "-- find_backlogs
WITH RECURSIVE lanes (lane) AS (
    SELECT min(lane) FROM tasks WHERE state = 'ready' AND told_until_ms IS NULL
    UNION ALL
    SELECT (SELECT min(tasks.lane) FROM tasks
            WHERE state = 'ready' AND told_until_ms IS NULL AND tasks.lane > lanes.lane)
    FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL";

// Skips along the index from one tenant to the next.
pub(crate) const COUNT_OUTSTANDING: &str = "-- count_outstanding
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM tasks WHERE state = 'ready' AND told_until_ms IS NULL AND lane = ?1
    UNION ALL
    SELECT (SELECT min(tasks.tenant) FROM tasks
            WHERE state = 'ready' AND told_until_ms IS NULL AND lane = ?1 AND tasks.tenant > tenants.tenant)
    FROM tenants WHERE tenants.tenant IS NOT NULL
)
SELECT tenant, (SELECT count(*) FROM (SELECT 1 FROM tasks
                WHERE lane = ?1 AND tasks.tenant = tenants.tenant
                    AND (state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL))
                LIMIT ?2)) AS outstanding
FROM tenants WHERE tenant IS NOT NULL";

pub(crate) const READ_BACKLOG: &str = "-- read_backlog
SELECT run_id, task, ready_ms FROM tasks
WHERE state = 'ready' AND told_until_ms IS NULL AND lane = ?1 AND tenant = ?2 AND ready_ms <= ?3
ORDER BY ready_ms LIMIT ?4";

pub(crate) const TELL_TASK: &str = "-- tell_task
UPDATE tasks SET told_until_ms = ?3 WHERE run_id = ?1 AND task = ?2";

pub(crate) const PUT_BACK: &str = "-- put_back
UPDATE tasks SET told_until_ms = NULL WHERE run_id = ?1 AND task = ?2 AND state = 'ready'";

// Skips along the index from one process to the next. Claims of earlier versions have no process and have their own leases.
pub(crate) const FIND_EXPIRED: &str = "-- find_expired
WITH RECURSIVE holders (process) AS (
    SELECT min(process) FROM tasks WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(tasks.process) FROM tasks WHERE state = 'running' AND tasks.process > holders.process)
    FROM holders WHERE holders.process IS NOT NULL
),
dead AS (
    SELECT holders.process FROM holders
    WHERE NOT EXISTS (SELECT 1 FROM process_leases
                      WHERE process_leases.process = holders.process AND until_ms > ?1)
)
SELECT run_id, task, claim FROM tasks
WHERE state = 'running' AND process IN (SELECT process FROM dead)
    AND run_id NOT IN (SELECT unhex(value) FROM json_each(?3))
UNION ALL
SELECT run_id, task, claim FROM tasks
WHERE state = 'running' AND process IS NULL AND lease_until_ms <= ?1
    AND run_id NOT IN (SELECT unhex(value) FROM json_each(?3))
LIMIT ?2";

// The deadline of a suspended run is the end of its wait for tool results.
pub(crate) const FIND_OVERDUE: &str = "-- find_overdue
SELECT id FROM (
    SELECT id FROM runs
    WHERE state = 'active' AND deadline_ms <= ?1 AND id NOT IN (SELECT unhex(value) FROM json_each(?3))
    ORDER BY deadline_ms LIMIT ?2
)
UNION ALL
SELECT id FROM (
    SELECT id FROM runs
    WHERE state = 'suspended' AND deadline_ms <= ?1 AND id NOT IN (SELECT unhex(value) FROM json_each(?3))
    ORDER BY deadline_ms LIMIT ?2
)
LIMIT ?2";

pub(crate) async fn due(
    store: &Store,
    now: Timestamp,
    again_at: Timestamp,
    limit: u32,
    except: &[RunId],
) -> Result<Due, StoreError> {
    let AgainParts { at_ms, from_ms, most_ms } = Again::new(now, again_at).parts();
    let now = stored(now.unix_ms());
    let except = Arc::new(json_list(except)?);
    let publish = {
        let except = Arc::clone(&except);
        move |connection: &Connection| {
            let wanted = params![now, stored(at_ms), limit, except, stored(from_ms), stored(most_ms)];
            rows(connection, TELL_READY, wanted, ready_task)
        }
    };
    let ready = store.write(publish).await?;
    let find = move |connection: &Connection| {
        let wanted = params![now, limit, except];
        Ok(Due {
            ready: ready.into_iter().flatten().collect(),
            backlogs: rows(connection, FIND_BACKLOGS, [], lane)?.into_iter().flatten().collect(),
            expired: rows(connection, FIND_EXPIRED, wanted, claim_ref)?,
            overdue: rows(connection, FIND_OVERDUE, wanted, |row| run_id(row, "id"))?,
        })
    };
    store.read(find).await
}

/// A task of a backlog, ordered by its turn: its tenant's outstanding tasks plus its position among the tenant's waiting ones;
/// then by age.
struct Waiting {
    place: (i64, i64),
    run: RunId,
    task: TaskRef,
}

pub(crate) async fn take(
    store: &Store,
    lane: &Lane,
    now: Timestamp,
    again_at: Timestamp,
    limit: u32,
) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
    let (lane, now) = (lane.to_string(), stored(now.unix_ms()));
    let take = move |connection: &Connection| {
        let mut chosen = in_turn(connection, &lane, now, limit)?;
        chosen.sort_unstable_by_key(|waiting| (waiting.place, waiting.run, waiting.task));
        chosen.truncate(limit as usize);
        for Waiting { run, task, .. } in &chosen {
            let columns = params![id_bytes(run), task.to_string(), stored(again_at.unix_ms())];
            execute(connection, TELL_TASK, columns)?;
        }
        Ok(chosen.into_iter().map(|waiting| (waiting.run, waiting.task)).collect())
    };
    store.write(take).await
}

/// Reads of each tenant no more tasks than could be taken, so a long backlog is not read.
fn in_turn(connection: &Connection, lane: &str, now: i64, limit: u32) -> Result<Vec<Waiting>, StoreError> {
    let tenants = rows(connection, COUNT_OUTSTANDING, params![lane, COUNTED_MAX], |row| {
        Ok((column::<String>(row, "tenant")?, column::<i64>(row, "outstanding")?))
    })?;
    let mut candidates = Vec::new();
    for (tenant, outstanding) in tenants {
        let backlog = rows(connection, READ_BACKLOG, params![lane, tenant, now, limit], |row| {
            let (run, task) = run_and_task(row)?;
            Ok(Waiting { place: (outstanding, column(row, "ready_ms")?), run, task })
        })?;
        candidates.extend((1..).zip(backlog).map(|(nth, mut waiting)| {
            waiting.place.0 += nth;
            waiting
        }));
    }
    Ok(candidates)
}

pub(crate) async fn put_back(store: &Store, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let tasks = tasks.to_vec();
    let put_back = move |connection: &Connection| {
        for (run, task) in &tasks {
            execute(connection, PUT_BACK, params![id_bytes(run), task.to_string()])?;
        }
        Ok(())
    };
    store.write(put_back).await
}

/// `None` if only a newer version knows the lane.
fn ready_task(row: &Row<'_>) -> Result<Option<ReadyTask>, StoreError> {
    let (run, task) = run_and_task(row)?;
    Ok(lane(row)?.map(|lane| ReadyTask { run, task, lane }))
}

/// `None` if only a newer version knows the lane.
fn lane(row: &Row<'_>) -> Result<Option<Lane>, StoreError> {
    Ok(text(row, "lane")?.parse().ok())
}

fn run_and_task(row: &Row<'_>) -> Result<(RunId, TaskRef), StoreError> {
    let run = run_id(row, "run_id")?;
    Ok((run, task(run, text(row, "task")?)?))
}

fn claim_ref(row: &Row<'_>) -> Result<ClaimRef, StoreError> {
    let (run, task) = run_and_task(row)?;
    Ok(ClaimRef { run, task, claim: claim_id(row, "claim")? })
}
