//! Reads runs, events and lists of runs.

use std::collections::{BTreeMap, HashMap};

use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::run::{Run, SequencedEvent};
use podium_ports::store::{Lack, RunFilter, RunSummary, RunSums, StoreError, ToLoad};
use podium_store_format::{Damage, StoredEvents, stored, time, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::{Call, Standby};

pub(crate) async fn load(store: &Store, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
    // A run may occur twice in the request.
    let wanted: BTreeMap<_, _> = runs.iter().map(|run| (run.id, run.known.as_deref())).collect();
    let mut loaded = HashMap::with_capacity(wanted.len());
    let diverged = load_into(store, &wanted, &mut loaded).await?;
    load_into(store, &diverged.into_iter().map(|id| (id, None)).collect(), &mut loaded).await?;
    Ok(runs.iter().map(|run| loaded.get(&run.id).cloned()).collect())
}

/// Loads runs, some of them on the basis of known versions. Returns the runs whose stored history lacks the known version.
async fn load_into(
    store: &Store,
    wanted: &BTreeMap<RunId, Option<&Run>>,
    loaded: &mut HashMap<RunId, Run>,
) -> Result<Vec<RunId>, StoreError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut diverged = Vec::new();
    let rows = store.call(&Load::new(wanted)).await?;
    for rows in rows.chunk_by(|a, b| a.run_id == b.run_id) {
        let Some(first) = rows.first() else { continue };
        let id = RunId::new(first.run_id);
        match replay(id, wanted.get(&id).copied().flatten(), rows)? {
            Some(run) if stored(run.version()) == first.version => drop(loaded.insert(id, run)),
            Some(run) => return Err(Damage::Version { version: first.version, last: run.version() }.of(id)),
            None => diverged.push(id),
        }
    }
    Ok(diverged)
}

/// Folds a run from the rows of all its events, or from the known version and the rows from its last event on. `None` if the stored
/// history lacks the known version.
fn replay(id: RunId, known: Option<&Run>, rows: &[LoadedRow]) -> Result<Option<Run>, StoreError> {
    let mut events = Vec::new();
    for stored in rows.iter().filter_map(LoadedRow::events) {
        stored.read(id, &mut events)?;
    }
    let illegal = |illegal| StoreError::illegal(id, illegal);
    let Some(known) = known else { return Run::replay(id, &events).map(Some).map_err(illegal) };
    let is_last_known =
        |event: &SequencedEvent| event.sequence == known.version() && event.at == known.changed_at();
    if !events.iter().any(is_last_known) {
        return Ok(None);
    }
    let mut run = known.clone();
    let mut newer = events.iter().filter(|event| event.sequence > known.version());
    newer.try_for_each(|event| run.apply(event)).map_err(illegal)?;
    Ok(Some(run))
}

pub(crate) async fn events(
    store: &Store,
    run: RunId,
    after: u64,
    limit: u32,
) -> Result<Vec<SequencedEvent>, StoreError> {
    let rows = store.call(&ReadEvents { run: *run.as_uuid(), after: stored(after), limit }).await?;
    let mut events = Vec::new();
    for EventsRow { first_sequence, last_sequence, format, data } in rows {
        StoredEvents { first_sequence, last_sequence, format: format.into(), data: &data }
            .read(run, &mut events)?;
    }
    events.retain(|event| event.sequence > after);
    events.truncate(limit as usize);
    Ok(events)
}

pub(crate) async fn list(
    store: &Store,
    tenant: &TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunSummary>, StoreError> {
    let (first, end) = filter.ids(before);
    let list = List {
        tenant: tenant.as_str(),
        first: first.map_or(Uuid::nil(), |run| *run.as_uuid()),
        // No run has the largest UUID, whose version does not exist.
        end: end.map_or(Uuid::max(), |run| *run.as_uuid()),
        states: filter.states.iter().map(|state| state.as_str()).collect(),
        tier: filter.tier.map(Tier::model),
        model: filter.model.as_deref(),
        limit,
    };
    let rows = store.call(&list).await?;
    rows.into_iter().map(SummaryRow::read).collect()
}

pub(crate) async fn ping(store: &Store) -> Result<(), StoreError> {
    let is_standby = store.call(&Ping).await?;
    if is_standby { Err(StoreError::Unavailable(Box::new(Standby))) } else { Ok(()) }
}

struct Load {
    runs: Vec<Uuid>,
    known_versions: Vec<i64>,
}

impl Load {
    fn new(wanted: &BTreeMap<RunId, Option<&Run>>) -> Self {
        let versions = wanted.values().map(|known| known.map_or(0, |run| stored(run.version())));
        Self { runs: wanted.keys().map(|run| *run.as_uuid()).collect(), known_versions: versions.collect() }
    }
}

/// The events of a commit with their run; or only the run, if it has no events.
struct LoadedRow {
    run_id: Uuid,
    version: i64,
    first_sequence: Option<i64>,
    last_sequence: Option<i64>,
    format: Option<i16>,
    data: Option<String>,
}

impl LoadedRow {
    fn events(&self) -> Option<StoredEvents<'_>> {
        let (first_sequence, last_sequence) = (self.first_sequence?, self.last_sequence?);
        let (format, data) = (self.format?.into(), self.data.as_deref()?);
        Some(StoredEvents { first_sequence, last_sequence, format, data })
    }
}

impl Call for Load {
    type Answer = Vec<LoadedRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { runs, known_versions } = self;
        sqlx::query_file_as!(LoadedRow, "queries/load_runs.sql", runs, known_versions)
            .fetch_all(connection)
            .await
    }
}

struct ReadEvents {
    run: Uuid,
    after: i64,
    limit: u32,
}

struct EventsRow {
    first_sequence: i64,
    last_sequence: i64,
    format: i16,
    data: String,
}

impl Call for ReadEvents {
    type Answer = Vec<EventsRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { run, after, limit } = self;
        sqlx::query_file_as!(EventsRow, "queries/read_events.sql", run, after, i64::from(*limit))
            .fetch_all(connection)
            .await
    }
}

struct List<'l> {
    tenant: &'l str,
    /// The smallest id of the list.
    first: Uuid,
    /// The smallest id beyond the list.
    end: Uuid,
    /// Empty: any.
    states: Vec<&'static str>,
    tier: Option<&'static str>,
    model: Option<&'l str>,
    limit: u32,
}

struct SummaryRow {
    id: Uuid,
    tenant: String,
    model: String,
    state: String,
    question: String,
    steps: i64,
    cost_nano_usd: i64,
    wasted_nano_usd: i64,
    saved_nano_usd: i64,
    fallbacks: i64,
    failed_steps: Option<i64>,
    degraded: Option<bool>,
    refused: Option<bool>,
    accepted_ms: i64,
    ended_ms: Option<i64>,
}

impl SummaryRow {
    fn read(self) -> Result<RunSummary, StoreError> {
        let id = RunId::new(self.id);
        let tenant = TenantId::new(self.tenant)
            .map_err(|invalid| Damage::Column { column: "runs.tenant", value: invalid.name }.of(id))?;
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        let lack = |failed_steps| {
            Some(Lack { failed_steps: count(failed_steps), degraded: self.degraded?, refused: self.refused? })
        };
        Ok(RunSummary {
            id,
            tenant,
            model: self.model,
            state: self.state,
            question: self.question,
            sums: RunSums {
                steps: count(self.steps),
                cost: cost(self.cost_nano_usd),
                wasted: cost(self.wasted_nano_usd),
                saved: cost(self.saved_nano_usd),
                fallbacks: count(self.fallbacks),
                lack: self.failed_steps.and_then(lack),
            },
            accepted_at: time(self.accepted_ms),
            ended_at: self.ended_ms.map(time),
        })
    }
}

impl Call for List<'_> {
    type Answer = Vec<SummaryRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { tenant, first, end, states, tier, model, limit } = self;
        sqlx::query_file_as!(
            SummaryRow,
            "queries/list_runs.sql",
            tenant,
            first,
            end,
            states as &[&str],
            *tier,
            *model,
            i64::from(*limit),
        )
        .fetch_all(connection)
        .await
    }
}

/// Returns whether the server is a standby.
struct Ping;

impl Call for Ping {
    type Answer = bool;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        Ok(sqlx::query_file!("queries/ping.sql").fetch_one(connection).await?.is_standby)
    }
}
