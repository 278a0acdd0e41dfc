//! A store in the test's own memory, for tests under paused time: it never waits, so time does not jump.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Again, Appended, ClaimRef, Commit, Due, LaneLoad, RatedRun, RunCatalog, RunFilter, RunLog, RunStore,
    RunSummary, RunSums, StoreError, TaskBoard, ToLoad, Turn, Unwritten,
};

use crate::process_leases::ProcessLeases;
use crate::task_rows::TaskRows;

/// How a write fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Refused,
    AnswerLost,
}

#[derive(Debug)]
struct Row {
    run: Run,
    events: Vec<SequencedEvent>,
}

#[derive(Debug, Default)]
struct Rows {
    runs: BTreeMap<RunId, Row>,
    tasks: TaskRows,
    leases: ProcessLeases,
    ratings: BTreeMap<RunId, RatedRun>,
    failures: Vec<Failure>,
}

/// Stores runs for one test. Clones are handles on the same store.
#[derive(Clone, Debug)]
pub struct TestStore {
    dispatch_grace: Duration,
    rows: Arc<Mutex<Rows>>,
}

impl TestStore {
    /// An empty store with a grace period of two seconds for ready tasks.
    pub fn new() -> Self {
        Self { dispatch_grace: Duration::from_secs(2), rows: Arc::default() }
    }

    /// The next write fails and writes nothing.
    pub fn refuse_next_write(&self) {
        self.lock().failures.push(Failure::Refused);
    }

    /// The next write is durable, but its caller gets an error.
    pub fn lose_next_answer(&self) {
        self.lock().failures.push(Failure::AnswerLost);
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, write: impl FnOnce(&mut Rows, Duration) -> T) -> Result<T, StoreError> {
        let (mut rows, grace) = (self.lock(), self.dispatch_grace);
        let failure = (!rows.failures.is_empty()).then(|| rows.failures.remove(0));
        let unavailable = |why: &str| StoreError::Unavailable(why.into());
        match failure {
            Some(Failure::Refused) => Err(unavailable("the test refuses this write")),
            Some(Failure::AnswerLost) => {
                write(&mut rows, grace);
                Err(unavailable("the test loses this answer"))
            }
            None => Ok(write(&mut rows, grace)),
        }
    }
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

fn append(rows: &mut Rows, commit: &Commit, grace: Duration) -> Result<Appended, Unwritten> {
    let id = commit.after.id();
    if commit.is_first() {
        if let Some(existing) = existing(rows, &commit.after) {
            return Ok(existing);
        }
        let (run, events) = ((*commit.after).clone(), commit.events.clone());
        rows.runs.insert(id, Row { run, events });
    } else {
        let row = rows.runs.get_mut(&id).ok_or(Unwritten::Conflict)?;
        if commit.events.first().is_none_or(|first| first.sequence != row.run.version() + 1) {
            return Err(Unwritten::Conflict);
        }
        row.run = (*commit.after).clone();
        row.events.extend(commit.events.iter().cloned());
    }
    rows.tasks.written(commit, grace);
    Ok(Appended::New)
}

fn existing(rows: &Rows, run: &Run) -> Option<Appended> {
    if rows.runs.contains_key(&run.id()) {
        return Some(Appended::Already);
    }
    let spec = run.spec();
    let is_same = |row: &&Row| {
        let other = row.run.spec();
        spec.request_id.is_some() && (&other.tenant, &other.request_id) == (&spec.tenant, &spec.request_id)
    };
    rows.runs.values().find(is_same).map(|row| Appended::Existing(row.run.id()))
}

fn is_held(rows: &Rows, claim: &ClaimRef) -> bool {
    let task = rows.runs.get(&claim.run).and_then(|row| row.run.task(claim.task));
    task.is_some_and(|task| task.is_held_by(claim.claim))
}

#[async_trait]
impl RunLog for TestStore {
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        self.write(|rows, grace| commits.iter().map(|commit| append(rows, commit, grace)).collect())
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
        let rows = self.lock();
        let replayed = |id: &RunId| {
            let row = rows.runs.get(id);
            row.map(|row| Run::replay(*id, &row.events).map_err(|e| StoreError::illegal(*id, e))).transpose()
        };
        runs.iter().map(replayed).collect()
    }

    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
        self.load(&ToLoad::ids(runs)).await
    }

    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError> {
        let rows = self.lock();
        let events = rows.runs.get(&run).map_or(&[][..], |row| &row.events);
        Ok(events.iter().filter(|event| event.sequence > after).take(limit as usize).cloned().collect())
    }
}

#[async_trait]
impl TaskBoard for TestStore {
    async fn extend_lease(
        &self,
        process: ProcessId,
        now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError> {
        Ok(self.lock().leases.extend(process, now, span))
    }

    async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        let rows = self.lock();
        Ok(claims.iter().map(|claim| is_held(&rows, claim)).collect())
    }

    async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        let mut rows = self.lock();
        for claim in claims {
            if is_held(&rows, claim) {
                rows.leases.disown(claim.claim);
            }
        }
        Ok(vec![true; claims.len()])
    }

    async fn due(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError> {
        let mut rows = self.lock();
        let ready = rows.tasks.tell_again(Again::new(now, again_at), now, limit, except);
        let mut due = Due { ready, backlogs: rows.tasks.backlogs(), ..Due::default() };
        let limit = limit as usize;
        for row in rows.runs.values().filter(|row| !row.run.is_ended()) {
            let run = row.run.id();
            if except.contains(&run) {
                continue;
            }
            if now >= row.run.due_at() && due.overdue.len() < limit {
                due.overdue.push(run);
            }
            for (task, found) in row.run.tasks() {
                if let Some(claim) = rows.leases.expired(&found.state, now)
                    && due.expired.len() < limit
                {
                    due.expired.push(ClaimRef { run, task, claim });
                }
            }
        }
        Ok(due)
    }

    async fn unsettled(
        &self,
        ended_by: Timestamp,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        let rows = self.lock();
        let wanted = |run: &&Run| run.is_unsettled() && run.ended_at().is_some_and(|at| at <= ended_by);
        let runs = rows.runs.values().map(|row| &row.run).filter(wanted).map(Run::id);
        Ok(runs.filter(|run| after.is_none_or(|after| *run > after)).take(limit as usize).collect())
    }

    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
        Ok(self.lock().tasks.take(lane, now, again_at, limit))
    }

    async fn hold_lanes(
        &self,
        _holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        Ok(lanes.to_vec())
    }

    async fn hold_sweep(
        &self,
        _holder: ClaimId,
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Turn, StoreError> {
        Ok(Turn::Own)
    }

    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
        self.lock().tasks.put_back(tasks);
        Ok(())
    }

    async fn lane_loads(&self) -> Result<Vec<LaneLoad>, StoreError> {
        Ok(self.lock().tasks.loads())
    }
}

#[async_trait]
impl RunCatalog for TestStore {
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let rows = self.lock();
        let newest = rows.runs.iter().rev().filter(|(id, row)| {
            let spec = row.run.spec();
            spec.tenant == *tenant
                && before.is_none_or(|before| **id < before)
                && filter.shows(**id, row.run.state().kind(), &spec.model)
        });
        Ok(newest.take(limit as usize).map(|(_, row)| summary(&row.run)).collect())
    }

    async fn rate(
        &self,
        tenant: &TenantId,
        run: RunId,
        rating: &Rating,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut rows = self.lock();
        let Some(row) = rows.runs.get(&run) else { return Ok(false) };
        if row.run.spec().tenant != *tenant || !row.run.is_ended() {
            return Ok(false);
        }
        rows.ratings.insert(run, RatedRun { run, rating: rating.clone(), rated_at: at });
        Ok(true)
    }

    async fn rated(
        &self,
        tenant: &TenantId,
        after: Option<RunId>,
        before: RunId,
        limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        let rows = self.lock();
        let is_tenants = |run: &RunId| rows.runs.get(run).is_some_and(|row| row.run.spec().tenant == *tenant);
        let is_wanted = |run: &RunId| after.is_none_or(|after| *run > after) && *run < before;
        let rated = rows.ratings.iter().filter(|(run, _)| is_wanted(run) && is_tenants(run));
        Ok(rated.take(limit as usize).map(|(_, rated)| rated.clone()).collect())
    }

    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        let (mut rows, ended_by) = (self.lock(), now.before(kept));
        let has_ended = |row: &Row| row.run.ended_at().is_some_and(|at| at <= ended_by);
        let ended = rows.runs.iter().filter(|(_, row)| has_ended(row)).map(|(id, _)| *id);
        let ended: Vec<_> = ended.take(limit as usize).collect();
        rows.runs.retain(|id, _| !ended.contains(id));
        rows.ratings.retain(|id, _| !ended.contains(id));
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }
}

#[async_trait]
impl RunStore for TestStore {
    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn summary(run: &Run) -> RunSummary {
    RunSummary {
        id: run.id(),
        tenant: run.spec().tenant.clone(),
        model: run.spec().model.clone(),
        state: run.state().as_str().to_owned(),
        question: run.spec().request.conversation.question().chars().take(200).collect(),
        sums: RunSums::of(run),
        accepted_at: run.spec().accepted_at,
        ended_at: run.ended_at(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededIds;
    use crate::builders::Driven;
    use crate::run_store::StoreFixture;

    fn fixture() -> StoreFixture {
        let store = TestStore::new();
        StoreFixture {
            first: Arc::new(store.clone()),
            second: Arc::new(store.clone()),
            dispatch_grace: store.dispatch_grace,
            keep: Box::new(()),
        }
    }

    crate::run_store_suite! { #[tokio::test] async { fixture() } }
    crate::ratings_suite! { #[tokio::test] async { fixture() } }

    #[tokio::test]
    async fn a_lost_answer_hides_a_durable_write() {
        let (store, mut run) = (TestStore::new(), Driven::accepted(&SeededIds::new(1)));
        let create = run.commit();
        store.refuse_next_write();
        store.append(std::slice::from_ref(&create)).await.unwrap_err();
        assert_eq!(store.load(&[run.id()]).await.unwrap(), [None]);
        store.lose_next_answer();
        store.append(std::slice::from_ref(&create)).await.unwrap_err();
        assert_eq!(store.append(&[create]).await.unwrap(), [Ok(Appended::Already)]);
        assert_eq!(store.load(&[run.id()]).await.unwrap(), [Some(run.run)]);
    }
}
