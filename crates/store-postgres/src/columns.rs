//! From the domain to rows: an array for each column, since a statement takes a whole batch.

use std::time::Duration;

use podium_domain::ids::{RequestId, RunId};
use podium_domain::run::{Run, TaskState};
use podium_ports::charge::Booking;
use podium_ports::store::{Commit, RunSums, StoreError, Telling};
use podium_ports::stored::{EventsToStore, stored, version_before};
use uuid::Uuid;

/// Most characters of a question in a list.
const QUESTION_CHARS_MAX: usize = 200;

/// Rows of `runs`.
#[derive(Debug, Default)]
pub(crate) struct RunColumns<'c> {
    pub(crate) ids: Vec<Uuid>,
    pub(crate) tenants: Vec<&'c str>,
    pub(crate) request_ids: Vec<Option<&'c str>>,
    pub(crate) models: Vec<String>,
    pub(crate) questions: Vec<String>,
    pub(crate) accepted_ms: Vec<i64>,
    pub(crate) deadline_ms: Vec<i64>,
}

impl<'c> RunColumns<'c> {
    fn push(&mut self, run: &'c Run) {
        let spec = run.spec();
        self.ids.push(*run.id().as_uuid());
        self.tenants.push(spec.tenant.as_str());
        self.request_ids.push(spec.request_id.as_ref().map(RequestId::as_str));
        self.models.push(without_nul(spec.model.chars()));
        self.questions.push(without_nul(spec.conversation.question().chars().take(QUESTION_CHARS_MAX)));
        self.accepted_ms.push(stored(spec.accepted_at.unix_ms()));
        self.deadline_ms.push(stored(spec.deadline_at.unix_ms()));
    }
}

/// Rows of `run_states`, and the versions that they follow.
#[derive(Debug, Default)]
pub(crate) struct StateColumns {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) versions_before: Vec<i64>,
    pub(crate) versions: Vec<i64>,
    pub(crate) states: Vec<&'static str>,
    pub(crate) ended_ms: Vec<Option<i64>>,
    pub(crate) steps: Vec<i64>,
    pub(crate) cost_nano_usd: Vec<i64>,
    pub(crate) wasted_nano_usd: Vec<i64>,
    pub(crate) saved_nano_usd: Vec<i64>,
    pub(crate) fallbacks: Vec<i64>,
    pub(crate) hedges: Vec<i64>,
}

impl StateColumns {
    fn push(&mut self, run: &Run, version_before: u64) {
        self.runs.push(*run.id().as_uuid());
        self.versions_before.push(stored(version_before));
        self.versions.push(stored(run.version()));
        self.states.push(run.state().as_str());
        self.ended_ms.push(run.ended_at().map(|at| stored(at.unix_ms())));
        let RunSums { steps, cost, wasted, saved, fallbacks, hedges } = RunSums::of(run);
        self.steps.push(steps.into());
        self.cost_nano_usd.push(stored(cost.nano_usd()));
        self.wasted_nano_usd.push(stored(wasted.nano_usd()));
        self.saved_nano_usd.push(stored(saved.nano_usd()));
        self.fallbacks.push(fallbacks.into());
        self.hedges.push(hedges.into());
    }
}

/// Rows of `run_events`.
#[derive(Debug, Default)]
pub(crate) struct EventColumns {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) first_sequences: Vec<i64>,
    pub(crate) last_sequences: Vec<i64>,
    pub(crate) kinds: Vec<String>,
    pub(crate) data: Vec<String>,
}

impl EventColumns {
    fn push(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let EventsToStore { first_sequence, last_sequence, kinds, data } = EventsToStore::new(commit)?;
        self.runs.push(*commit.after.id().as_uuid());
        self.first_sequences.push(first_sequence);
        self.last_sequences.push(last_sequence);
        self.kinds.push(kinds);
        self.data.push(data);
        Ok(())
    }
}

/// Rows of `tasks`.
#[derive(Debug, Default)]
pub(crate) struct TaskColumns<'c> {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) tasks: Vec<String>,
    pub(crate) states: Vec<&'static str>,
    pub(crate) lanes: Vec<String>,
    pub(crate) tenants: Vec<&'c str>,
    pub(crate) ready_ms: Vec<Option<i64>>,
    pub(crate) told_until_ms: Vec<Option<i64>>,
    pub(crate) claims: Vec<Option<Uuid>>,
    pub(crate) lease_until_ms: Vec<Option<i64>>,
    pub(crate) gone: GoneColumns,
}

/// The keys of rows of `tasks` that are to go.
#[derive(Debug, Default)]
pub(crate) struct GoneColumns {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) tasks: Vec<String>,
}

impl<'c> TaskColumns<'c> {
    /// The tasks of a run that its new events may have changed: rows of those that are ready or running, and of those that came
    /// to their end, that they have none any more. One that waits never had one.
    fn push(&mut self, commit: &'c Commit, dispatch_grace: Duration) {
        let run = &commit.after;
        let is_changed = |task| commit.events.iter().any(|event| event.event.may_change(task));
        for (task, found, place) in commit.tasks().filter(|(task, ..)| is_changed(*task)) {
            let (mut ready_ms, mut told_until_ms, mut claim, mut lease_until_ms) = (None, None, None, None);
            match &found.state {
                TaskState::Ready { not_before } => {
                    ready_ms = Some(stored(not_before.unix_ms()));
                    told_until_ms = match place.telling {
                        Telling::AtOnce => Some(stored(not_before.after(dispatch_grace).unix_ms())),
                        Telling::FromBacklog => None,
                    };
                }
                TaskState::Running { claim: holder, lease_until } => {
                    claim = Some(*holder.as_uuid());
                    lease_until_ms = Some(stored(lease_until.unix_ms()));
                }
                TaskState::Waiting => continue,
                TaskState::Done | TaskState::Failed | TaskState::Cancelled => {
                    if !commit.is_first() {
                        self.gone.runs.push(*run.id().as_uuid());
                        self.gone.tasks.push(task.to_string());
                    }
                    continue;
                }
            }
            self.runs.push(*run.id().as_uuid());
            self.tasks.push(task.to_string());
            self.states.push(found.state.as_str());
            self.lanes.push(place.lane.to_string());
            self.tenants.push(run.spec().tenant.as_str());
            self.ready_ms.push(ready_ms);
            self.told_until_ms.push(told_until_ms);
            self.claims.push(claim);
            self.lease_until_ms.push(lease_until_ms);
        }
    }
}

/// What is to be added to rows of `budget_sums`.
#[derive(Debug, Default)]
pub(crate) struct ChargeColumns {
    pub(crate) runs: Vec<Uuid>,
    pub(crate) payers: Vec<String>,
    pub(crate) from_ms: Vec<i64>,
    pub(crate) spent: Vec<i64>,
    pub(crate) reserved: Vec<i64>,
    pub(crate) need_room: Vec<bool>,
}

impl ChargeColumns {
    fn push(&mut self, run: RunId, booking: &Booking) {
        for budget in &booking.budgets {
            self.runs.push(*run.as_uuid());
            self.payers.push(budget.payer.to_string());
            self.from_ms.push(stored(budget.from.unix_ms()));
            self.spent.push(booking.spent);
            self.reserved.push(booking.reserved);
            self.need_room.push(booking.needs_room);
        }
    }
}

/// A batch of commits. Each run occurs in it once: of several commits to one, the first.
#[derive(Debug, Default)]
pub(crate) struct Batch<'c> {
    /// Of those that begin.
    pub(crate) runs: RunColumns<'c>,
    pub(crate) states: StateColumns,
    pub(crate) events: EventColumns,
    pub(crate) tasks: TaskColumns<'c>,
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
                batch.runs.push(run);
            }
            batch.states.push(run, version_before);
            batch.tasks.push(commit, dispatch_grace);
            if let Some(booking) = commit.booking() {
                batch.charges.push(run.id(), booking);
            }
            batch.events.push(commit)?;
        }
        Ok(batch)
    }
}

/// Postgres takes no text with a NUL. In the events, which are JSON, it is escaped; here it is for people who look.
fn without_nul(text: impl Iterator<Item = char>) -> String {
    text.map(|c| if c == '\0' { ' ' } else { c }).collect()
}
