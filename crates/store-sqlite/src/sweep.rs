//! The work of the sweeper, and the backlogs.

use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{Again, AgainParts, ClaimRef, Due, ReadyTask, StoreError};
use podium_store_format::{stored, task};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Store;
use crate::row::{claim_id, hex, id_bytes, run_id, unavailable};

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
    let except: Vec<_> = except.iter().map(|run| hex(run.as_uuid())).collect();
    let except = serde_json::to_string(&except).map_err(|e| StoreError::Unavailable(Box::new(e)))?;
    let ready = sqlx::query(TELL_READY).bind(now).bind(stored(at_ms)).bind(limit).bind(&except);
    let ready = ready.bind(stored(from_ms)).bind(stored(most_ms));
    let ready = ready.fetch_all(&store.writer).await.map_err(unavailable)?;
    let backlogs = sqlx::query(FIND_BACKLOGS).fetch_all(&store.readers).await.map_err(unavailable)?;
    let expired = sqlx::query(FIND_EXPIRED).bind(now).bind(limit).bind(&except);
    let expired = expired.fetch_all(&store.readers).await.map_err(unavailable)?;
    let overdue = sqlx::query(FIND_OVERDUE).bind(now).bind(limit).bind(&except);
    let overdue = overdue.fetch_all(&store.readers).await.map_err(unavailable)?;
    Ok(Due {
        ready: ready.iter().filter_map(|row| ready_task(row).transpose()).collect::<Result<_, _>>()?,
        backlogs: backlogs
            .iter()
            .filter_map(|row| row.try_get::<&str, _>("lane").ok()?.parse().ok())
            .collect(),
        expired: expired.iter().map(claim_ref).collect::<Result<_, _>>()?,
        overdue: overdue.iter().map(|row| run_id(row, "id")).collect::<Result<_, _>>()?,
    })
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
    let mut transaction = store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    let mut chosen = in_turn(&mut transaction, &lane.to_string(), stored(now.unix_ms()), limit).await?;
    chosen.sort_unstable_by_key(|waiting| (waiting.place, waiting.run, waiting.task));
    chosen.truncate(limit as usize);
    for waiting in &chosen {
        sqlx::query(TELL_TASK)
            .bind(id_bytes(&waiting.run))
            .bind(waiting.task.to_string())
            .bind(stored(again_at.unix_ms()))
            .execute(&mut *transaction)
            .await
            .map_err(unavailable)?;
    }
    transaction.commit().await.map_err(unavailable)?;
    Ok(chosen.into_iter().map(|waiting| (waiting.run, waiting.task)).collect())
}

/// Reads of each tenant no more tasks than could be taken, so a long backlog is not read.
async fn in_turn(
    connection: &mut SqliteConnection,
    lane: &str,
    now: i64,
    limit: u32,
) -> Result<Vec<Waiting>, StoreError> {
    let tenants = sqlx::query(COUNT_OUTSTANDING).bind(lane).bind(COUNTED_MAX);
    let tenants = tenants.fetch_all(&mut *connection).await.map_err(unavailable)?;
    let mut candidates = Vec::new();
    for row in tenants {
        let tenant: &str = row.try_get("tenant").map_err(unavailable)?;
        let outstanding: i64 = row.try_get("outstanding").map_err(unavailable)?;
        let backlog = sqlx::query(READ_BACKLOG).bind(lane).bind(tenant).bind(now).bind(limit);
        let backlog = backlog.fetch_all(&mut *connection).await.map_err(unavailable)?;
        for (place, row) in (1..).zip(&backlog) {
            let (run, task) = run_and_task(row)?;
            let ready_ms: i64 = row.try_get("ready_ms").map_err(unavailable)?;
            candidates.push(Waiting { place: (outstanding + place, ready_ms), run, task });
        }
    }
    Ok(candidates)
}

pub(crate) async fn put_back(store: &Store, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let mut transaction = store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    for (run, task) in tasks {
        let put_back = sqlx::query(PUT_BACK).bind(id_bytes(run)).bind(task.to_string());
        put_back.execute(&mut *transaction).await.map_err(unavailable)?;
    }
    transaction.commit().await.map_err(unavailable)
}

/// `None` if only a newer version knows the lane.
fn ready_task(row: &SqliteRow) -> Result<Option<ReadyTask>, StoreError> {
    let (run, task) = run_and_task(row)?;
    let lane: &str = row.try_get("lane").map_err(unavailable)?;
    Ok(lane.parse().ok().map(|lane| ReadyTask { run, task, lane }))
}

fn run_and_task(row: &SqliteRow) -> Result<(RunId, TaskRef), StoreError> {
    let run = run_id(row, "run_id")?;
    let text: &str = row.try_get("task").map_err(unavailable)?;
    Ok((run, task(run, text)?))
}

pub(crate) fn claim_ref(row: &SqliteRow) -> Result<ClaimRef, StoreError> {
    let (run, task) = run_and_task(row)?;
    Ok(ClaimRef { run, task, claim: claim_id(row, "claim")? })
}
