//! Creating runs and appending to them, each batch in one statement.

use std::collections::{HashMap, HashSet};

use podium_domain::ids::RunId;
use podium_ports::store::{Commit, Conflict, Created, StoreError};
use podium_ports::stored::FORMAT;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;
use crate::columns::{Batch, RunColumns};

/// How often runs are created whose request ids were used, by runs that are gone when they are looked for.
pub(crate) const CREATE_TRIES_MAX: u32 = 3;

/// Each time, another run had the request id and was removed at once.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the runs that have the request ids vanished {CREATE_TRIES_MAX} times")]
pub(crate) struct Vanishing;

pub(crate) async fn create(store: &Store, runs: &[Commit]) -> Result<Vec<Created>, StoreError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Batch::new(runs, store.options.dispatch_grace)?;
    let ids = || runs.iter().map(|commit| commit.after.id());
    for _ in 0..CREATE_TRIES_MAX {
        let created = store.call(&Write(&batch)).await?;
        if ids().all(|id| created.contains(id.as_uuid())) {
            return Ok(ids().map(|_| Created::New).collect());
        }
        // In a statement of its own, which sees what others committed while the first one waited for them.
        let found = store.call(&FindCreated(&batch.runs)).await?;
        let created = ids().map(|id| match found.get(id.as_uuid())? {
            found if found == id.as_uuid() => Some(Created::New),
            found => Some(Created::Existing(RunId::new(*found))),
        });
        if let Some(created) = created.collect() {
            return Ok(created);
        }
        // A run that had one of the request ids was removed in between: the id is free.
    }
    Err(StoreError::Unavailable(Box::new(Vanishing)))
}

pub(crate) async fn commit(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<(), Conflict>>, StoreError> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Batch::new(commits, store.options.dispatch_grace)?;
    let mut written = store.call(&Write(&batch)).await?;
    // A second commit to the same run was not even tried.
    let results = commits.iter().map(|commit| written.remove(commit.after.id().as_uuid()));
    Ok(results.map(|was_written| if was_written { Ok(()) } else { Err(Conflict) }).collect())
}

/// Gives, for each run that was to be created, the one that is there.
pub(crate) struct FindCreated<'b>(pub(crate) &'b RunColumns<'b>);

impl Call for FindCreated<'_> {
    type Answer = HashMap<Uuid, Uuid>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let runs = self.0;
        let found = sqlx::query_file!(
            "queries/find_created.sql",
            &runs.ids,
            &runs.tenants as &[&str],
            &runs.request_ids as &[Option<&str>],
        );
        let found = found.fetch_all(connection).await?;
        Ok(found.into_iter().filter_map(|row| Some((row.given, row.found?))).collect())
    }
}

/// Gives the runs that were not there, or still at the version that their commit follows.
struct Write<'b>(&'b Batch<'b>);

impl Call for Write<'_> {
    type Answer = HashSet<Uuid>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Batch { runs, states, events, tasks, .. } = self.0;
        let written = sqlx::query_file_scalar!(
            "queries/commit.sql",
            &runs.ids,
            &runs.tenants as &[&str],
            &runs.request_ids as &[Option<&str>],
            &runs.models,
            &runs.questions,
            &runs.accepted_ms,
            &runs.deadline_ms,
            &states.runs,
            &states.versions_before,
            &states.versions,
            &states.states as &[&str],
            &states.steps,
            &states.cost_nano_usd,
            &states.ended_ms as &[Option<i64>],
            FORMAT,
            &events.runs,
            &events.sequences,
            &events.at_ms,
            &events.kinds as &[&str],
            &events.data,
            &tasks.runs,
            &tasks.tasks,
            &tasks.states as &[&str],
            &tasks.lanes,
            &tasks.tenants as &[&str],
            &tasks.ready_ms as &[Option<i64>],
            &tasks.told_until_ms as &[Option<i64>],
            &tasks.claims as &[Option<Uuid>],
            &tasks.lease_until_ms as &[Option<i64>],
        );
        Ok(written.fetch_all(connection).await?.into_iter().collect())
    }
}
