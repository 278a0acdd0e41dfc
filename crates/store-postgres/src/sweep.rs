//! Leases, the work of the sweeper, and the backlogs.

use std::collections::HashSet;
use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{Again, Due, Hold, ReadyTask, StoreError, Turn};
use podium_store_format::{stored, task};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

/// Most outstanding tasks of a tenant in a lane that are counted. A tenant with more is last in any case.
const COUNTED_MAX: i64 = 1_000;

/// Most locked rows that an extension of leases waits for, one after the other. The next heartbeat handles others.
const LOCKED_MAX: u32 = 4;

pub(crate) async fn extend_leases(
    store: &Store,
    holds: &[Hold],
    until: Timestamp,
) -> Result<Vec<bool>, StoreError> {
    if holds.is_empty() {
        return Ok(Vec::new());
    }
    let extended = store.call(&ExtendLeases::new(holds, until)).await?;
    let mut extended = extended.iter().map(HoldRow::read).collect::<Result<HashSet<_>, _>>()?;
    // Usually few: lost claims, and tasks that another transaction writes right now.
    let mut locked = 0;
    for hold in holds {
        if extended.contains(hold) {
            continue;
        }
        if locked >= LOCKED_MAX {
            extended.insert(*hold);
            continue;
        }
        let is_held = match store.call(&ExtendLease { hold: *hold, until }).await {
            // While its row is locked, no other process can take the task.
            Err(StoreError::Refused(_)) => {
                locked += 1;
                true
            }
            extended => extended?,
        };
        if is_held {
            extended.insert(*hold);
        }
    }
    Ok(holds.iter().map(|hold| extended.contains(hold)).collect())
}

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
        expired: expired.iter().map(HoldRow::read).collect::<Result<_, _>>()?,
        overdue: overdue.into_iter().map(RunId::new).collect(),
    })
}

pub(crate) async fn take(
    store: &Store,
    lane: &Lane,
    (now, again_at): (Timestamp, Timestamp),
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
    let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX >> 1);
    let lanes = lanes.iter().map(ToString::to_string).collect();
    let held = store.call(&HoldLanes { lanes, holder, span_ms }).await?;
    Ok(held.iter().filter_map(|lane| lane.parse().ok()).collect())
}

pub(crate) async fn hold_sweep(store: &Store, holder: ClaimId, span: Duration) -> Result<Turn, StoreError> {
    let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX >> 1);
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

struct HoldRow {
    run_id: Uuid,
    task: String,
    claim: Uuid,
}

impl HoldRow {
    fn read(&self) -> Result<Hold, StoreError> {
        let run = RunId::new(self.run_id);
        Ok(Hold { run, task: task(run, &self.task)?, claim: ClaimId::new(self.claim) })
    }
}

struct ExtendLeases {
    runs: Vec<Uuid>,
    tasks: Vec<String>,
    claims: Vec<Uuid>,
    until_ms: i64,
}

impl ExtendLeases {
    fn new(holds: &[Hold], until: Timestamp) -> Self {
        Self {
            runs: holds.iter().map(|hold| *hold.run.as_uuid()).collect(),
            tasks: holds.iter().map(|hold| hold.task.to_string()).collect(),
            claims: holds.iter().map(|hold| *hold.claim.as_uuid()).collect(),
            until_ms: stored(until.unix_ms()),
        }
    }
}

impl Call for ExtendLeases {
    type Answer = Vec<HoldRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { runs, tasks, claims, until_ms } = self;
        sqlx::query_file_as!(HoldRow, "queries/extend_leases.sql", runs, tasks, claims, until_ms)
            .fetch_all(connection)
            .await
    }
}

/// Returns whether its claim still holds the task.
struct ExtendLease {
    hold: Hold,
    until: Timestamp,
}

impl Call for ExtendLease {
    type Answer = bool;

    async fn ask(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let Hold { run, task, claim } = &self.hold;
        let (task, until_ms) = (task.to_string(), stored(self.until.unix_ms()));
        let extended =
            sqlx::query_file!("queries/extend_lease.sql", run.as_uuid(), task, claim.as_uuid(), until_ms);
        Ok(extended.execute(connection).await?.rows_affected() > 0)
    }
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
        let (at, from, most) = again.parts_ms();
        let (at, from, most) = (stored(at), stored(from), stored(most));
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
    type Answer = Vec<HoldRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(HoldRow, "queries/find_expired.sql", self.now, self.limit, self.except)
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

#[cfg(test)]
mod tests {
    use podium_harness::{Fsync, Postgres};
    use sqlx::{Connection, query_scalar};

    use super::*;
    use crate::Options;

    #[tokio::test]
    async fn only_lease_extensions_do_not_wait_for_the_disk() {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, Options::default()).await.unwrap();
        let mut connection = store.connections.pool().acquire().await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let hold = Hold {
            run: RunId::new(Uuid::nil()),
            task: TaskRef::Plan { round: 0 },
            claim: ClaimId::new(Uuid::nil()),
        };
        let until = Timestamp::from_unix_ms(1);
        let show = || query_scalar::<_, String>("SHOW synchronous_commit");
        ExtendLeases::new(&[hold], until).ask(&mut transaction).await.unwrap();
        assert_eq!(show().fetch_one(&mut *transaction).await.unwrap(), "off");
        transaction.commit().await.unwrap();
        assert_eq!(show().fetch_one(&mut *connection).await.unwrap(), "on");
        let mut transaction = connection.begin().await.unwrap();
        ExtendLease { hold, until }.ask(&mut transaction).await.unwrap();
        assert_eq!(show().fetch_one(&mut *transaction).await.unwrap(), "off");
    }
}
