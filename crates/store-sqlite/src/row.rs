//! Converts between the rows of this database and the domain.

use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::{Run, SequencedEvent, TaskState};
use podium_ports::store::{Commit, PlacedTask, PublishBy, StoreError};
use podium_store_format::{EventToStore, StoredEvent, stored, version_before};
use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

/// Most characters of a question in a list.
const QUESTION_CHARS_MAX: usize = 200;

/// Wraps a failure of the database. The outcome of the statement is unknown.
pub(crate) fn unavailable(source: sqlx::Error) -> StoreError {
    StoreError::Unavailable(Box::new(source))
}

pub(crate) fn id_bytes(id: &RunId) -> &[u8] {
    id.as_uuid().as_bytes()
}

/// The tables ensure that ids have sixteen bytes.
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

/// A UUID as hexadecimal text, for a JSON list that `SQLite` decodes.
pub(crate) fn hex(id: &Uuid) -> String {
    id.simple().to_string()
}

/// A commit as rows, with the version that it follows.
pub(crate) struct CommitRows<'c> {
    pub(crate) commit: &'c Commit,
    pub(crate) run: &'c Run,
    pub(crate) version_before: i64,
    pub(crate) events: Vec<EventToStore>,
}

impl<'c> CommitRows<'c> {
    pub(crate) fn new(commit: &'c Commit) -> Result<Self, StoreError> {
        let (run, version_before) = (&commit.after, stored(version_before(commit)?));
        let events = commit.events.iter().map(|event| EventToStore::new(run.id(), event));
        Ok(Self { commit, run, version_before, events: events.collect::<Result<_, _>>()? })
    }
}

/// Decodes a row of `run_events`.
pub(crate) fn event(run: RunId, row: &SqliteRow) -> Result<SequencedEvent, StoreError> {
    let get = |column: &str| row.try_get::<i64, _>(column).map_err(unavailable);
    let (sequence, at_ms, format) = (get("sequence")?, get("at_ms")?, get("format")?);
    let data = row.try_get("data").map_err(unavailable)?;
    StoredEvent { sequence, at_ms, format, data }.read(run)
}

/// A row of `tasks`, passed to the statement as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct TaskRow<'c> {
    run: String,
    task: String,
    state: &'static str,
    lane: String,
    tenant: &'c str,
    ready_ms: Option<i64>,
    told_until_ms: Option<i64>,
    claim: Option<String>,
    process: Option<String>,
    lease_until_ms: Option<i64>,
}

impl<'c> TaskRow<'c> {
    /// The rows of all tasks of a commit's run.
    pub(crate) fn all(commit: &'c Commit, dispatch_grace: Duration) -> impl Iterator<Item = Self> {
        let (run, tenant) = (hex(commit.after.id().as_uuid()), commit.after.spec().tenant.as_str());
        commit.tasks().map(move |PlacedTask { id, task, place }| {
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
                    claim = Some(hex(holder.as_uuid()));
                    process = of.map(|process| hex(process.as_uuid()));
                    lease_until_ms = Some(stored(lease_until.unix_ms()));
                }
                _ => {}
            }
            let (run, task, state) = (run.clone(), id.to_string(), task.state.as_str());
            let lane = place.lane.to_string();
            Self { run, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms }
        })
    }
}

/// The beginning of a run's question. NUL characters, which would end the text for some tools, are replaced.
pub(crate) fn question(run: &Run) -> String {
    let question = run.spec().request.conversation.question();
    question.chars().take(QUESTION_CHARS_MAX).map(|c| if c == '\0' { ' ' } else { c }).collect()
}
