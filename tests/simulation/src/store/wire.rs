//! The connection to the store, which may break, and the records of each commit.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RequestId, RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::run::{Run, RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Appended, ClaimRef, Commit, Due, LaneLoad, RatedRun, RunCatalog, RunFilter, RunLog, RunStore, RunSummary,
    StoreError, TaskBoard, ToLoad, Turn, Unwritten,
};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Broken, Core, Link, Service};

/// A node's connection to the store.
pub(crate) struct SimStore(pub(crate) Link);

impl SimStore {
    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0
            .ask(Service::Store, effect)
            .await
            .map_err(|broken: Broken| StoreError::Unavailable(broken.into()))
    }
}

#[async_trait]
impl RunLog for SimStore {
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        let (node, commits) = (self.0.node, commits.to_vec());
        self.ask(move |core| {
            core.must_not_be_locked(&commits)?;
            Ok(commits.into_iter().map(|commit| append(core, node, &commit)).collect())
        })
        .await?
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
        let (node, runs) = (self.0.node, runs.to_vec());
        self.ask(move |core| {
            core.must_be_readable(node, &runs)?;
            Ok(runs.iter().map(|run| core.store.load(*run)).collect())
        })
        .await?
    }

    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
        self.load(&ToLoad::ids(runs)).await
    }

    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError> {
        let node = self.0.node;
        self.ask(move |core| {
            core.must_be_readable(node, &[run])?;
            Ok(core.store.events(run, after, limit))
        })
        .await?
    }
}

#[async_trait]
impl TaskBoard for SimStore {
    async fn extend_lease(
        &self,
        process: ProcessId,
        now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError> {
        let node = self.0.node;
        self.ask(move |core| {
            let was_held = core.store.leases.extend(process, now, span);
            note!(core, "node {node}: lease extended, it had one: {was_held}");
            was_held
        })
        .await
    }

    async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        let (node, claims) = (self.0.node, claims.to_vec());
        self.ask(move |core| {
            let held: Vec<_> = claims.iter().map(|claim| core.store.is_held(claim)).collect();
            if held.contains(&false) {
                core.count("found that a claim was lost");
            }
            note!(core, "node {node}: claims held {held:?}");
            held
        })
        .await
    }

    async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        let (node, claims) = (self.0.node, claims.to_vec());
        self.ask(move |core| {
            let disowned = core.store.disown(&claims);
            if disowned > 0 {
                core.count("disowned");
            }
            note!(core, "node {node}: disowns {disowned} of {} claims", claims.len());
            vec![true; claims.len()]
        })
        .await
    }

    async fn due(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError> {
        let (node, except) = (self.0.node, except.to_vec());
        self.ask(move |core| {
            let due = core.store.due(now, again_at, limit, &except);
            if due != Due::default() {
                let (ready, expired, overdue) = (due.ready.len(), due.expired.len(), due.overdue.len());
                note!(core, "node {node}: due: {ready} ready, {expired} expired, {overdue} overdue");
            }
            due
        })
        .await
    }

    async fn unsettled(
        &self,
        ended_by: Timestamp,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        self.ask(move |core| {
            let unsettled = core.store.unsettled(ended_by, after, limit);
            if !unsettled.is_empty() {
                core.count("found unsettled");
            }
            unsettled
        })
        .await
    }

    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
        let (node, lane) = (self.0.node, lane.clone());
        self.ask(move |core| {
            let taken = core.store.take(&lane, now, again_at, limit);
            if !taken.is_empty() {
                core.count("taken from a backlog");
                note!(core, "node {node}: {} taken from the backlog of {lane}", taken.len());
            }
            taken
        })
        .await
    }

    async fn hold_lanes(
        &self,
        holder: ClaimId,
        lanes: &[Lane],
        now: Timestamp,
        span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        let (node, lanes) = (self.0.node, lanes.to_vec());
        self.ask(move |core| {
            let held = core.store.hold_lanes(holder, &lanes, now, span);
            if held.len() < lanes.len() {
                core.count("dispatched by another node");
            }
            note!(core, "node {node}: dispatches {} of {} lanes", held.len(), lanes.len());
            held
        })
        .await
    }

    async fn hold_sweep(&self, holder: ClaimId, now: Timestamp, span: Duration) -> Result<Turn, StoreError> {
        let node = self.0.node;
        self.ask(move |core| {
            let turn = core.store.hold_sweep(holder, now, span);
            if turn != Turn::Own {
                core.count("swept by another node");
            }
            note!(core, "node {node}: {turn:?} sweeps");
            turn
        })
        .await
    }

    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
        let tasks = tasks.to_vec();
        self.ask(move |core| core.store.tasks.put_back(&tasks)).await
    }

    async fn lane_loads(&self) -> Result<Vec<LaneLoad>, StoreError> {
        self.ask(move |core| core.store.tasks.loads()).await
    }
}

#[async_trait]
impl RunCatalog for SimStore {
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.ask(move |core| core.store.list(&tenant, &filter, before, limit)).await
    }

    async fn rate(
        &self,
        tenant: &TenantId,
        run: RunId,
        rating: &Rating,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (tenant, rated) = (tenant.clone(), RatedRun { run, rating: rating.clone(), rated_at: at });
        self.ask(move |core| core.store.rate(&tenant, rated)).await
    }

    async fn rated(
        &self,
        tenant: &TenantId,
        after: Option<RunId>,
        before: RunId,
        limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        let tenant = tenant.clone();
        self.ask(move |core| core.store.rated(&tenant, after, before, limit)).await
    }

    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.ask(move |core| core.store.remove_ended(now.before(kept), limit)).await
    }
}

#[async_trait]
impl RunStore for SimStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.ask(|_| ()).await
    }
}

fn append(core: &mut Core, node: usize, commit: &Commit) -> Result<Appended, Unwritten> {
    let is_lie = core.is_mutated(Mutation::LyingCommit) && !commit.is_first() && commit.booking().is_none();
    if is_lie && core.dice.chance(100) {
        return Ok(Appended::New);
    }
    let outcome = core.store.append(commit);
    note_booking(core, node, commit, &outcome);
    match &outcome {
        Ok(appended) if commit.is_first() => note_creation(core, node, commit, *appended),
        Err(Unwritten::OverBudget(_)) => {}
        Ok(_) | Err(Unwritten::Conflict) => note_append(core, node, commit, outcome.is_ok()),
    }
    if let Some(booking) = commit.booking().filter(|booking| booking.needs_capacity && outcome.is_ok()) {
        core.checker.permitted(booking, &core.store.budgets);
    }
    outcome
}

/// Records a creation and its outcome.
fn note_creation(core: &mut Core, node: usize, commit: &Commit, created: Appended) {
    let (id, request) = (commit.after.id(), commit.after.spec().request_id.clone());
    note!(
        core,
        "node {node}: create {id} {} is {created:?}",
        request.as_ref().map_or("-", RequestId::as_str)
    );
    if matches!(created, Appended::Existing(_)) {
        core.count("request id repeated");
    }
    if let Some(row) = core.store.rows.get(&id) {
        core.checker.created(&row.run, &row.events);
        core.checker.written(id, &row.events, &row.run);
    }
    if core.is_mutated(Mutation::LoseRun) && core.dice.chance(100) {
        core.store.rows.remove(&id);
    }
}

/// Records a booking.
fn note_booking(core: &mut Core, node: usize, commit: &Commit, outcome: &Result<Appended, Unwritten>) {
    if let Err(Unwritten::OverBudget(shortage)) = outcome {
        note!(core, "node {node}: {} is over budget: {shortage}", commit.after.id());
        core.count("over budget");
    } else if commit.booking().is_some() {
        core.count("booked");
    }
}

/// Records a commit and its outcome.
fn note_append(core: &mut Core, node: usize, commit: &Commit, is_written: bool) {
    let id = commit.after.id();
    let (names, version): (Vec<_>, _) = if core.trace.is_on() {
        (commit.events.iter().map(|event| event.event.name()).collect(), commit.after.version())
    } else {
        (Vec::new(), 0)
    };
    let is_chained = is_chained(&commit.events);
    let is_skipped = commit.events.iter().any(|event| matches!(event.event, RunEvent::StepSkipped { .. }));
    let is_once = |event: &SequencedEvent| match &event.event {
        RunEvent::AttemptFailed { message, .. } => message.contains("its answer had begun"),
        _ => false,
    };
    let is_once = commit.events.iter().any(is_once);
    let fell_back = commit.events.iter().find_map(|event| match event.event {
        RunEvent::FellBack { claim, .. } => {
            Some(if claim.is_some() { "fell back" } else { "went round a breaker" })
        }
        _ => None,
    });
    note!(
        core,
        "node {node}: commit {id} to {version} {names:?} {}",
        if is_written { "ok" } else { "conflict" }
    );
    if !is_written {
        core.count("conflict");
    } else if let Some(row) = core.store.rows.get(&id) {
        core.checker.written(id, &row.events, &row.run);
        core.check_clock(node, commit.after.deadline_at(), &commit.events);
        if is_once {
            core.count("broken answer not repeated");
        }
        if is_chained {
            core.count("claimed with a result");
        }
        if is_skipped {
            core.count("skipped a step");
        }
        if let Some(fell_back) = fell_back {
            core.count(fell_back);
        }
    }
}

/// Whether the commit of a result also claims the step that it made ready.
fn is_chained(events: &[SequencedEvent]) -> bool {
    let mut readied = events.iter().filter_map(|event| match event.event {
        RunEvent::StepReady { round, step } => Some(TaskRef::Step { round, step }),
        _ => None,
    });
    let claimed =
        |ready| events.iter().any(|e| matches!(e.event, RunEvent::Claimed { task, .. } if task == ready));
    events.iter().any(|event| matches!(event.event, RunEvent::StepDone { .. })) && readied.any(claimed)
}
