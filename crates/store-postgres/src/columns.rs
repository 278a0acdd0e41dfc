//! Converts the domain to rows. A statement for a whole batch takes an array for each column.

use std::time::Duration;

use podium_domain::budget::Period;
use podium_domain::ids::{RequestId, RunId};
use podium_domain::run::{Booking, Run, TaskState};
use podium_ports::store::{Commit, PlacedTask, PublishBy, RunSums, StoreError};
use podium_store_format::{EventsToStore, stored, version_before};
use uuid::Uuid;

/// Most characters of a question in a list.
const QUESTION_CHARS_MAX: usize = 200;

/// One column of several rows.
pub(crate) fn column<'r, R, C>(rows: &'r [R], of: impl Fn(&'r R) -> C) -> Vec<C> {
    rows.iter().map(of).collect()
}

/// A row of `runs`, with the parts of a run that never change.
#[derive(Debug)]
pub(crate) struct RunRow<'c> {
    pub(crate) id: Uuid,
    pub(crate) tenant: &'c str,
    pub(crate) request_id: Option<&'c str>,
    pub(crate) model: String,
    pub(crate) question: String,
    pub(crate) accepted_ms: i64,
    pub(crate) deadline_ms: i64,
}

impl<'c> RunRow<'c> {
    fn new(run: &'c Run) -> Self {
        let spec = run.spec();
        Self {
            id: *run.id().as_uuid(),
            tenant: spec.tenant.as_str(),
            request_id: spec.request_id.as_ref().map(RequestId::as_str),
            model: without_nul(spec.model.chars()),
            question: without_nul(spec.request.conversation.question().chars().take(QUESTION_CHARS_MAX)),
            accepted_ms: stored(spec.accepted_at.unix_ms()),
            deadline_ms: stored(run.due_at().unix_ms()),
        }
    }
}

/// A row of `run_states`, with the version that it follows.
#[derive(Debug)]
pub(crate) struct StateRow {
    pub(crate) run: Uuid,
    pub(crate) version_before: i64,
    pub(crate) version: i64,
    pub(crate) state: &'static str,
    /// The deadline, or the end of the suspension.
    pub(crate) due_ms: i64,
    pub(crate) ended_ms: Option<i64>,
    pub(crate) steps: i64,
    pub(crate) cost_nano_usd: i64,
    pub(crate) wasted_nano_usd: i64,
    pub(crate) saved_nano_usd: i64,
    pub(crate) fallbacks: i64,
    pub(crate) unsettled: bool,
    pub(crate) failed_steps: Option<i64>,
    pub(crate) degraded: Option<bool>,
    pub(crate) refused: Option<bool>,
}

impl StateRow {
    fn new(run: &Run, version_before: u64) -> Self {
        let RunSums { steps, cost, wasted, saved, fallbacks, lack } = RunSums::of(run);
        Self {
            run: *run.id().as_uuid(),
            version_before: stored(version_before),
            version: stored(run.version()),
            state: run.state().as_str(),
            due_ms: stored(run.due_at().unix_ms()),
            ended_ms: run.ended_at().map(|at| stored(at.unix_ms())),
            steps: steps.into(),
            cost_nano_usd: stored(cost.nano_usd()),
            wasted_nano_usd: stored(wasted.nano_usd()),
            saved_nano_usd: stored(saved.nano_usd()),
            fallbacks: fallbacks.into(),
            unsettled: run.is_unsettled(),
            failed_steps: lack.map(|lack| lack.failed_steps.into()),
            degraded: lack.map(|lack| lack.degraded),
            refused: lack.map(|lack| lack.refused),
        }
    }
}

/// A row of `run_events`.
#[derive(Debug)]
pub(crate) struct EventsRow {
    pub(crate) run: Uuid,
    pub(crate) events: EventsToStore,
}

/// A row of `tasks`.
#[derive(Debug)]
pub(crate) struct TaskRow<'c> {
    pub(crate) run: Uuid,
    pub(crate) task: String,
    pub(crate) state: &'static str,
    pub(crate) lane: String,
    pub(crate) tenant: &'c str,
    pub(crate) ready_ms: Option<i64>,
    pub(crate) told_until_ms: Option<i64>,
    pub(crate) claim: Option<Uuid>,
    pub(crate) process: Option<Uuid>,
    pub(crate) lease_until_ms: Option<i64>,
}

/// The key of a row of `tasks` to delete.
#[derive(Debug)]
pub(crate) struct GoneRow {
    pub(crate) run: Uuid,
    pub(crate) task: String,
}

/// Amounts to add to rows of `budget_sums`.
#[derive(Debug, Default)]
pub(crate) struct ChargeColumns {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) payers: Vec<String>,
    pub(crate) periods: Vec<Option<&'static str>>,
    pub(crate) from_ms: Vec<i64>,
    pub(crate) spent: Vec<i64>,
    pub(crate) reserved: Vec<i64>,
    pub(crate) need_capacity: Vec<bool>,
}

impl ChargeColumns {
    fn push(&mut self, run: RunId, booking: &Booking) {
        for budget in &booking.budgets {
            self.runs.push(*run.as_uuid());
            self.payers.push(budget.payer.to_string());
            self.periods.push(budget.period.map(Period::as_str));
            self.from_ms.push(stored(budget.from.unix_ms()));
            self.spent.push(booking.spent);
            self.reserved.push(booking.reserved);
            self.need_capacity.push(booking.needs_capacity);
        }
    }
}

/// A batch of commits. Each run occurs once: of several commits to one run, only the first is used.
#[derive(Debug, Default)]
pub(crate) struct Batch<'c> {
    /// The runs that begin with this batch.
    pub(crate) runs: Vec<RunRow<'c>>,
    pub(crate) states: Vec<StateRow>,
    pub(crate) events: Vec<EventsRow>,
    pub(crate) tasks: Vec<TaskRow<'c>>,
    pub(crate) gone: Vec<GoneRow>,
    pub(crate) charges: ChargeColumns,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(commits: &'c [Commit], dispatch_grace: Duration) -> Result<Self, StoreError> {
        let mut batch = Self::default();
        let mut seen = std::collections::HashSet::with_capacity(commits.len());
        for commit in commits {
            let (run, version_before) = (&commit.after, version_before(commit)?);
            if !seen.insert(run.id()) {
                continue;
            }
            if commit.is_first() {
                batch.runs.push(RunRow::new(run));
            }
            batch.states.push(StateRow::new(run, version_before));
            batch.push_tasks(commit, dispatch_grace);
            if let Some(booking) = commit.booking() {
                batch.charges.push(run.id(), booking);
            }
            batch.events.push(EventsRow { run: *run.id().as_uuid(), events: EventsToStore::new(commit)? });
        }
        Ok(batch)
    }

    /// Adds the tasks of a run that its new events may have changed: rows to write for ready and running tasks, and rows to delete
    /// for tasks that ended or wait for the client. A waiting task never had a row.
    fn push_tasks(&mut self, commit: &'c Commit, dispatch_grace: Duration) {
        let (run, tenant) = (*commit.after.id().as_uuid(), commit.after.spec().tenant.as_str());
        let is_changed = |task| commit.events.iter().any(|event| event.event.may_change(task));
        for PlacedTask { id, task, place } in commit.tasks().filter(|placed| is_changed(placed.id)) {
            let (mut ready_ms, mut told_until_ms) = (None, None);
            let (mut claim, mut process, mut lease_until_ms) = (None, None, None);
            match &task.state {
                TaskState::Ready { not_before } => {
                    ready_ms = Some(stored(not_before.unix_ms()));
                    told_until_ms = match place.publish_by {
                        PublishBy::Writer => Some(stored(not_before.after(dispatch_grace).unix_ms())),
                        PublishBy::Dispatcher => None,
                    };
                }
                TaskState::Running { claim: holder, process: of, lease_until } => {
                    claim = Some(*holder.as_uuid());
                    process = of.map(|process| *process.as_uuid());
                    lease_until_ms = Some(stored(lease_until.unix_ms()));
                }
                TaskState::Waiting => continue,
                TaskState::Calling
                | TaskState::Done
                | TaskState::Skipped
                | TaskState::Failed
                | TaskState::Cancelled => {
                    if !commit.is_first() {
                        self.gone.push(GoneRow { run, task: id.to_string() });
                    }
                    continue;
                }
            }
            let (task, state, lane) = (id.to_string(), task.state.as_str(), place.lane.to_string());
            self.tasks.push(TaskRow {
                run,
                task,
                state,
                lane,
                tenant,
                ready_ms,
                told_until_ms,
                claim,
                process,
                lease_until_ms,
            });
        }
    }
}

/// Replaces NUL, which Postgres does not accept in text. The events' JSON escapes it; this text is for people.
fn without_nul(text: impl Iterator<Item = char>) -> String {
    text.map(|c| if c == '\0' { ' ' } else { c }).collect()
}
