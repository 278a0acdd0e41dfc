//! Reads runs, events and lists of runs.

use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::run::{Run, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::store::{Lack, RunFilter, RunSummary, RunSums, StoreError};
use podium_store_format::{Damage, stored, time, unsigned};
use rusqlite::{Connection, Row, params};

use crate::Store;
use crate::row::{column, event, id_bytes, rows, run_id, unavailable, value};

// A run without events is damaged, not absent, hence the outer join.
pub(crate) const LOAD_RUN: &str = "-- load_run
SELECT version, sequence, at_ms, format, data
FROM runs LEFT JOIN run_events ON run_id = runs.id
WHERE runs.id = ?1
ORDER BY sequence";

pub(crate) const READ_EVENTS: &str = "-- read_events
SELECT sequence, at_ms, format, data FROM run_events WHERE run_id = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";

pub(crate) const LIST_RUNS: &str = "-- list_runs
SELECT id, tenant, model, state, question, steps, cost_nano_usd, wasted_nano_usd, saved_nano_usd, fallbacks,
       failed_steps, degraded, refused, accepted_ms, ended_ms
FROM runs
WHERE tenant = ?1 AND id >= ?2 AND id < ?3
  AND (?4 IS NULL OR state IN (SELECT value FROM json_each(?4)))
  AND (?5 IS NULL OR model = ?5 OR substr(model, 1, length(?5) + 1) = ?5 || '@')
  AND (?6 IS NULL OR model = ?6)
ORDER BY id DESC LIMIT ?7";

pub(crate) const FIND_UNSETTLED: &str = "-- find_unsettled
SELECT id FROM runs WHERE unsettled AND id > ?1 AND ended_ms <= ?2 ORDER BY id LIMIT ?3";

/// Larger than every id, which has one byte less.
const AFTER_ALL_IDS: [u8; 17] = [0xff; 17];

pub(crate) async fn load(store: &Store, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let runs = runs.to_vec();
    store.read(move |connection| runs.iter().map(|run| load_one(connection, *run)).collect()).await
}

/// Folds a run from all its events.
fn load_one(connection: &Connection, id: RunId) -> Result<Option<Run>, StoreError> {
    let mut statement = connection.prepare_cached(LOAD_RUN).map_err(unavailable)?;
    let mut rows = statement.query([id_bytes(&id)]).map_err(unavailable)?;
    let (mut version, mut events) = (None, Vec::new());
    while let Some(row) = rows.next().map_err(unavailable)? {
        version = Some(column(row, "version")?);
        if column::<Option<i64>>(row, "sequence")?.is_some() {
            events.push(event(id, row)?);
        }
    }
    let Some(version) = version else { return Ok(None) };
    let run = Run::replay(id, &events).map_err(|illegal| StoreError::illegal(id, illegal))?;
    if stored(run.version()) != version {
        return Err(Damage::Version { version, last: run.version() }.of(id));
    }
    Ok(Some(run))
}

pub(crate) async fn unsettled(
    store: &Store,
    ended_by: Timestamp,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    let find = move |connection: &Connection| {
        let after = after.as_ref().map_or(&[][..], id_bytes);
        let wanted = params![after, stored(ended_by.unix_ms()), limit];
        rows(connection, FIND_UNSETTLED, wanted, |row| run_id(row, "id"))
    };
    store.read(find).await
}

pub(crate) async fn events(
    store: &Store,
    run: RunId,
    after: u64,
    limit: u32,
) -> Result<Vec<SequencedEvent>, StoreError> {
    let read = move |connection: &Connection| {
        rows(connection, READ_EVENTS, params![id_bytes(&run), stored(after), limit], |row| event(run, row))
    };
    store.read(read).await
}

pub(crate) async fn list(
    store: &Store,
    tenant: &TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunSummary>, StoreError> {
    let (tenant, filter) = (tenant.clone(), filter.clone());
    let list = move |connection: &Connection| {
        let (first, end) = filter.ids(before);
        let wanted = params![
            tenant.as_str(),
            first.as_ref().map_or(&[][..], id_bytes),
            end.as_ref().map_or(&AFTER_ALL_IDS[..], id_bytes),
            states(&filter)?,
            filter.tier.map(Tier::model),
            filter.model,
            limit
        ];
        rows(connection, LIST_RUNS, wanted, summary)
    };
    store.read(list).await
}

/// The states of the filter as a JSON list; none for any state.
fn states(filter: &RunFilter) -> Result<Option<String>, StoreError> {
    if filter.states.is_empty() {
        return Ok(None);
    }
    let names: Vec<_> = filter.states.iter().map(|state| state.as_str()).collect();
    serde_json::to_string(&names).map(Some).map_err(|e| StoreError::Unavailable(Box::new(e)))
}

fn summary(row: &Row<'_>) -> Result<RunSummary, StoreError> {
    let id = run_id(row, "id")?;
    let cost = |name: &str| column(row, name).map(unsigned).map(Cost::from_nano_usd);
    let at_most = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    let tenant = TenantId::new(column::<String>(row, "tenant")?)
        .map_err(|invalid| Damage::Column { column: "runs.tenant", value: invalid.name }.of(id))?;
    let failed_steps: Option<i64> = column(row, "failed_steps")?;
    let (degraded, refused): (Option<bool>, Option<bool>) =
        (column(row, "degraded")?, column(row, "refused")?);
    let lack = |failed_steps| {
        Some(Lack { failed_steps: at_most(failed_steps), degraded: degraded?, refused: refused? })
    };
    Ok(RunSummary {
        id,
        tenant,
        model: column(row, "model")?,
        state: column(row, "state")?,
        question: column(row, "question")?,
        sums: RunSums {
            steps: at_most(column(row, "steps")?),
            cost: cost("cost_nano_usd")?,
            wasted: cost("wasted_nano_usd")?,
            saved: cost("saved_nano_usd")?,
            fallbacks: at_most(column(row, "fallbacks")?),
            lack: failed_steps.and_then(lack),
        },
        accepted_at: time(column(row, "accepted_ms")?),
        ended_at: column::<Option<i64>>(row, "ended_ms")?.map(time),
    })
}

pub(crate) async fn ping(store: &Store) -> Result<(), StoreError> {
    let ping = |connection: &Connection| value::<i64>(connection, "-- ping\nSELECT 1 FROM runs LIMIT 1", []);
    store.read(ping).await.map(drop)
}
