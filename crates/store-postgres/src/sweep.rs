//! The work of the sweeper, and the backlogs.

use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{Again, AgainParts, Due, ReadyTask, StoreError, Turn};
use podium_store_format::{stored, task};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;
use crate::leases::{ClaimRow, milliseconds};

/// Most outstanding tasks of a tenant in a lane that are counted. A tenant with more is last in any case.
const COUNTED_MAX: i64 = 1_000;

pub(crate) async fn due(
    store: &Store,
    now: Timestamp,
    again_at: Timestamp,
    limit: u32,
    except: &[RunId],
) -> Result<Due, StoreError> {
    let except: Vec<_> = except.iter().map(|run| *run.as_uuid()).collect();
    let again = Again::new(now, again_at);
    let (now, limit, except) = (stored(now.unix_ms()), i64::from(limit), except.as_slice());
    let ready = store.call(&TellReady { now, again, limit, except }).await?;
    let backlogs = store.call(&FindBacklogs).await?;
    let expired = store.call(&FindExpired { now, limit, except }).await?;
    let overdue = store.call(&FindOverdue { now, limit, except }).await?;
    Ok(Due {
        ready: ready.iter().filter_map(|row| row.read().transpose()).collect::<Result<_, _>>()?,
        backlogs: backlogs.iter().filter_map(|lane| lane.parse().ok()).collect(),
        expired: expired.iter().map(ClaimRow::read).collect::<Result<_, _>>()?,
        overdue: overdue.into_iter().map(RunId::new).collect(),
    })
}

pub(crate) async fn take(
    store: &Store,
    lane: &Lane,
    now: Timestamp,
    again_at: Timestamp,
    limit: u32,
) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
    let mut taken = store
        .call(&TakeTasks {
            lane: lane.to_string(),
            now: stored(now.unix_ms()),
            again_at: stored(again_at.unix_ms()),
            limit: i64::from(limit),
        })
        .await?;
    taken.sort_unstable_by_key(|row| (row.place, row.ready_ms, row.run_id));
    taken
        .iter()
        .map(|row| {
            let run = RunId::new(row.run_id);
            Ok((run, task(run, &row.task)?))
        })
        .collect()
}

pub(crate) async fn hold_lanes(
    store: &Store,
    holder: ClaimId,
    lanes: &[Lane],
    span: Duration,
) -> Result<Vec<Lane>, StoreError> {
    let holder = *holder.as_uuid();
    let span_ms = milliseconds(span);
    let lanes = lanes.iter().map(ToString::to_string).collect();
    let held = store.call(&HoldLanes { lanes, holder, span_ms }).await?;
    Ok(held.iter().filter_map(|lane| lane.parse().ok()).collect())
}

pub(crate) async fn hold_sweep(store: &Store, holder: ClaimId, span: Duration) -> Result<Turn, StoreError> {
    let span_ms = milliseconds(span);
    let TurnRow { is_own, backlogs } = store.call(&HoldSweep { holder: *holder.as_uuid(), span_ms }).await?;
    if is_own {
        return Ok(Turn::Own);
    }
    Ok(Turn::Others { backlogs: backlogs.iter().filter_map(|lane| lane.parse().ok()).collect() })
}

pub(crate) async fn put_back(store: &Store, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let runs = tasks.iter().map(|(run, _)| *run.as_uuid()).collect();
    let tasks = tasks.iter().map(|(_, task)| task.to_string()).collect();
    store.call(&PutBack { runs, tasks }).await
}

struct ReadyRow {
    run_id: Uuid,
    task: String,
    lane: String,
}

impl ReadyRow {
    /// `None` if only a newer version knows the lane.
    fn read(&self) -> Result<Option<ReadyTask>, StoreError> {
        let run = RunId::new(self.run_id);
        let task = task(run, &self.task)?;
        Ok(self.lane.parse().ok().map(|lane| ReadyTask { run, task, lane }))
    }
}

struct TakenRow {
    run_id: Uuid,
    task: String,
    place: i64,
    ready_ms: i64,
}

struct TellReady<'a> {
    now: i64,
    again: Again,
    limit: i64,
    except: &'a [Uuid],
}

impl Call for TellReady<'_> {
    type Answer = Vec<ReadyRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { now, again, limit, except } = self;
        let AgainParts { at_ms, from_ms, most_ms } = again.parts();
        let (at, from, most) = (stored(at_ms), stored(from_ms), stored(most_ms));
        sqlx::query_file_as!(ReadyRow, "queries/tell_ready.sql", now, at, limit, except, from, most)
            .fetch_all(connection)
            .await
    }
}

struct FindBacklogs;

impl Call for FindBacklogs {
    type Answer = Vec<String>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_scalar!("queries/find_backlogs.sql").fetch_all(connection).await
    }
}

struct TakeTasks {
    lane: String,
    now: i64,
    again_at: i64,
    limit: i64,
}

impl Call for TakeTasks {
    type Answer = Vec<TakenRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { lane, now, again_at, limit } = self;
        sqlx::query_file_as!(TakenRow, "queries/take_tasks.sql", lane, now, again_at, limit, COUNTED_MAX)
            .fetch_all(connection)
            .await
    }
}

struct HoldLanes {
    lanes: Vec<String>,
    holder: Uuid,
    span_ms: i64,
}

impl Call for HoldLanes {
    type Answer = Vec<String>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_scalar!("queries/hold_lanes.sql", &self.lanes, self.holder, self.span_ms)
            .fetch_all(connection)
            .await
    }
}

struct TurnRow {
    is_own: bool,
    backlogs: Vec<String>,
}

struct HoldSweep {
    holder: Uuid,
    span_ms: i64,
}

impl Call for HoldSweep {
    type Answer = TurnRow;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(TurnRow, "queries/hold_sweep.sql", self.holder, self.span_ms)
            .fetch_one(connection)
            .await
    }
}

struct PutBack {
    runs: Vec<Uuid>,
    tasks: Vec<String>,
}

impl Call for PutBack {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file!("queries/put_back.sql", &self.runs, &self.tasks).execute(connection).await.map(drop)
    }
}

struct FindExpired<'a> {
    now: i64,
    limit: i64,
    except: &'a [Uuid],
}

impl Call for FindExpired<'_> {
    type Answer = Vec<ClaimRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(ClaimRow, "queries/find_expired.sql", self.now, self.limit, self.except)
            .fetch_all(connection)
            .await
    }
}

struct FindOverdue<'a> {
    now: i64,
    limit: i64,
    except: &'a [Uuid],
}

impl Call for FindOverdue<'_> {
    type Answer = Vec<Uuid>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_scalar!("queries/find_overdue.sql", self.now, self.limit, self.except)
            .fetch_all(connection)
            .await
    }
}

pub(crate) async fn unsettled(
    store: &Store,
    ended_by: Timestamp,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let after = after.map_or(Uuid::nil(), |run| *run.as_uuid());
    let find = FindUnsettled { after, ended_by: stored(ended_by.unix_ms()), limit: limit.into() };
    Ok(store.call(&find).await?.into_iter().map(RunId::new).collect())
}

struct FindUnsettled {
    after: Uuid,
    ended_by: i64,
    limit: i64,
}

impl Call for FindUnsettled {
    type Answer = Vec<Uuid>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { after, ended_by, limit } = self;
        sqlx::query_file_scalar!("queries/find_unsettled.sql", after, ended_by, limit)
            .fetch_all(connection)
            .await
    }
}
