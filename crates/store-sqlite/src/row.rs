//! Runs statements, and converts between the rows of this database and the domain.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{ClaimId, ProcessId, RunId};
use podium_domain::run::{Booking, Run, SequencedEvent, TaskState};
use podium_ports::store::{Commit, PlacedTask, PublishBy, StoreError};
use podium_store_format::{EventToStore, StoredEvent, stored, version_before};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Params, Row};
use uuid::Uuid;

/// Most characters of a question in a list.
const QUESTION_CHARS_MAX: usize = 200;

/// Wraps a failure of the database. The outcome of the statement is unknown.
pub(crate) fn unavailable(source: rusqlite::Error) -> StoreError {
    StoreError::Unavailable(Box::new(source))
}

/// Runs a statement that returns no rows. Returns the number of rows that it changed.
pub(crate) fn execute(connection: &Connection, sql: &str, params: impl Params) -> Result<usize, StoreError> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(unavailable)
}

/// The only column of the first row, if there is a row.
pub(crate) fn value<T: FromSql>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<T>, StoreError> {
    let value = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, |row| row.get(0)));
    value.optional().map_err(unavailable)
}

/// All rows, each converted.
pub(crate) fn rows<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    convert: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(unavailable)?;
    let mut rows = statement.query(params).map_err(unavailable)?;
    let mut converted = Vec::new();
    while let Some(row) = rows.next().map_err(unavailable)? {
        converted.push(convert(row)?);
    }
    Ok(converted)
}

/// The first row, converted, if there is one.
pub(crate) fn row<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    convert: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(unavailable)?;
    let mut rows = statement.query(params).map_err(unavailable)?;
    rows.next().map_err(unavailable)?.map(convert).transpose()
}

pub(crate) fn column<T: FromSql>(row: &Row<'_>, name: &str) -> Result<T, StoreError> {
    row.get(name).map_err(unavailable)
}

/// A text that is valid until the next row is read.
pub(crate) fn text<'r>(row: &'r Row<'_>, name: &str) -> Result<&'r str, StoreError> {
    let value = row.get_ref(name).map_err(unavailable)?;
    value.as_str().map_err(|e| StoreError::Unavailable(Box::new(e)))
}

pub(crate) fn id_bytes(id: &RunId) -> &[u8] {
    id.as_uuid().as_bytes()
}

/// The tables ensure that ids have sixteen bytes.
fn uuid(row: &Row<'_>, name: &str) -> Result<Uuid, StoreError> {
    column(row, name).map(Uuid::from_bytes)
}

pub(crate) fn run_id(row: &Row<'_>, name: &str) -> Result<RunId, StoreError> {
    uuid(row, name).map(RunId::new)
}

pub(crate) fn claim_id(row: &Row<'_>, name: &str) -> Result<ClaimId, StoreError> {
    uuid(row, name).map(ClaimId::new)
}

/// Runs as a JSON list of hexadecimal ids, which `SQLite` decodes.
pub(crate) fn json_list(runs: &[RunId]) -> Result<String, StoreError> {
    let runs: Vec<_> = runs.iter().map(|run| run.as_uuid().simple().to_string()).collect();
    serde_json::to_string(&runs).map_err(|e| StoreError::Unavailable(Box::new(e)))
}

/// A commit as rows, with the version that it follows.
pub(crate) struct CommitRows {
    pub(crate) run: Arc<Run>,
    pub(crate) is_first: bool,
    pub(crate) version_before: i64,
    pub(crate) events: Vec<EventToStore>,
    pub(crate) booking: Option<Booking>,
    pub(crate) tasks: Vec<TaskRow>,
}

impl CommitRows {
    pub(crate) fn new(commit: &Commit, dispatch_grace: Duration) -> Result<Self, StoreError> {
        let version_before = stored(version_before(commit)?);
        let events = commit.events.iter().map(|event| EventToStore::new(commit.after.id(), event));
        Ok(Self {
            run: Arc::clone(&commit.after),
            is_first: commit.is_first(),
            version_before,
            events: events.collect::<Result<_, _>>()?,
            booking: commit.booking().cloned(),
            tasks: commit.tasks().map(|placed| TaskRow::new(&placed, dispatch_grace)).collect(),
        })
    }
}

/// Decodes a row of `run_events`.
pub(crate) fn event(run: RunId, row: &Row<'_>) -> Result<SequencedEvent, StoreError> {
    let (sequence, at_ms) = (column(row, "sequence")?, column(row, "at_ms")?);
    StoredEvent { sequence, at_ms, format: column(row, "format")?, data: text(row, "data")? }.read(run)
}

/// A row of `tasks`, without the columns of its run.
#[derive(Debug)]
pub(crate) struct TaskRow {
    pub(crate) task: String,
    pub(crate) state: &'static str,
    pub(crate) lane: String,
    pub(crate) ready_ms: Option<i64>,
    pub(crate) told_until_ms: Option<i64>,
    pub(crate) claim: Option<ClaimId>,
    pub(crate) process: Option<ProcessId>,
    pub(crate) lease_until_ms: Option<i64>,
}

impl TaskRow {
    fn new(placed: &PlacedTask<'_>, dispatch_grace: Duration) -> Self {
        let PlacedTask { id, task, place } = placed;
        let mut row = Self {
            task: id.to_string(),
            state: task.state.as_str(),
            lane: place.lane.to_string(),
            ready_ms: None,
            told_until_ms: None,
            claim: None,
            process: None,
            lease_until_ms: None,
        };
        match &task.state {
            TaskState::Ready { not_before } => {
                row.ready_ms = Some(stored(not_before.unix_ms()));
                row.told_until_ms = match place.publish_by {
                    PublishBy::Writer => Some(stored(not_before.after(dispatch_grace).unix_ms())),
                    PublishBy::Dispatcher => None,
                };
            }
            TaskState::Running { claim, process, lease_until } => {
                row.claim = Some(*claim);
                row.process = *process;
                row.lease_until_ms = Some(stored(lease_until.unix_ms()));
            }
            _ => {}
        }
        row
    }
}

/// The beginning of a run's question. NUL characters, which would end the text for some tools, are replaced.
pub(crate) fn question(run: &Run) -> String {
    let question = run.spec().request.conversation.question();
    question.chars().take(QUESTION_CHARS_MAX).map(|c| if c == '\0' { ' ' } else { c }).collect()
}
