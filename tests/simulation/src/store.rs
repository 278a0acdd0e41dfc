//! The store. [`SimStore`] is a connection to it, which may break.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId, TenantId};
use podium_domain::run::{Run, RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Again, Appended, ClaimRef, Commit, Due, RatedRun, RunFilter, RunSummary, RunSums, Turn, Unwritten,
};
use podium_testkit::{ProcessLeases, TaskRows};

use crate::budgets::BudgetState;
use crate::mutation::Mutation;

pub(crate) use wire::SimStore;

/// A stored run.
pub(crate) struct Row {
    pub(crate) run: Run,
    pub(crate) events: Vec<SequencedEvent>,
    /// The sums that are stored as columns, for lists.
    sums: RunSums,
}

/// The state of the store. Nothing here waits or fails.
pub(crate) struct StoreState {
    pub(crate) rows: BTreeMap<RunId, Row>,
    tasks: TaskRows,
    leases: ProcessLeases,
    by_request: BTreeMap<(TenantId, String), RunId>,
    ratings: BTreeMap<RunId, RatedRun>,
    pub(crate) budgets: BudgetState,
    /// The holder of each lane's dispatching lease, and its end.
    dispatchers: BTreeMap<Lane, (ClaimId, Timestamp)>,
    sweeper: Option<(ClaimId, Timestamp)>,
    dispatch_grace: Duration,
    mutation: Option<Mutation>,
}

impl StoreState {
    pub(crate) fn new(dispatch_grace: Duration, mutation: Option<Mutation>) -> Self {
        let (rows, tasks, by_request, ratings) =
            (BTreeMap::new(), TaskRows::default(), BTreeMap::new(), BTreeMap::new());
        let (leases, budgets) = (ProcessLeases::default(), BudgetState::default());
        let (dispatchers, sweeper) = (BTreeMap::new(), None);
        Self {
            rows,
            tasks,
            leases,
            by_request,
            ratings,
            budgets,
            dispatchers,
            sweeper,
            dispatch_grace,
            mutation,
        }
    }

    /// The result of first events whose run, or its request id, exists.
    fn existing(&self, run: &Run) -> Option<Appended> {
        if self.rows.contains_key(&run.id()) {
            return Some(Appended::Already);
        }
        self.by_request.get(&self.request_of(run)?).copied().map(Appended::Existing)
    }

    fn request_of(&self, run: &Run) -> Option<(TenantId, String)> {
        let spec = run.spec();
        let request = spec.request_id.clone().filter(|_| self.mutation != Some(Mutation::ForgetRequestId))?;
        Some((spec.tenant.clone(), String::from(request)))
    }

    /// Appends events and books their costs, unless they do not fit a budget.
    pub(crate) fn append(&mut self, commit: &Commit) -> Result<Appended, Unwritten> {
        if commit.is_first() {
            if let Some(existing) = self.existing(&commit.after) {
                return Ok(existing);
            }
        } else {
            let row = self.rows.get(&commit.after.id()).ok_or(Unwritten::Conflict)?;
            if !self.follows(row, commit) {
                return Err(Unwritten::Conflict);
            }
        }
        if let Some(shortage) = commit.booking().and_then(|it| self.budgets.shortage(it, self.mutation)) {
            return Err(Unwritten::OverBudget(shortage));
        }
        self.write(commit);
        self.tasks.written(commit, self.dispatch_grace);
        let is_forgotten = self.mutation == Some(Mutation::ForgetBooking) && commit.after.is_ended();
        if let Some(booking) = commit.booking().filter(|_| !is_forgotten) {
            self.budgets.book(booking);
        }
        Ok(Appended::New)
    }

    fn follows(&self, row: &Row, commit: &Commit) -> bool {
        let follows = commit.events.first().is_some_and(|first| first.sequence == row.run.version() + 1);
        follows || self.mutation == Some(Mutation::ForgetVersion)
    }

    /// Writes the row of a run.
    fn write(&mut self, commit: &Commit) {
        let Commit { after, events, .. } = commit;
        let Some(row) = self.rows.get_mut(&after.id()) else {
            if let Some(request) = self.request_of(after) {
                self.by_request.insert(request, after.id());
            }
            let (run, events, sums) = ((**after).clone(), events.clone(), RunSums::of(after));
            self.rows.insert(after.id(), Row { run, events, sums });
            return;
        };
        row.run = (**after).clone();
        row.events.extend(events.iter().cloned());
        if self.mutation != Some(Mutation::StaleCost) {
            row.sums = RunSums::of(&row.run);
        }
        if self.mutation == Some(Mutation::ChangeOutput) {
            change_output(&mut row.events);
        }
    }

    fn load(&self, id: RunId) -> Option<Run> {
        let row = self.rows.get(&id)?;
        if self.mutation == Some(Mutation::MisreadOutput) {
            let mut events = row.events.clone();
            change_output(&mut events);
            return Run::replay(id, &events).ok();
        }
        Some(row.run.clone())
    }

    fn is_held(&self, claim: &ClaimRef) -> bool {
        let task = self.rows.get(&claim.run).and_then(|row| row.run.task(claim.task));
        task.is_some_and(|task| task.is_held_by(claim.claim))
    }

    /// Takes the claims that hold their tasks away from their processes.
    fn disown(&mut self, claims: &[ClaimRef]) -> usize {
        let held: Vec<_> = claims.iter().filter(|claim| self.is_held(claim)).collect();
        for claim in &held {
            self.leases.disown(claim.claim);
        }
        held.len()
    }

    fn due(&mut self, now: Timestamp, again_at: Timestamp, limit: u32, except: &[RunId]) -> Due {
        if self.mutation == Some(Mutation::BlindSweep) {
            return Due::default();
        }
        let ready = self.tasks.tell_again(Again::new(now, again_at), now, limit, except);
        let mut due = Due { ready, backlogs: self.tasks.backlogs(), ..Due::default() };
        let limit = limit as usize;
        for (id, row) in self.rows.iter().filter(|(id, row)| !row.run.is_ended() && !except.contains(id)) {
            if now >= row.run.due_at() && due.overdue.len() < limit {
                due.overdue.push(*id);
            }
            for (task, found) in row.run.tasks() {
                if let Some(claim) = self.leases.expired(&found.state, now)
                    && due.expired.len() < limit
                    && self.mutation != Some(Mutation::KeepLeases)
                {
                    due.expired.push(ClaimRef { run: *id, task, claim });
                }
            }
        }
        due
    }

    fn remove_ended(&mut self, ended_by: Timestamp, limit: u32) -> u32 {
        let has_ended = |row: &Row| row.run.ended_at().is_some_and(|at| at <= ended_by);
        let ended = self.rows.iter().filter(|(_, row)| has_ended(row)).map(|(id, _)| *id);
        let ended: Vec<_> = ended.take(limit as usize).collect();
        self.rows.retain(|id, _| !ended.contains(id));
        self.by_request.retain(|_, id| !ended.contains(id));
        self.ratings.retain(|id, _| !ended.contains(id));
        u32::try_from(ended.len()).unwrap_or(u32::MAX)
    }

    fn unsettled(&self, ended_by: Timestamp, after: Option<RunId>, limit: u32) -> Vec<RunId> {
        let wanted = |run: &&Run| run.is_unsettled() && run.ended_at().is_some_and(|at| at <= ended_by);
        let runs = self.rows.values().map(|row| &row.run).filter(wanted).map(Run::id);
        runs.filter(|run| after.is_none_or(|after| *run > after)).take(limit as usize).collect()
    }

    fn rate(&mut self, tenant: &TenantId, rated: RatedRun) -> bool {
        let run = self.rows.get(&rated.run).map(|row| &row.run);
        let may = run.is_some_and(|run| run.spec().tenant == *tenant && run.is_ended());
        if may {
            self.ratings.insert(rated.run, rated);
        }
        may
    }

    fn rated(&self, tenant: &TenantId, after: Option<RunId>, before: RunId, limit: u32) -> Vec<RatedRun> {
        let is_tenants = |run: &RunId| self.rows.get(run).is_some_and(|row| row.run.spec().tenant == *tenant);
        let is_wanted = |run: &RunId| after.is_none_or(|after| *run > after) && *run < before;
        let rated = self.ratings.iter().filter(|(run, _)| is_wanted(run) && is_tenants(run));
        rated.take(limit as usize).map(|(_, rated)| rated.clone()).collect()
    }

    fn take(
        &mut self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Vec<(RunId, TaskRef)> {
        if self.mutation == Some(Mutation::BlindSweep) {
            return Vec::new();
        }
        self.tasks.take(lane, now, again_at, limit)
    }

    fn hold_lanes(&mut self, holder: ClaimId, lanes: &[Lane], now: Timestamp, span: Duration) -> Vec<Lane> {
        let mut held = Vec::new();
        for lane in lanes {
            let is_free = |(other, until): &(ClaimId, Timestamp)| *other == holder || *until <= now;
            if self.dispatchers.get(lane).is_none_or(is_free) {
                self.dispatchers.insert(lane.clone(), (holder, now.after(span)));
                held.push(lane.clone());
            }
        }
        held
    }

    fn hold_sweep(&mut self, holder: ClaimId, now: Timestamp, span: Duration) -> Turn {
        if self.sweeper.is_some_and(|(other, until)| other != holder && now < until) {
            return Turn::Others { backlogs: self.tasks.backlogs() };
        }
        self.sweeper = Some((holder, now.after(span)));
        Turn::Own
    }

    fn events(&self, run: RunId, after: u64, limit: u32) -> Vec<SequencedEvent> {
        let events = self.rows.get(&run).map_or(&[][..], |row| &row.events);
        events.iter().filter(|event| event.sequence > after).take(limit as usize).cloned().collect()
    }

    pub(crate) fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Vec<RunSummary> {
        let newest = self.rows.iter().rev().filter(|(id, row)| {
            let spec = row.run.spec();
            spec.tenant == *tenant
                && before.is_none_or(|before| **id < before)
                && filter.shows(**id, row.run.state().kind(), &spec.model)
        });
        newest.take(limit as usize).map(|(_, row)| row.summary()).collect()
    }
}

impl Row {
    fn summary(&self) -> RunSummary {
        let (run, spec) = (&self.run, self.run.spec());
        RunSummary {
            id: run.id(),
            tenant: spec.tenant.clone(),
            model: spec.model.clone(),
            state: run.state().as_str().to_owned(),
            question: spec.request.conversation.question().chars().take(200).collect(),
            sums: self.sums,
            accepted_at: spec.accepted_at,
            ended_at: run.ended_at(),
        }
    }
}

fn change_output(events: &mut [SequencedEvent]) {
    let outputs = events.iter_mut().filter_map(|event| match &mut event.event {
        RunEvent::StepDone { output, .. } => Some(output),
        _ => None,
    });
    for output in outputs {
        output.push_str(" (changed)");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use async_trait::async_trait;
    use podium_domain::ids::ProcessId;
    use podium_domain::rating::Rating;
    use podium_ports::store::{LaneLoad, RunCatalog, RunLog, RunStore, StoreError, TaskBoard, ToLoad};
    use podium_testkit::run_store::StoreFixture;

    use super::*;

    /// A store whose connection never breaks.
    #[derive(Clone)]
    struct Near(Arc<Mutex<StoreState>>);

    impl Near {
        fn lock(&self) -> MutexGuard<'_, StoreState> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[async_trait]
    impl RunLog for Near {
        async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
            Ok(commits.iter().map(|commit| self.lock().append(commit)).collect())
        }

        async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
            Ok(runs.iter().map(|run| self.lock().load(*run)).collect())
        }

        async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
            self.load(&ToLoad::ids(runs)).await
        }

        async fn events(
            &self,
            run: RunId,
            after: u64,
            limit: u32,
        ) -> Result<Vec<SequencedEvent>, StoreError> {
            Ok(self.lock().events(run, after, limit))
        }
    }

    #[async_trait]
    impl TaskBoard for Near {
        async fn extend_lease(
            &self,
            process: ProcessId,
            now: Timestamp,
            span: Duration,
        ) -> Result<bool, StoreError> {
            Ok(self.lock().leases.extend(process, now, span))
        }

        async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
            Ok(claims.iter().map(|claim| self.lock().is_held(claim)).collect())
        }

        async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
            self.lock().disown(claims);
            Ok(vec![true; claims.len()])
        }

        async fn due(
            &self,
            now: Timestamp,
            again_at: Timestamp,
            limit: u32,
            except: &[RunId],
        ) -> Result<Due, StoreError> {
            Ok(self.lock().due(now, again_at, limit, except))
        }

        async fn unsettled(
            &self,
            ended_by: Timestamp,
            after: Option<RunId>,
            limit: u32,
        ) -> Result<Vec<RunId>, StoreError> {
            Ok(self.lock().unsettled(ended_by, after, limit))
        }

        async fn take(
            &self,
            lane: &Lane,
            now: Timestamp,
            again_at: Timestamp,
            limit: u32,
        ) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
            Ok(self.lock().take(lane, now, again_at, limit))
        }

        async fn hold_lanes(
            &self,
            holder: ClaimId,
            lanes: &[Lane],
            now: Timestamp,
            span: Duration,
        ) -> Result<Vec<Lane>, StoreError> {
            Ok(self.lock().hold_lanes(holder, lanes, now, span))
        }

        async fn hold_sweep(
            &self,
            holder: ClaimId,
            now: Timestamp,
            span: Duration,
        ) -> Result<Turn, StoreError> {
            Ok(self.lock().hold_sweep(holder, now, span))
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
    impl RunCatalog for Near {
        async fn list(
            &self,
            tenant: &TenantId,
            filter: &RunFilter,
            before: Option<RunId>,
            limit: u32,
        ) -> Result<Vec<RunSummary>, StoreError> {
            Ok(self.lock().list(tenant, filter, before, limit))
        }

        async fn rate(
            &self,
            tenant: &TenantId,
            run: RunId,
            rating: &Rating,
            at: Timestamp,
        ) -> Result<bool, StoreError> {
            let rating = rating.clone();
            Ok(self.lock().rate(tenant, RatedRun { run, rating, rated_at: at }))
        }

        async fn rated(
            &self,
            tenant: &TenantId,
            after: Option<RunId>,
            before: RunId,
            limit: u32,
        ) -> Result<Vec<RatedRun>, StoreError> {
            Ok(self.lock().rated(tenant, after, before, limit))
        }

        async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
            Ok(self.lock().remove_ended(now.before(kept), limit))
        }
    }

    #[async_trait]
    impl RunStore for Near {
        async fn ping(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn fixture() -> StoreFixture {
        let dispatch_grace = Duration::from_secs(2);
        let store = Near(Arc::new(Mutex::new(StoreState::new(dispatch_grace, None))));
        StoreFixture {
            first: Arc::new(store.clone()),
            second: Arc::new(store),
            dispatch_grace,
            keep: Box::new(()),
        }
    }

    podium_testkit::run_store_suite! { #[tokio::test] async { fixture() } }
    podium_testkit::ratings_suite! { #[tokio::test] async { fixture() } }
}
