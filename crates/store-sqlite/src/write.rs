//! Creates runs and appends to them, each batch in one transaction.

use podium_domain::budget::Shortage;
use podium_domain::ids::RequestId;
use podium_domain::run::Run;
use podium_ports::store::{Appended, Commit, RunSums, StoreError, Unwritten};
use podium_store_format::{EventToStore, FORMAT, stored};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::Store;
use crate::charged::{book, shortage};
use crate::row::{CommitRows, TaskRow, execute, id_bytes, question, row, run_id, unavailable, value};

pub(crate) const INSERT_RUN: &str = "-- insert_run
INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms, deadline_ms, version, state, ended_ms, steps,
                  cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks, hedges, unsettled, failed_steps, degraded,
                  refused)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, ?16, ?17, ?18, ?19)
ON CONFLICT DO NOTHING";

pub(crate) const FIND_RUN: &str = "-- find_run
SELECT id FROM runs WHERE id = ?1 OR (tenant = ?2 AND request_id = ?3) LIMIT 1";

pub(crate) const UPDATE_RUN: &str = "-- update_run
UPDATE runs SET version = ?4, state = ?5, ended_ms = ?6, steps = ?7, cost_nano_usd = ?8, wasted_nano_usd = ?9,
                saved_nano_usd = ?10, fallbacks = ?11, unsettled = ?12, failed_steps = ?13, degraded = ?14, refused = ?15,
                deadline_ms = ?3
WHERE id = ?1 AND version = ?2";

pub(crate) const READ_VERSION: &str = "-- read_version
SELECT version FROM runs WHERE id = ?1 AND version = ?2";

pub(crate) const INSERT_EVENT: &str = "-- insert_event
INSERT INTO run_events (run_id, sequence, at_ms, kind, format, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

// A task that does not change keeps its times: it may have been published since. A task that became ready
// again within one commit stays ready, from a later time.
pub(crate) const UPSERT_TASK: &str = "-- upsert_task
INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (run_id, task) DO UPDATE SET
    state = excluded.state,
    lane = excluded.lane,
    ready_ms = excluded.ready_ms,
    told_until_ms = excluded.told_until_ms,
    claim = excluded.claim,
    process = excluded.process,
    lease_until_ms = excluded.lease_until_ms
WHERE state <> excluded.state OR claim IS NOT excluded.claim OR ready_ms < excluded.ready_ms";

pub(crate) async fn append(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let commits = commits.iter().map(|commit| CommitRows::new(commit, store.dispatch_grace));
    let commits = commits.collect::<Result<Vec<_>, _>>()?;
    store.write(move |connection| commits.iter().map(|commit| write(connection, commit)).collect()).await
}

/// Writes a commit, unless its run or a budget refuses it.
fn write(connection: &Connection, commit: &CommitRows) -> Result<Result<Appended, Unwritten>, StoreError> {
    let booking = commit.booking.as_ref();
    let shortage = shortage(connection, booking)?;
    let is_written = shortage.is_none()
        && if commit.is_first {
            insert_run(connection, &commit.run)?
        } else {
            update_run(connection, commit)?
        };
    if !is_written {
        return unwritten(connection, commit, shortage);
    }
    insert_events(connection, commit)?;
    book(connection, booking)?;
    upsert_tasks(connection, commit)?;
    Ok(Ok(Appended::New))
}

/// Inserts a run. Returns false if it exists.
fn insert_run(connection: &Connection, run: &Run) -> Result<bool, StoreError> {
    let spec = run.spec();
    let unchanging: [Value; 7] = [
        id_bytes(&run.id()).to_vec().into(),
        spec.tenant.as_str().to_owned().into(),
        spec.request_id.as_ref().map(|id| id.as_str().to_owned()).into(),
        spec.model.clone().into(),
        question(run).into(),
        stored(spec.accepted_at.unix_ms()).into(),
        stored(run.due_at().unix_ms()).into(),
    ];
    let columns = params_from_iter(unchanging.into_iter().chain(state(run)));
    Ok(execute(connection, INSERT_RUN, columns)? == 1)
}

/// Updates a run. Returns false if it does not have the version that the commit follows.
fn update_run(connection: &Connection, commit: &CommitRows) -> Result<bool, StoreError> {
    let run = &commit.run;
    let before: [Value; 3] = [
        id_bytes(&run.id()).to_vec().into(),
        commit.version_before.into(),
        stored(run.due_at().unix_ms()).into(),
    ];
    let columns = params_from_iter(before.into_iter().chain(state(run)));
    Ok(execute(connection, UPDATE_RUN, columns)? == 1)
}

/// The columns of a run that change: the version and all after it.
fn state(run: &Run) -> [Value; 12] {
    let RunSums { steps, cost, wasted, saved, fallbacks, lack } = RunSums::of(run);
    [
        stored(run.version()).into(),
        run.state().as_str().to_owned().into(),
        run.ended_at().map(|at| stored(at.unix_ms())).into(),
        steps.into(),
        stored(cost.nano_usd()).into(),
        stored(wasted.nano_usd()).into(),
        stored(saved.nano_usd()).into(),
        fallbacks.into(),
        run.is_unsettled().into(),
        lack.map(|lack| lack.failed_steps).into(),
        lack.map(|lack| lack.degraded).into(),
        lack.map(|lack| lack.refused).into(),
    ]
}

/// Why a commit was not written: its run exists, which needs no capacity, or has another version, or a budget has a shortage.
fn unwritten(
    connection: &Connection,
    commit: &CommitRows,
    shortage: Option<Shortage>,
) -> Result<Result<Appended, Unwritten>, StoreError> {
    let over_budget = shortage.map(Unwritten::OverBudget);
    if commit.is_first {
        let existing = find(connection, &commit.run)?;
        let vanished = || unavailable(rusqlite::Error::QueryReturnedNoRows);
        return existing.map(Ok).or(over_budget.map(Err)).ok_or_else(vanished);
    }
    let current: Option<i64> =
        value(connection, READ_VERSION, params![id_bytes(&commit.run.id()), commit.version_before])?;
    Ok(Err(over_budget.filter(|_| current.is_some()).unwrap_or(Unwritten::Conflict)))
}

/// The existing run, if there is one.
fn find(connection: &Connection, run: &Run) -> Result<Option<Appended>, StoreError> {
    let (own, spec) = (run.id(), run.spec());
    let wanted =
        params![id_bytes(&own), spec.tenant.as_str(), spec.request_id.as_ref().map(RequestId::as_str)];
    let found = row(connection, FIND_RUN, wanted, |row| run_id(row, "id"))?;
    Ok(found.map(|found| if found == own { Appended::Already } else { Appended::Existing(found) }))
}

fn insert_events(connection: &Connection, commit: &CommitRows) -> Result<(), StoreError> {
    let id = commit.run.id();
    for EventToStore { sequence, at_ms, kind, data } in &commit.events {
        execute(connection, INSERT_EVENT, params![id_bytes(&id), sequence, at_ms, kind, FORMAT, data])?;
    }
    Ok(())
}

fn upsert_tasks(connection: &Connection, commit: &CommitRows) -> Result<(), StoreError> {
    let (id, tenant) = (commit.run.id(), commit.run.spec().tenant.as_str());
    for row in &commit.tasks {
        let TaskRow { task, state, lane, ready_ms, told_until_ms, claim, process, lease_until_ms } = row;
        let claim = claim.as_ref().map(|claim| &claim.as_uuid().as_bytes()[..]);
        let process = process.as_ref().map(|process| &process.as_uuid().as_bytes()[..]);
        let id = id_bytes(&id);
        let columns =
            params![id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms];
        execute(connection, UPSERT_TASK, columns)?;
    }
    Ok(())
}
