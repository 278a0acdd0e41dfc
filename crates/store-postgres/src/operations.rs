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
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

/// The lanes with open tasks.
pub(crate) async fn lane_loads(store: &Store) -> Result<Vec<LaneLoad>, StoreError> {
    let loads = store.call(&ListLaneLoads).await?.into_iter().map(|row| LaneLoad {
        lane: row.lane,
        backlog: unsigned(row.backlog),
        published: unsigned(row.published),
        running: unsigned(row.running),
        oldest: row.oldest_ms.map(time),
    });
    Ok(loads.collect())
}

#[async_trait]
impl Operations for Store {
    async fn stuck_tasks(&self, before: Timestamp, limit: u32) -> Result<Vec<StuckTask>, StoreError> {
        let list = ListStuckTasks { before: stored(before.unix_ms()), limit: limit.into() };
        self.call(&list).await?.into_iter().map(StuckRow::read).collect()
    }

    async fn open_runs(
        &self,
        filter: &OpenRunFilter,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<OpenRun>, StoreError> {
        let list = ListOpenRuns {
            state: filter.state.map(OpenState::as_str),
            tenant: filter.tenant.as_ref().map(TenantId::as_str),
            accepted_before: filter.accepted_before.map(|at| stored(at.unix_ms())),
            after: after.map_or(Uuid::nil(), |run| *run.as_uuid()),
            limit: limit.into(),
        };
        self.call(&list).await?.into_iter().map(OpenRow::read).collect()
    }

    async fn reservations(&self, limit: u32) -> Result<Vec<Reservation>, StoreError> {
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        let rows = self.call(&ListReservations(limit.into())).await?;
        Ok(rows
            .into_iter()
            .map(|row| Reservation {
                payer: row.payer,
                from: time(row.from_ms),
                charge: Charge { spent: cost(row.spent), reserved: cost(row.reserved) },
            })
            .collect())
    }

    async fn record_action(&self, action: &OperatorAction) -> Result<(), StoreError> {
        self.call(&RecordAction(action)).await
    }

    async fn actions(&self, limit: u32) -> Result<Vec<OperatorAction>, StoreError> {
        let rows = self.call(&ListActions(limit.into())).await?;
        Ok(rows
            .into_iter()
            .map(|row| OperatorAction {
                at: time(row.at_ms),
                operator: row.operator,
                action: row.action,
                subject: row.subject,
                details: row.details,
            })
            .collect())
    }
}

struct LoadRow {
    lane: String,
    backlog: i64,
    published: i64,
    running: i64,
    oldest_ms: Option<i64>,
}

struct ListLaneLoads;

impl Call for ListLaneLoads {
    type Answer = Vec<LoadRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(LoadRow, "queries/list_lane_loads.sql").fetch_all(connection).await
    }
}

fn tenant(run: RunId, name: &str) -> Result<TenantId, StoreError> {
    TenantId::new(name).map_err(|_| Damage::Column { column: "tenant", value: name.to_owned() }.of(run))
}

struct StuckRow {
    run_id: Uuid,
    task: String,
    tenant: String,
    lane: String,
    stuck: String,
    since_ms: i64,
}

impl StuckRow {
    fn read(self) -> Result<StuckTask, StoreError> {
        let run = RunId::new(self.run_id);
        let state = match self.stuck.as_str() {
            "backlog" => Stuck::InBacklog,
            "published" => Stuck::Published,
            _ => Stuck::Abandoned,
        };
        let (tenant, since) = (tenant(run, &self.tenant)?, time(self.since_ms));
        Ok(StuckTask { run, task: self.task, tenant, lane: self.lane, state, since })
    }
}

struct ListStuckTasks {
    before: i64,
    limit: i64,
}

impl Call for ListStuckTasks {
    type Answer = Vec<StuckRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(StuckRow, "queries/list_stuck_tasks.sql", self.before, self.limit)
            .fetch_all(connection)
            .await
    }
}

struct OpenRow {
    run_id: Uuid,
    tenant: String,
    model: String,
    state: String,
    accepted_ms: i64,
    deadline_ms: i64,
    cost_nano_usd: i64,
}

impl OpenRow {
    fn read(self) -> Result<OpenRun, StoreError> {
        let id = RunId::new(self.run_id);
        Ok(OpenRun {
            id,
            tenant: tenant(id, &self.tenant)?,
            model: self.model,
            state: self.state,
            accepted_at: time(self.accepted_ms),
            due_at: time(self.deadline_ms),
            cost: Cost::from_nano_usd(unsigned(self.cost_nano_usd)),
        })
    }
}

struct ListOpenRuns<'a> {
    state: Option<&'a str>,
    tenant: Option<&'a str>,
    accepted_before: Option<i64>,
    after: Uuid,
    limit: i64,
}

impl Call for ListOpenRuns<'_> {
    type Answer = Vec<OpenRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { state, tenant, accepted_before, after, limit } = *self;
        sqlx::query_file_as!(
            OpenRow,
            "queries/list_open_runs.sql",
            state,
            tenant,
            accepted_before,
            after,
            limit
        )
        .fetch_all(connection)
        .await
    }
}

struct ReservationRow {
    payer: String,
    from_ms: i64,
    spent: i64,
    reserved: i64,
}

struct ListReservations(i64);

impl Call for ListReservations {
    type Answer = Vec<ReservationRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(ReservationRow, "queries/list_reservations.sql", self.0)
            .fetch_all(connection)
            .await
    }
}

struct RecordAction<'a>(&'a OperatorAction);

impl Call for RecordAction<'_> {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let OperatorAction { at, operator, action, subject, details } = self.0;
        let at = stored(at.unix_ms());
        sqlx::query_file!("queries/record_action.sql", at, operator, action, subject, details)
            .execute(connection)
            .await
            .map(drop)
    }
}

struct ActionRow {
    at_ms: i64,
    operator: String,
    action: String,
    subject: String,
    details: String,
}

struct ListActions(i64);

impl Call for ListActions {
    type Answer = Vec<ActionRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(ActionRow, "queries/list_actions.sql", self.0).fetch_all(connection).await
    }
}
