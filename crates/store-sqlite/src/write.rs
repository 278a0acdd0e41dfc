//! Creating runs and appending to them, each batch in one transaction.

use podium_domain::ids::RequestId;
use podium_domain::run::Run;
use podium_ports::store::{Commit, Conflict, Created, StoreError};
use podium_ports::stored::{EventToStore, FORMAT, stored};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Sqlite, Transaction};

use crate::Store;
use crate::row::{CommitRows, TaskRow, id_bytes, question, run_id, steps, unavailable};

pub(crate) const INSERT_RUN: &str = "-- insert_run
INSERT INTO runs (id, tenant, request_id, model, state, question, version, steps, cost_nano_usd, accepted_ms,
                  deadline_ms, ended_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT DO NOTHING";

pub(crate) const FIND_RUN: &str = "-- find_run
SELECT id FROM runs WHERE id = ?1 OR (tenant = ?2 AND request_id = ?3) LIMIT 1";

pub(crate) const UPDATE_RUN: &str = "-- update_run
UPDATE runs SET version = ?3, state = ?4, steps = ?5, cost_nano_usd = ?6, ended_ms = ?7 WHERE id = ?1 AND version = ?2";

pub(crate) const INSERT_EVENT: &str = "-- insert_event
INSERT INTO run_events (run_id, sequence, at_ms, kind, format, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

// A task that stays what it was keeps its times: they may have been moved since, by extending the lease or by telling of it. A
// task that became ready anew within one commit stays ready, from a later time. `WHERE TRUE` tells the parser that
// `ON CONFLICT` does not belong to a join.
pub(crate) const UPSERT_TASKS: &str = "-- upsert_tasks
INSERT INTO tasks (run_id, task, state, lane, tenant, ready_ms, told_until_ms, claim, lease_until_ms)
SELECT unhex(value ->> 'run'), value ->> 'task', value ->> 'state', value ->> 'lane', value ->> 'tenant',
       value ->> 'ready_ms', value ->> 'told_until_ms', unhex(value ->> 'claim'), value ->> 'lease_until_ms'
FROM json_each(?1)
WHERE TRUE
ON CONFLICT (run_id, task) DO UPDATE SET
    state = excluded.state,
    lane = excluded.lane,
    ready_ms = excluded.ready_ms,
    told_until_ms = excluded.told_until_ms,
    claim = excluded.claim,
    lease_until_ms = excluded.lease_until_ms
WHERE state <> excluded.state OR claim IS NOT excluded.claim OR ready_ms < excluded.ready_ms";

pub(crate) async fn create(store: &Store, runs: &[Commit]) -> Result<Vec<Created>, StoreError> {
    let rows = runs.iter().map(CommitRows::new).collect::<Result<Vec<_>, _>>()?;
    let mut transaction = begin(store).await?;
    let (mut created, mut new) = (Vec::with_capacity(rows.len()), Vec::new());
    for commit in &rows {
        let is_new = insert_run(&mut transaction, commit).await?;
        if is_new {
            insert_events(&mut transaction, commit).await?;
            new.push(commit.commit);
        }
        created.push(if is_new { Created::New } else { existing(&mut transaction, commit.run).await? });
    }
    upsert_tasks(store, &mut transaction, &new).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(created)
}

pub(crate) async fn commit(
    store: &Store,
    commits: &[Commit],
) -> Result<Vec<Result<(), Conflict>>, StoreError> {
    let rows = commits.iter().map(CommitRows::new).collect::<Result<Vec<_>, _>>()?;
    let mut transaction = begin(store).await?;
    let (mut results, mut written) = (Vec::with_capacity(rows.len()), Vec::new());
    for commit in &rows {
        let is_written = if commit.commit.is_first() {
            insert_run(&mut transaction, commit).await?
        } else {
            update_run(&mut transaction, commit).await?
        };
        if is_written {
            insert_events(&mut transaction, commit).await?;
            written.push(commit.commit);
        }
        results.push(if is_written { Ok(()) } else { Err(Conflict) });
    }
    upsert_tasks(store, &mut transaction, &written).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(results)
}

/// Takes the write lock at once: a transaction that begins to read and wants to write later can be refused without waiting.
pub(crate) async fn begin(store: &Store) -> Result<Transaction<'static, Sqlite>, StoreError> {
    store.writer.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)
}

/// Whether it was not there.
pub(crate) async fn insert_run(
    connection: &mut SqliteConnection,
    commit: &CommitRows<'_>,
) -> Result<bool, StoreError> {
    let (run, spec) = (commit.run, commit.run.spec());
    let id = run.id();
    let inserted = sqlx::query(INSERT_RUN)
        .bind(id_bytes(&id))
        .bind(spec.tenant.as_str())
        .bind(spec.request_id.as_ref().map(RequestId::as_str))
        .bind(&spec.model)
        .bind(run.state().as_str())
        .bind(question(run))
        .bind(stored(run.version()))
        .bind(steps(run))
        .bind(stored(run.cost().nano_usd()))
        .bind(stored(spec.accepted_at.unix_ms()))
        .bind(stored(spec.deadline_at.unix_ms()))
        .bind(run.ended_at().map(|at| stored(at.unix_ms())))
        .execute(connection)
        .await
        .map_err(unavailable)?;
    Ok(inserted.rows_affected() == 1)
}

/// Which run was there: the very same, when a caller asks again, or the one that has the request id.
pub(crate) async fn existing(connection: &mut SqliteConnection, run: &Run) -> Result<Created, StoreError> {
    find(connection, run).await?.ok_or_else(|| unavailable(sqlx::Error::RowNotFound))
}

/// The same, if there is one.
pub(crate) async fn find(
    connection: &mut SqliteConnection,
    run: &Run,
) -> Result<Option<Created>, StoreError> {
    let (own, spec) = (run.id(), run.spec());
    let row = sqlx::query(FIND_RUN)
        .bind(id_bytes(&own))
        .bind(spec.tenant.as_str())
        .bind(spec.request_id.as_ref().map(RequestId::as_str))
        .fetch_optional(connection)
        .await
        .map_err(unavailable)?;
    let found = row.map(|row| run_id(&row, "id")).transpose()?;
    Ok(found.map(|found| if found == own { Created::New } else { Created::Existing(found) }))
}

/// Whether the run was at the version that the commit follows.
pub(crate) async fn update_run(
    connection: &mut SqliteConnection,
    commit: &CommitRows<'_>,
) -> Result<bool, StoreError> {
    let run = commit.run;
    let id = run.id();
    let updated = sqlx::query(UPDATE_RUN)
        .bind(id_bytes(&id))
        .bind(commit.version_before)
        .bind(stored(run.version()))
        .bind(run.state().as_str())
        .bind(steps(run))
        .bind(stored(run.cost().nano_usd()))
        .bind(run.ended_at().map(|at| stored(at.unix_ms())))
        .execute(connection)
        .await
        .map_err(unavailable)?;
    Ok(updated.rows_affected() == 1)
}

pub(crate) async fn insert_events(
    connection: &mut SqliteConnection,
    commit: &CommitRows<'_>,
) -> Result<(), StoreError> {
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

pub(crate) async fn upsert_tasks(
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
