//! The operators' view, and the record of their actions.

use async_trait::async_trait;
use podium_domain::budget::Charge;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;
use podium_ports::operations::{
    OpenRun, OpenRunFilter, OpenState, Operations, OperatorAction, Reservation, Stuck, StuckTask,
};
use podium_ports::store::{LaneLoad, StoreError};
use podium_store_format::{Damage, stored, time, unsigned};
use rusqlite::{Connection, Row, params};

use crate::Store;
use crate::row::{column, execute, id_bytes, rows, run_id};

// Reads every ready and running task, of which there are as many as there is work. For metrics and operators.
pub(crate) const LIST_LANE_LOADS: &str = "-- list_lane_loads
SELECT lane, sum(backlog) AS backlog, sum(published) AS published, sum(running) AS running, min(oldest_ms) AS oldest_ms
FROM (
    SELECT lane, count(*) AS backlog, 0 AS published, 0 AS running, min(ready_ms) AS oldest_ms FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NULL GROUP BY lane
    UNION ALL
    SELECT lane, 0, count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'running'), min(ready_ms)
    FROM tasks WHERE state = 'running' OR (state = 'ready' AND told_until_ms IS NOT NULL) GROUP BY lane
)
GROUP BY lane ORDER BY lane";

// For operators only, as above.
pub(crate) const LIST_STUCK_TASKS: &str = "-- list_stuck_tasks
SELECT run_id, task, tenant, lane, stuck, since_ms FROM (
    SELECT run_id, task, tenant, lane, 'backlog' AS stuck, ready_ms AS since_ms FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NULL AND ready_ms <= ?1
    UNION ALL
    SELECT run_id, task, tenant, lane, 'published', ready_ms FROM tasks
    WHERE state = 'ready' AND told_until_ms IS NOT NULL AND ready_ms <= ?1
    UNION ALL
    SELECT run_id, task, tenant, lane, 'abandoned', until_ms FROM (
        SELECT run_id, task, tenant, lane, coalesce(
                (SELECT until_ms FROM process_leases WHERE process_leases.process = tasks.process),
                CASE WHEN process IS NULL THEN lease_until_ms END, 0
            ) AS until_ms
        FROM tasks WHERE state = 'running'
    ) WHERE until_ms <= ?1
)
ORDER BY since_ms, run_id, task LIMIT ?2";

// For operators only: reads all runs that have not ended.
pub(crate) const LIST_OPEN_RUNS: &str = "-- list_open_runs
SELECT id, tenant, model, state, accepted_ms, deadline_ms, cost_nano_usd FROM (
    SELECT * FROM runs INDEXED BY runs_active WHERE state = 'active' AND ?1 IS NOT 'suspended'
    UNION ALL
    SELECT * FROM runs INDEXED BY runs_suspended WHERE state = 'suspended' AND ?1 IS NOT 'active'
)
WHERE id > ?4 AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR accepted_ms < ?3)
ORDER BY id LIMIT ?5";

// For operators only: reads the sums of all periods that are kept.
pub(crate) const LIST_RESERVATIONS: &str = "-- list_reservations
SELECT payer, from_ms, spent_nano_usd, reserved_nano_usd FROM budget_sums
WHERE reserved_nano_usd > 0 ORDER BY payer, from_ms LIMIT ?1";

pub(crate) const RECORD_ACTION: &str = "-- record_action
INSERT INTO operator_actions (at_ms, operator, action, subject, details) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) const LIST_ACTIONS: &str = "-- list_actions
SELECT at_ms, operator, action, subject, details FROM operator_actions ORDER BY id DESC LIMIT ?1";

/// Smaller than every id, because ids have bytes.
const BEFORE_ALL_IDS: [u8; 0] = [];

/// The lanes with open tasks.
pub(crate) async fn lane_loads(store: &Store) -> Result<Vec<LaneLoad>, StoreError> {
    let load = |row: &Row<'_>| {
        Ok(LaneLoad {
            lane: column(row, "lane")?,
            backlog: unsigned(column(row, "backlog")?),
            published: unsigned(column(row, "published")?),
            running: unsigned(column(row, "running")?),
            oldest: column::<Option<i64>>(row, "oldest_ms")?.map(time),
        })
    };
    store.read(move |connection| rows(connection, LIST_LANE_LOADS, [], load)).await
}

#[async_trait]
impl Operations for Store {
    async fn stuck_tasks(&self, before: Timestamp, limit: u32) -> Result<Vec<StuckTask>, StoreError> {
        let list = move |connection: &Connection| {
            rows(connection, LIST_STUCK_TASKS, params![stored(before.unix_ms()), limit], stuck_task)
        };
        self.read(list).await
    }

    async fn open_runs(
        &self,
        filter: &OpenRunFilter,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<OpenRun>, StoreError> {
        let filter = filter.clone();
        let list = move |connection: &Connection| {
            let after = after.as_ref().map_or(&BEFORE_ALL_IDS[..], id_bytes);
            let wanted = params![
                filter.state.map(OpenState::as_str),
                filter.tenant.as_ref().map(TenantId::as_str),
                filter.accepted_before.map(|at| stored(at.unix_ms())),
                after,
                limit
            ];
            rows(connection, LIST_OPEN_RUNS, wanted, open_run)
        };
        self.read(list).await
    }

    async fn reservations(&self, limit: u32) -> Result<Vec<Reservation>, StoreError> {
        let cost =
            |row: &Row<'_>, name| Ok::<_, StoreError>(Cost::from_nano_usd(unsigned(column(row, name)?)));
        let reservation = move |row: &Row<'_>| {
            let charge =
                Charge { spent: cost(row, "spent_nano_usd")?, reserved: cost(row, "reserved_nano_usd")? };
            Ok(Reservation { payer: column(row, "payer")?, from: time(column(row, "from_ms")?), charge })
        };
        self.read(move |connection| rows(connection, LIST_RESERVATIONS, [limit], reservation)).await
    }

    async fn record_action(&self, action: &OperatorAction) -> Result<(), StoreError> {
        let OperatorAction { at, operator, action, subject, details } = action.clone();
        let record = move |connection: &Connection| {
            let columns = params![stored(at.unix_ms()), operator, action, subject, details];
            execute(connection, RECORD_ACTION, columns).map(drop)
        };
        self.write(record).await
    }

    async fn actions(&self, limit: u32) -> Result<Vec<OperatorAction>, StoreError> {
        let action = |row: &Row<'_>| {
            Ok(OperatorAction {
                at: time(column(row, "at_ms")?),
                operator: column(row, "operator")?,
                action: column(row, "action")?,
                subject: column(row, "subject")?,
                details: column(row, "details")?,
            })
        };
        self.read(move |connection| rows(connection, LIST_ACTIONS, [limit], action)).await
    }
}

fn tenant(run: RunId, row: &Row<'_>) -> Result<TenantId, StoreError> {
    let name: String = column(row, "tenant")?;
    TenantId::new(name.as_str()).map_err(|_| Damage::Column { column: "tenant", value: name }.of(run))
}

fn stuck_task(row: &Row<'_>) -> Result<StuckTask, StoreError> {
    let run = run_id(row, "run_id")?;
    let state = match column::<String>(row, "stuck")?.as_str() {
        "backlog" => Stuck::InBacklog,
        "published" => Stuck::Published,
        _ => Stuck::Abandoned,
    };
    Ok(StuckTask {
        run,
        task: column(row, "task")?,
        tenant: tenant(run, row)?,
        lane: column(row, "lane")?,
        state,
        since: time(column(row, "since_ms")?),
    })
}

fn open_run(row: &Row<'_>) -> Result<OpenRun, StoreError> {
    let id = run_id(row, "id")?;
    Ok(OpenRun {
        id,
        tenant: tenant(id, row)?,
        model: column(row, "model")?,
        state: column(row, "state")?,
        accepted_at: time(column(row, "accepted_ms")?),
        due_at: time(column(row, "deadline_ms")?),
        cost: Cost::from_nano_usd(unsigned(column(row, "cost_nano_usd")?)),
    })
}
