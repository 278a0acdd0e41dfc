//! Creates runs and appends to them, each batch in one transaction.

use podium_domain::budget::Shortage;
use podium_domain::ids::RequestId;
use podium_domain::run::Run;
use podium_ports::store::{Appended, Commit, RunSums, StoreError, Unwritten};
use podium_store_format::{EventToStore, FORMAT, stored};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Sqlite, Transaction};

use crate::Store;
use crate::charged::{book, shortage};
use crate::row::{CommitRows, TaskRow, id_bytes, question, run_id, unavailable};

type SqliteQuery<'q> = Query<'q, Sqlite, SqliteArguments>;

pub(crate) const INSERT_RUN: &str = "-- insert_run
INSERT INTO runs (id, tenant, request_id, model, question, accepted_ms, deadline_ms, version, state, ended_ms, steps,
                  cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks, hedges, unsettled, failed_steps, degraded,
                  refused)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, ?16, ?17, ?18, ?19)
ON CONFLICT DO NOTHING";

pub(crate) const FIND_RUN: &str = "-- find_run
SELECT id FROM runs WHERE id = ?1 OR (tenant = ?2 AND request_id = ?3) LIMIT 1";

pub(crate) const UPDATE_RUN: &str = "-- update_run
UPDATE runs SET version = ?3, state = ?4, ended_ms = ?5, steps = ?6, cost_nano_usd = ?7, wasted_nano_usd = ?8,
                saved_nano_usd = ?9, fallbacks = ?10, unsettled = ?11, failed_steps = ?12, degraded = ?13, refused = ?14,
                deadline_ms = ?15
WHERE id = ?1 AND version = ?2";

pub(crate) const READ_VERSION: &str = "-- read_version
SELECT version FROM runs WHERE id = ?1 AND version = ?2";

pub(crate) const INSERT_EVENT: &str = "-- insert_event
INSERT INTO run_events (run_id, sequence, at_ms, kind, format, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

// A task that does not change keeps its times: it may have been published since. A task that became ready
// again within one commit stays ready, from a later time. `WHERE TRUE` tells the parser that `ON CONFLICT` does not belong to a
// join.
pub(crate) const UPSERT_TASKS: &str = "-- upsert_tasks
INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, process, lease_until_ms)
SELECT unhex(value ->> 'run'), value ->> 'task', value ->> 'state', value ->> 'lane', value ->> 'tenant',
       value ->> 'ready_ms', value ->> 'told_until_ms', unhex(value ->> 'claim'),
       unhex(value ->> 'process'), value ->> 'lease_until_ms'
FROM json_each(?1)
WHERE TRUE
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
    let rows = commits.iter().map(CommitRows::new).collect::<Result<Vec<_>, _>>()?;
    let mut transaction = begin(store).await?;
    let (mut results, mut written) = (Vec::with_capacity(rows.len()), Vec::new());
    for commit in &rows {
        let shortage = shortage(&mut transaction, commit.commit.booking()).await?;
        results.push(if shortage.is_none() && insert_or_update_run(&mut transaction, commit).await? {
            insert_events(&mut transaction, commit).await?;
            book(&mut transaction, commit.commit.booking()).await?;
            written.push(commit.commit);
            Ok(Appended::New)
        } else {
            unwritten(&mut transaction, commit, shortage).await?
        });
    }
    upsert_tasks(store, &mut transaction, &written).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(results)
}

/// Takes the write lock at once: a transaction that reads first and writes later can be refused without waiting.
pub(crate) async fn begin(store: &Store) -> Result<Transaction<'static, Sqlite>, StoreError> {
    store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)
}

/// Inserts a run. Returns false if it exists.
async fn insert_run(connection: &mut SqliteConnection, commit: &CommitRows<'_>) -> Result<bool, StoreError> {
    let (run, spec) = (commit.run, commit.run.spec());
    let id = run.id();
    let insert = sqlx::query(INSERT_RUN)
        .bind(id_bytes(&id))
        .bind(spec.tenant.as_str())
        .bind(spec.request_id.as_ref().map(RequestId::as_str))
        .bind(&spec.model)
        .bind(question(run))
        .bind(stored(spec.accepted_at.unix_ms()))
        .bind(stored(run.due_at().unix_ms()));
    let inserted = bind_state(insert, run).execute(connection).await.map_err(unavailable)?;
    Ok(inserted.rows_affected() == 1)
}

/// Updates a run. Returns false if it does not have the version that the commit follows.
async fn update_run(connection: &mut SqliteConnection, commit: &CommitRows<'_>) -> Result<bool, StoreError> {
    let id = commit.run.id();
    let update = sqlx::query(UPDATE_RUN).bind(id_bytes(&id)).bind(commit.version_before);
    let update = bind_state(update, commit.run).bind(stored(commit.run.due_at().unix_ms()));
    let updated = update.execute(connection).await.map_err(unavailable)?;
    Ok(updated.rows_affected() == 1)
}

/// The columns of a run that change: the version and all after it.
fn bind_state<'q>(query: SqliteQuery<'q>, run: &Run) -> SqliteQuery<'q> {
    let RunSums { steps, cost, wasted, saved, fallbacks, lack } = RunSums::of(run);
    query
        .bind(stored(run.version()))
        .bind(run.state().as_str())
        .bind(run.ended_at().map(|at| stored(at.unix_ms())))
        .bind(steps)
        .bind(stored(cost.nano_usd()))
        .bind(stored(wasted.nano_usd()))
        .bind(stored(saved.nano_usd()))
        .bind(fallbacks)
        .bind(run.is_unsettled())
        .bind(lack.map(|lack| lack.failed_steps))
        .bind(lack.map(|lack| lack.degraded))
        .bind(lack.map(|lack| lack.refused))
}

/// Writes a run. Returns false if it exists and does not have the version that the commit follows.
async fn insert_or_update_run(
    connection: &mut SqliteConnection,
    commit: &CommitRows<'_>,
) -> Result<bool, StoreError> {
    if commit.commit.is_first() {
        insert_run(connection, commit).await
    } else {
        update_run(connection, commit).await
    }
}

/// Why a commit was not written: its run exists, which needs no capacity, or has another version, or a budget has a shortage.
async fn unwritten(
    connection: &mut SqliteConnection,
    commit: &CommitRows<'_>,
    shortage: Option<Shortage>,
) -> Result<Result<Appended, Unwritten>, StoreError> {
    let over_budget = shortage.map(Unwritten::OverBudget);
    if commit.commit.is_first() {
        let existing = find(connection, commit.run).await?;
        let vanished = || unavailable(sqlx::Error::RowNotFound);
        return existing.map(Ok).or(over_budget.map(Err)).ok_or_else(vanished);
    }
    let id = commit.run.id();
    let read = sqlx::query(READ_VERSION).bind(id_bytes(&id)).bind(commit.version_before);
    let is_current = read.fetch_optional(connection).await.map_err(unavailable)?.is_some();
    Ok(Err(over_budget.filter(|_| is_current).unwrap_or(Unwritten::Conflict)))
}

/// The existing run, if there is one.
async fn find(connection: &mut SqliteConnection, run: &Run) -> Result<Option<Appended>, StoreError> {
    let (own, spec) = (run.id(), run.spec());
    let row = sqlx::query(FIND_RUN)
        .bind(id_bytes(&own))
        .bind(spec.tenant.as_str())
        .bind(spec.request_id.as_ref().map(RequestId::as_str))
        .fetch_optional(connection)
        .await
        .map_err(unavailable)?;
    let found = row.map(|row| run_id(&row, "id")).transpose()?;
    Ok(found.map(|found| if found == own { Appended::Already } else { Appended::Existing(found) }))
}

async fn insert_events(connection: &mut SqliteConnection, commit: &CommitRows<'_>) -> Result<(), StoreError> {
    let id = commit.run.id();
    for EventToStore { sequence, at_ms, kind, data } in &commit.events {
        sqlx::query(INSERT_EVENT)
            .bind(id_bytes(&id))
            .bind(*sequence)
            .bind(*at_ms)
            .bind(*kind)
            .bind(FORMAT)
            .bind(data.as_str())
            .execute(&mut *connection)
            .await
            .map_err(unavailable)?;
    }
    Ok(())
}

async fn upsert_tasks(
    store: &Store,
    connection: &mut SqliteConnection,
    commits: &[&Commit],
) -> Result<(), StoreError> {
    if commits.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = commits.iter().flat_map(|commit| TaskRow::all(commit, store.dispatch_grace)).collect();
    let rows = serde_json::to_string(&rows).map_err(|e| StoreError::Unavailable(Box::new(e)))?;
    sqlx::query(UPSERT_TASKS).bind(rows).execute(connection).await.map_err(unavailable)?;
    Ok(())
}
