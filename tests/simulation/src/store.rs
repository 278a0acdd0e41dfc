//! The store. [`SimStore`] is a connection to it, which may break.

mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use podium_domain::budget::Shortage;
use podium_domain::ids::{ClaimId, RunId, TenantId};
use podium_domain::run::{Run, RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Again, ClaimRef, Commit, Conflict, Created, Due, RunSummary, RunSums, Turn, Unwritten,
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
    pub(crate) budgets: BudgetState,
    /// The holder of each lane's dispatching lease, and its end.
    dispatchers: BTreeMap<Lane, (ClaimId, Timestamp)>,
    sweeper: Option<(ClaimId, Timestamp)>,
    dispatch_grace: Duration,
    mutation: Option<Mutation>,
}

impl StoreState {
    pub(crate) fn new(dispatch_grace: Duration, mutation: Option<Mutation>) -> Self {
        let (rows, tasks, by_request) = (BTreeMap::new(), TaskRows::default(), BTreeMap::new());
        let (leases, budgets) = (ProcessLeases::default(), BudgetState::default());
        let (dispatchers, sweeper) = (BTreeMap::new(), None);
        Self { rows, tasks, leases, by_request, budgets, dispatchers, sweeper, dispatch_grace, mutation }
    }

    /// The result of creating a run that exists.
    fn existing(&self, run: &Run) -> Option<Created> {
        if self.rows.contains_key(&run.id()) {
            return Some(Created::Already);
        }
        self.by_request.get(&self.request_of(run)?).copied().map(Created::Existing)
    }

    fn request_of(&self, run: &Run) -> Option<(TenantId, String)> {
        let spec = run.spec();
        let request = spec.request_id.clone().filter(|_| self.mutation != Some(Mutation::ForgetRequestId))?;
        Some((spec.tenant.clone(), String::from(request)))
    }

    /// Creates a run and books its reservation, unless it does not fit a budget.
    fn create_charged(&mut self, commit: &Commit) -> Result<Created, Shortage> {
        if let Some(existing) = self.existing(&commit.after) {
            return Ok(existing);
        }
        if let Some(shortage) = self.shortage(commit) {
            return Err(shortage);
        }
        self.book(commit);
        Ok(self.create(commit))
    }

    /// Appends events and books their costs, unless they do not fit a budget.
    fn append_charged(&mut self, commit: &Commit) -> Result<(), Unwritten> {
        let row = self.rows.get(&commit.after.id()).ok_or(Conflict)?;
        if !self.follows(row, commit) {
            return Err(Conflict.into());
        }
        if let Some(shortage) = self.shortage(commit) {
            return Err(Unwritten::OverBudget(shortage));
        }
        self.append(commit)?;
        self.book(commit);
        Ok(())
    }

    fn shortage(&self, commit: &Commit) -> Option<Shortage> {
        self.budgets.shortage(commit.booking()?, self.mutation)
    }

    fn book(&mut self, commit: &Commit) {
        let is_forgotten = self.mutation == Some(Mutation::ForgetBooking) && commit.after.is_ended();
        if let Some(booking) = commit.booking().filter(|_| !is_forgotten) {
            self.budgets.book(booking);
        }
    }

    fn follows(&self, row: &Row, commit: &Commit) -> bool {
        let follows = commit.events.first().is_some_and(|first| first.sequence == row.run.version() + 1);
        follows || self.mutation == Some(Mutation::ForgetVersion)
    }

    pub(crate) fn create(&mut self, commit: &Commit) -> Created {
        let Commit { after, events, .. } = commit;
        if let Some(existing) = self.existing(after) {
            return existing;
        }
        let id = after.id();
        if let Some(request) = self.request_of(after) {
            self.by_request.insert(request, id);
        }
        let (run, events, sums) = ((**after).clone(), events.clone(), RunSums::of(after));
        self.rows.insert(id, Row { run, events, sums });
        self.tasks.written(commit, self.dispatch_grace);
        Created::New
    }

    pub(crate) fn append(&mut self, commit: &Commit) -> Result<(), Conflict> {
        if commit.is_first() {
            let is_new = !self.rows.contains_key(&commit.after.id());
            return if is_new && self.create(commit) == Created::New { Ok(()) } else { Err(Conflict) };
        }
        let Commit { after, events, .. } = commit;
        let row = self.rows.get(&after.id()).ok_or(Conflict)?;
        if !self.follows(row, commit) {
            return Err(Conflict);
        }
        let row = self.rows.get_mut(&after.id()).ok_or(Conflict)?;
        row.run = (**after).clone();
        row.events.extend(events.iter().cloned());
        self.tasks.written(commit, self.dispatch_grace);
        if self.mutation != Some(Mutation::StaleCost) {
            row.sums = RunSums::of(&row.run);
        }
        if self.mutation == Some(Mutation::ChangeOutput) {
            change_output(&mut row.events);
        }
        Ok(())
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

    fn due(&mut self, now: Timestamp, again_at: Timestamp, limit: u32, except: &[RunId]) -> Due {
        if self.mutation == Some(Mutation::BlindSweep) {
            return Due::default();
        }
        let ready = self.tasks.tell_again(Again::new(now, again_at), now, limit, except);
        let mut due = Due { ready, backlogs: self.tasks.backlogs(), ..Due::default() };
        let limit = limit as usize;
        for (id, row) in self.rows.iter().filter(|(id, row)| !row.run.is_ended() && !except.contains(id)) {
            if now >= row.run.spec().deadline_at && due.overdue.len() < limit {
                due.overdue.push(*id);
            }
            for (task, found) in row.run.tasks() {
                if let Some(claim) = self.leases.expired(&found.state, now)
                    && due.expired.len() < limit
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
        u32::try_from(ended.len()).unwrap_or(u32::MAX)
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

    pub(crate) fn list(&self, tenant: &TenantId, before: Option<RunId>, limit: u32) -> Vec<RunSummary> {
        let newest = self.rows.iter().rev().filter(|(id, row)| {
            row.run.spec().tenant == *tenant && before.is_none_or(|before| **id < before)
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
    use podium_ports::store::{RunStore, StoreError};
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
    impl RunStore for Near {
        async fn create(&self, runs: &[Commit]) -> Result<Vec<Created>, StoreError> {
            Ok(runs.iter().map(|commit| self.lock().create(commit)).collect())
        }

        async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
            Ok(runs.iter().map(|run| self.lock().load(*run)).collect())
        }

        async fn commit(&self, commits: &[Commit]) -> Result<Vec<Result<(), Conflict>>, StoreError> {
            Ok(commits.iter().map(|commit| self.lock().append(commit)).collect())
        }

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

        async fn due_except(
            &self,
            now: Timestamp,
            again_at: Timestamp,
            limit: u32,
            except: &[RunId],
        ) -> Result<Due, StoreError> {
            Ok(self.lock().due(now, again_at, limit, except))
        }

        async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
            Ok(self.lock().remove_ended(now.before(kept), limit))
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

        async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
            self.lock().tasks.put_back(tasks);
            Ok(())
        }

        async fn events(
            &self,
            run: RunId,
            after: u64,
            limit: u32,
        ) -> Result<Vec<SequencedEvent>, StoreError> {
            Ok(self.lock().events(run, after, limit))
        }

        async fn list(
            &self,
            tenant: &TenantId,
            before: Option<RunId>,
            limit: u32,
        ) -> Result<Vec<RunSummary>, StoreError> {
            Ok(self.lock().list(tenant, before, limit))
        }

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
}
