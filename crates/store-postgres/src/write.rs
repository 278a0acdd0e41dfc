//! Creates runs and appends to them, each batch in one statement.

use std::collections::{HashMap, HashSet};

use podium_domain::ids::RunId;
use podium_ports::store::{Appended, Commit, StoreError, Unwritten};
use podium_store_format::{EventsToStore, FORMAT};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;
use crate::charged::{OpenSums, Refused, Row, Verdict};
use crate::columns::{Batch, RunRow, StateRow, column};

/// Most tries to create runs whose request ids belonged to runs that were removed before they could be read.
const CREATE_TRIES_MAX: u32 = 3;
/// Most tries to create the budget sums of a batch. A second one is needed if they were removed in between.
const OPEN_TRIES_MAX: u32 = 3;

/// On each try, another run had the request id and was removed at once.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("runs with the same request ids appeared and vanished {CREATE_TRIES_MAX} times; try again")]
struct Vanishing;

/// On each try, the sums of the budgets were removed before they could be locked.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the sums of the budgets were removed {OPEN_TRIES_MAX} times while a run was charged; try again")]
struct SumsVanish;

/// The result of a batch: the runs that were written, those that a budget refused, and for runs to create the existing ones. The
/// others conflict with other commits.
#[derive(Default)]
struct Outcome {
    written: HashSet<Uuid>,
    refused: HashMap<Uuid, Refused>,
    found: HashMap<Uuid, Uuid>,
}

impl Outcome {
    /// Whether the run might fit alone.
    fn is_crowded_out(&self, run: Uuid) -> bool {
        matches!(self.refused.get(&run), Some(Refused::Crowded))
    }

    /// This outcome, updated by that of the run tried alone.
    fn with(mut self, run: Uuid, alone: Self) -> Self {
        self.refused.remove(&run);
        self.refused.extend(alone.refused);
        self.written.extend(alone.written);
        self.found.extend(alone.found);
        self
    }

    /// Whether it is known what became of a run to create.
    fn is_settled(&self, run: Uuid) -> bool {
        self.written.contains(&run) || self.refused.contains_key(&run) || self.found.contains_key(&run)
    }

    /// Adds the rows of the statement. Returns whether sums must be created before the result is complete.
    fn add(&mut self, rows: Vec<Row>) -> Result<bool, StoreError> {
        let mut is_unopened = false;
        for row in rows {
            let run = row.run_id;
            match row.verdict()? {
                Verdict::Written => {
                    self.written.insert(run);
                }
                Verdict::Unopened => is_unopened = true,
                // A certain refusal takes precedence over one that depends on other runs.
                Verdict::Refused(Refused::Crowded) if self.refused.contains_key(&run) => {}
                Verdict::Refused(refused) => {
                    self.refused.insert(run, refused);
                }
            }
        }
        Ok(is_unopened)
    }
}

pub(crate) async fn append(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let mut outcome = append_batch(store, commits).await?;
    let mut results = Vec::with_capacity(commits.len());
    for commit in commits {
        let id = *commit.after.id().as_uuid();
        if outcome.is_crowded_out(id) {
            let alone = append_batch(store, std::slice::from_ref(commit)).await?;
            outcome = outcome.with(id, alone);
        }
        results.push(match (outcome.found.get(&id).copied(), outcome.refused.remove(&id)) {
            _ if outcome.written.remove(&id) => {
                if commit.is_first() {
                    outcome.found.insert(id, id);
                }
                Ok(Appended::New)
            }
            (Some(found), _) if found == id => Ok(Appended::Already),
            (Some(found), _) => Ok(Appended::Existing(RunId::new(found))),
            (None, Some(Refused::Short(shortage))) => Err(Unwritten::OverBudget(shortage)),
            (None, _) if commit.is_first() => return Err(StoreError::Unavailable(Box::new(Vanishing))),
            // A second commit to the same run was not tried.
            (None, _) => Err(Unwritten::Conflict),
        });
    }
    Ok(results)
}

/// Writes the commits that can be written, and finds the runs that existed.
async fn append_batch(store: &Store, commits: &[Commit]) -> Result<Outcome, StoreError> {
    let batch = Batch::new(commits, store.options.dispatch_grace)?;
    let mut outcome = Outcome::default();
    for _ in 0..CREATE_TRIES_MAX {
        write(store, &batch, &mut outcome).await?;
        if batch.runs.iter().all(|run| outcome.written.contains(&run.id)) {
            break;
        }
        // A separate statement sees what others committed while the first one waited for them.
        let found = store.call(&FindCreated(&batch.runs)).await?;
        outcome.found.extend(found.into_iter().filter(|(run, _)| !outcome.written.contains(run)));
        // If a run is not settled, the run with its request id was removed in between: the id is free.
        if batch.runs.iter().all(|run| outcome.is_settled(run.id)) {
            break;
        }
    }
    Ok(outcome)
}

/// Writes a batch. If it is the first to be charged to a budget in its period, creates the sum and repeats the statement, which
/// skips what was already written by its version or id.
async fn write(store: &Store, batch: &Batch<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
    for _ in 0..OPEN_TRIES_MAX {
        outcome.refused.clear();
        let is_unopened = outcome.add(store.call(&Write(batch)).await?)?;
        if !is_unopened {
            let Outcome { written, refused, .. } = outcome;
            refused.retain(|run, _| !written.contains(run));
            return Ok(());
        }
        store.call(&OpenSums(&batch.charges)).await?;
    }
    Err(StoreError::Unavailable(Box::new(SumsVanish)))
}

/// Returns the existing run for each run to create.
struct FindCreated<'b>(&'b [RunRow<'b>]);

impl Call for FindCreated<'_> {
    type Answer = HashMap<Uuid, Uuid>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let runs = self.0;
        let found = sqlx::query_file!(
            "queries/find_created.sql",
            &column(runs, |run| run.id),
            &column(runs, |run| run.tenant) as &[&str],
            &column(runs, |run| run.request_id) as &[Option<&str>],
        );
        let found = found.fetch_all(connection).await?;
        Ok(found.into_iter().filter_map(|row| Some((row.given, row.found?))).collect())
    }
}

/// Returns the runs that were written, and those that a budget refused.
struct Write<'b>(&'b Batch<'b>);

impl Call for Write<'_> {
    type Answer = Vec<Row>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let batch = self.0;
        match (&*batch.runs, &*batch.states, &*batch.events) {
            ([], [state], [events]) if batch.charges.runs.is_empty() => {
                let written = append_one(connection, batch, state, &events.events).await?;
                Ok(written.into_iter().map(Row::written).collect())
            }
            _ => write_all(connection, batch).await,
        }
    }
}

async fn write_all(connection: &mut PgConnection, batch: &Batch<'_>) -> Result<Vec<Row>, sqlx::Error> {
    let Batch { runs, states, events, tasks, gone, charges } = batch;
    let written = sqlx::query_file_as!(
        Row,
        "queries/commit.sql",
        &column(runs, |run| run.id),
        &column(runs, |run| run.tenant) as &[&str],
        &column(runs, |run| run.request_id) as &[Option<&str>],
        &column(runs, |run| run.model.as_str()) as &[&str],
        &column(runs, |run| run.question.as_str()) as &[&str],
        &column(runs, |run| run.accepted_ms),
        &column(runs, |run| run.deadline_ms),
        &column(states, |state| state.run),
        &column(states, |state| state.version_before),
        &column(states, |state| state.version),
        &column(states, |state| state.state) as &[&str],
        &column(states, |state| state.ended_ms) as &[Option<i64>],
        &column(states, |state| state.steps),
        &column(states, |state| state.cost_nano_usd),
        &column(states, |state| state.wasted_nano_usd),
        &column(states, |state| state.saved_nano_usd),
        &column(states, |state| state.fallbacks),
        &column(states, |state| state.unsettled),
        &column(states, |state| state.failed_steps) as &[Option<i64>],
        &column(states, |state| state.degraded) as &[Option<bool>],
        &column(states, |state| state.refused) as &[Option<bool>],
        FORMAT,
        &column(events, |row| row.run),
        &column(events, |row| row.events.first_sequence),
        &column(events, |row| row.events.last_sequence),
        &column(events, |row| row.events.kinds.as_str()) as &[&str],
        &column(events, |row| row.events.data.as_str()) as &[&str],
        &column(tasks, |task| task.run),
        &column(tasks, |task| task.task.as_str()) as &[&str],
        &column(tasks, |task| task.state) as &[&str],
        &column(tasks, |task| task.lane.as_str()) as &[&str],
        &column(tasks, |task| task.tenant) as &[&str],
        &column(tasks, |task| task.ready_ms) as &[Option<i64>],
        &column(tasks, |task| task.told_until_ms) as &[Option<i64>],
        &column(tasks, |task| task.claim) as &[Option<Uuid>],
        &column(tasks, |task| task.process) as &[Option<Uuid>],
        &column(tasks, |task| task.lease_until_ms) as &[Option<i64>],
        &column(gone, |task| task.run),
        &column(gone, |task| task.task.as_str()) as &[&str],
        &charges.runs,
        &charges.payers,
        &charges.periods as &[Option<&str>],
        &charges.from_ms,
        &charges.spent,
        &charges.reserved,
        &charges.need_capacity,
        &column(states, |state| state.due_ms),
    );
    written.fetch_all(connection).await
}

async fn append_one(
    connection: &mut PgConnection,
    batch: &Batch<'_>,
    state: &StateRow,
    events: &EventsToStore,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let tasks = &batch.tasks;
    let written = sqlx::query_file_scalar!(
        "queries/append_one.sql",
        state.run,
        state.version_before,
        state.version,
        state.state,
        state.ended_ms,
        state.steps,
        state.cost_nano_usd,
        state.wasted_nano_usd,
        state.saved_nano_usd,
        state.fallbacks,
        state.unsettled,
        state.failed_steps,
        state.degraded,
        state.refused,
        events.first_sequence,
        events.last_sequence,
        events.kinds,
        FORMAT,
        events.data,
        &column(tasks, |task| task.task.as_str()) as &[&str],
        &column(tasks, |task| task.state) as &[&str],
        &column(tasks, |task| task.lane.as_str()) as &[&str],
        &column(tasks, |task| task.tenant) as &[&str],
        &column(tasks, |task| task.ready_ms) as &[Option<i64>],
        &column(tasks, |task| task.told_until_ms) as &[Option<i64>],
        &column(tasks, |task| task.claim) as &[Option<Uuid>],
        &column(tasks, |task| task.process) as &[Option<Uuid>],
        &column(tasks, |task| task.lease_until_ms) as &[Option<i64>],
        &column(&batch.gone, |task| task.task.as_str()) as &[&str],
        state.due_ms,
    );
    written.fetch_all(connection).await
}
