//! Between rows and the domain. What cannot be is named with the run and the place.

use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_domain::run::{Run, RunEvent, SequencedEvent, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::store::{Commit, StoreError};
use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

/// The form of the events' JSON that this version writes.
pub(crate) const FORMAT: i64 = 1;
/// Most characters of a question in a list.
const QUESTION_CHARS_MAX: usize = 200;

/// What is wrong with what is stored of a run, or was to be.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// An event has a form that this version does not know.
    #[error("event {sequence} is in format {format}, this version reads format {FORMAT}")]
    Format {
        /// Which event.
        sequence: i64,
        /// Its format.
        format: i64,
    },
    /// An event's JSON does not read.
    #[error("event {sequence} does not read")]
    Event {
        /// Which event.
        sequence: i64,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// Events are missing at the end, or there are more than the run knows of.
    #[error("the run has version {version}, its last event is {last}")]
    Version {
        /// What `runs` says.
        version: i64,
        /// What `run_events` says.
        last: u64,
    },
    /// A column holds what it cannot.
    #[error("column `{column}` holds `{value}`")]
    Column {
        /// Table and column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// The caller's events do not lead to the caller's run.
    #[error("the events to be written do not lead up to version {version} without a gap")]
    Gap {
        /// The version of the run to be written.
        version: u64,
    },
}

impl Damage {
    pub(crate) fn of(self, run: RunId) -> StoreError {
        StoreError::Inconsistent { run, source: Box::new(self) }
    }
}

/// Why nothing is known of the outcome.
pub(crate) fn unavailable(source: sqlx::Error) -> StoreError {
    StoreError::Unavailable(Box::new(source))
}

/// What does not fit is the greatest that does: times at the end of time, costs of billions.
pub(crate) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Nothing negative is ever stored.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

pub(crate) fn time(value: i64) -> Timestamp {
    Timestamp::from_unix_ms(unsigned(value))
}

pub(crate) fn id_bytes(id: &RunId) -> &[u8] {
    id.as_uuid().as_bytes()
}

/// The tables check that ids have sixteen bytes.
fn uuid(row: &SqliteRow, column: &str) -> Result<Uuid, StoreError> {
    let bytes: &[u8] = row.try_get(column).map_err(unavailable)?;
    Uuid::from_slice(bytes).map_err(|e| StoreError::Unavailable(Box::new(e)))
}

pub(crate) fn run_id(row: &SqliteRow, column: &str) -> Result<RunId, StoreError> {
    uuid(row, column).map(RunId::new)
}

pub(crate) fn claim_id(row: &SqliteRow, column: &str) -> Result<ClaimId, StoreError> {
    uuid(row, column).map(ClaimId::new)
}

/// Sixteen bytes in a JSON list that `SQLite` is to take apart.
pub(crate) fn hex(id: &Uuid) -> String {
    id.simple().to_string()
}

/// Reads what [`TaskRef`] displays.
pub(crate) fn task(run: RunId, text: &str) -> Result<TaskRef, StoreError> {
    let number = |text: &str| text.parse::<u16>().ok();
    let parsed = match text.split('.').collect::<Vec<_>>().as_slice() {
        ["plan", round] => number(round).map(|round| TaskRef::Plan { round }),
        ["step", round, step] => number(round)
            .zip(number(step))
            .map(|(round, step)| TaskRef::Step { round, step: StepIndex::new(step) }),
        _ => None,
    };
    parsed.ok_or_else(|| Damage::Column { column: "tasks.task", value: text.to_owned() }.of(run))
}

/// An event as a row of `run_events`.
pub(crate) struct EventRow {
    pub(crate) sequence: i64,
    pub(crate) at_ms: i64,
    pub(crate) kind: &'static str,
    pub(crate) data: String,
}

/// A commit as rows, and the version that it follows.
pub(crate) struct CommitRows<'c> {
    pub(crate) run: &'c Run,
    pub(crate) version_before: i64,
    pub(crate) events: Vec<EventRow>,
}

impl<'c> CommitRows<'c> {
    pub(crate) fn new(commit: &'c Commit) -> Result<Self, StoreError> {
        let (run, id) = (&commit.after, commit.after.id());
        let gap = || Damage::Gap { version: run.version() }.of(id);
        let before = run.version().checked_sub(commit.events.len() as u64).ok_or_else(gap)?;
        let in_order = (before + 1..).zip(&commit.events).all(|(sequence, event)| event.sequence == sequence);
        if commit.events.is_empty() || !in_order {
            return Err(gap());
        }
        let events = commit.events.iter().map(|event| EventRow::new(event).map_err(|damage| damage.of(id)));
        Ok(Self { run, version_before: stored(before), events: events.collect::<Result<_, _>>()? })
    }
}

impl EventRow {
    fn new(event: &SequencedEvent) -> Result<Self, Damage> {
        let sequence = stored(event.sequence);
        let data =
            serde_json::to_string(&event.event).map_err(|source| Damage::Event { sequence, source })?;
        Ok(Self { sequence, at_ms: stored(event.at.unix_ms()), kind: event.event.name(), data })
    }
}

/// A row of `run_events`.
pub(crate) fn event(run: RunId, row: &SqliteRow) -> Result<SequencedEvent, StoreError> {
    let get = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let (sequence, at_ms, format) = (get("sequence")?, get("at_ms")?, get("format")?);
    if format != FORMAT {
        return Err(Damage::Format { sequence, format }.of(run));
    }
    let data: &str = row.try_get("data").map_err(unavailable)?;
    let event: RunEvent =
        serde_json::from_str(data).map_err(|source| Damage::Event { sequence, source }.of(run))?;
    Ok(SequencedEvent { sequence: unsigned(sequence), at: time(at_ms), event })
}

/// A task as a row of `tasks`, on its way there as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct TaskRow {
    run: String,
    task: String,
    state: &'static str,
    dispatch_after_ms: Option<i64>,
    claim: Option<String>,
    lease_until_ms: Option<i64>,
}

impl TaskRow {
    /// The rows of all tasks of a run.
    pub(crate) fn all(run: &Run, dispatch_grace: Duration) -> impl Iterator<Item = Self> {
        run.tasks().map(move |(task, found)| {
            let (mut dispatch_after_ms, mut claim, mut lease_until_ms) = (None, None, None);
            match &found.state {
                TaskState::Ready { not_before } => {
                    dispatch_after_ms = Some(stored(not_before.after(dispatch_grace).unix_ms()));
                }
                TaskState::Running { claim: holder, lease_until } => {
                    claim = Some(hex(holder.as_uuid()));
                    lease_until_ms = Some(stored(lease_until.unix_ms()));
                }
                _ => {}
            }
            let (run, task, state) = (hex(run.id().as_uuid()), task.to_string(), found.state.as_str());
            Self { run, task, state, dispatch_after_ms, claim, lease_until_ms }
        })
    }
}

/// The beginning of a run's question. A NUL would end the text for some tools that read the file.
pub(crate) fn question(run: &Run) -> String {
    let question = run.spec().conversation.question();
    question.chars().take(QUESTION_CHARS_MAX).map(|c| if c == '\0' { ' ' } else { c }).collect()
}

/// How many steps a run has in all its rounds.
pub(crate) fn steps(run: &Run) -> i64 {
    stored(run.rounds().iter().map(|round| round.steps.len() as u64).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tasks_key_reads_back() {
        let run = RunId::new(Uuid::nil());
        let step = StepIndex::new(12);
        for expected in [TaskRef::Plan { round: 3 }, TaskRef::Step { round: 0, step }] {
            assert_eq!(task(run, &expected.to_string()).unwrap(), expected);
        }
        for bad in ["", "plan", "plan.x", "plan.1.2", "step.1", "step.1.2.3", "step.0.70000", "nap.1"] {
            assert!(matches!(task(run, bad), Err(StoreError::Inconsistent { .. })), "{bad}");
        }
    }
}
