//! Builds the engine on the embedded adapters and runs it in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::conversation::Conversation;
use podium_domain::ids::VendorId;
use podium_domain::policy::{FailedStep, Policy, STEPS_MAX};
use podium_domain::pool::Pool;
use podium_engine::{CallParts, Engine, LoopEnded, Options, Parts, Work};
use podium_memory::{LiveOptions, MemoryCache, MemoryLimiter, MemoryLive, MemoryQueue, QueueOptions};
use podium_planning::{Callees, ConductorChoice, ConductorChoices};
use podium_ports::BoxError;
use podium_ports::cache::StepCache;
use podium_ports::clock::Clock;
use podium_ports::conductor::{Abilities, ConductorError, Conductors, PlanOutcome, TextSink};
use podium_ports::conductor_profile::{ConductorProfile, ConductorProfiles};
use podium_ports::limiter::Limiter;
use podium_ports::objects::Objects;
use podium_ports::run_traces::RunTraces;
use podium_ports::store::RunStore;
use podium_ports::vendor::Vendors;
use podium_server::Authenticator;
use podium_setup::{RandomIds, SystemClock, log_pool_change};
use podium_store_sqlite::{Durability, Options as StoreOptions, Store};
use podium_vendors::{EnvironmentKeys, HttpVendors};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::OPEN_BUNDLE;
use crate::data_dir::{DataDir, DataDirError};
use crate::error::Error;
use crate::pool::{self, Pace, Workers};
use crate::settings::{PoolChoice, Settings, instance};

/// Share of the drain time, in tenths, that the engine gets after the servers have stopped.
pub(crate) const ENGINE_DRAIN_TENTHS: u32 = 3;

/// How long runs with given plans are kept after their end, so that their store stays small.
const GIVEN_PLANS_KEPT: Duration = Duration::from_secs(30);

/// An engine in this process with its adapters.
pub(crate) struct Embedded {
    engine: Engine,
    /// The parts of the engine, for others with another pool.
    parts: Parts,
    /// The engine's work; none if it only reads.
    work: Work,
    notices: Vec<String>,
    /// Vendors whose keys are all missing.
    keyless: Vec<VendorId>,
    stop: CancellationToken,
    loops: JoinSet<Result<(), LoopEnded>>,
    store: Store,
    workers: Workers,
    /// The pool as its file has it; the engine's also has the workers of earlier files.
    file: Arc<Pool>,
    /// Dropped last, after the store is closed.
    _data: Data,
}

/// The folder that keeps the runs.
enum Data {
    Kept(DataDir),
    Thrown { _folder: TempDir, dir: DataDir },
}

impl Data {
    fn dir(&self) -> &DataDir {
        match self {
            Self::Kept(dir) | Self::Thrown { dir, .. } => dir,
        }
    }

    fn kept(path: &Path) -> Result<Self, Error> {
        Ok(Self::Kept(DataDir::open(path)?))
    }

    fn thrown() -> Result<Self, Error> {
        let refused = |source| DataDirError::Refused { path: std::env::temp_dir(), source };
        let folder = tempfile::Builder::new().prefix("podium-").tempdir().map_err(refused)?;
        let dir = DataDir::open(folder.path())?;
        Ok(Self::Thrown { _folder: folder, dir })
    }
}

impl Embedded {
    /// An engine on the data folder of the settings. It continues the runs that a dead process left there, and records ended runs in
    /// `traces`.
    pub(crate) async fn start(
        settings: &Settings,
        pace: Pace,
        traces: Option<Arc<dyn RunTraces>>,
    ) -> Result<Self, Error> {
        let workers = pool::open(&settings.pool, pace).await?;
        let embedded = Self::build(settings, Data::kept(&settings.data)?, workers, traces).await?;
        // The lock on the data folder guarantees that no other process works on these runs.
        embedded.engine.take_over().await?;
        Ok(embedded.working())
    }

    /// An engine on a temporary folder, which is removed when it stops.
    pub(crate) async fn start_apart(settings: &Settings, pace: Pace) -> Result<Self, Error> {
        Ok(Self::start_idle(settings, pace).await?.working())
    }

    /// The same without loops: only planning works.
    pub(crate) async fn start_idle(settings: &Settings, pace: Pace) -> Result<Self, Error> {
        let workers = pool::open(&settings.pool, pace).await?;
        Self::build(settings, Data::thrown()?, workers, None).await
    }

    /// An engine without a conductor on a temporary folder, for runs whose plans are given. It removes runs soon after their end, and
    /// calls up to `in_flight` workers of each vendor concurrently.
    pub(crate) async fn start_for_given_plans(
        settings: &Settings,
        pace: Pace,
        in_flight: usize,
    ) -> Result<Self, Error> {
        let workers = pool::open(&settings.pool, pace).await?;
        let pool = workers.pool();
        let vendors = HttpVendors::new(pool, &EnvironmentKeys).map_err(|e| Error::Vendors(Box::new(e)))?;
        let notices = notices(&workers, &vendors);
        let limiter: Arc<dyn Limiter> = Arc::new(MemoryLimiter::new(Arc::new(SystemClock)));
        let calls = CallParts { limiter, cache: None, vendors: Arc::new(vendors) };
        let abilities = Abilities { steps_max: STEPS_MAX, rounds_max: 1, failed_step: FailedStep::Fail };
        let profiles = ConductorProfile::new("given-plans".to_owned(), abilities).into();
        let step_slots = Some(settings.step_slots(pool).max(in_flight));
        let settings = Settings { runs_kept: Some(GIVEN_PLANS_KEPT), step_slots, ..settings.clone() };
        let embedded = Self::open(&settings, Data::thrown()?, workers, profiles, None).await?;
        let work = Work { plan: None, execute: Some(calls) };
        Ok(Self { work, notices, ..embedded }.working())
    }

    /// An engine on the data folder of the settings that only reads: it neither plans nor runs anything.
    pub(crate) async fn open_to_read(settings: &Settings) -> Result<Self, Error> {
        let workers = Workers::unopened(pool::read(&settings.pool)?);
        let choices = ConductorChoices::one(ConductorChoice::Direct(None));
        let conductors = podium_planning::describe_all(&choices, workers.pool())?;
        Self::open(settings, Data::kept(&settings.data)?, workers, conductors, None).await
    }

    async fn build(
        settings: &Settings,
        data: Data,
        workers: Workers,
        traces: Option<Arc<dyn RunTraces>>,
    ) -> Result<Self, Error> {
        let pool = workers.pool();
        let vendors = HttpVendors::new(pool, &EnvironmentKeys).map_err(|e| Error::Vendors(Box::new(e)))?;
        let mut notices = notices(&workers, &vendors);
        let keyless = vendors.without_keys().cloned().collect();
        let vendors: Arc<dyn Vendors> = Arc::new(vendors);
        let limiter: Arc<dyn Limiter> = Arc::new(MemoryLimiter::new(Arc::new(SystemClock)));
        let callees = Callees { vendors: Arc::clone(&vendors), limiter: Some(Arc::clone(&limiter)) };
        let (choices, limits) = (&settings.conductors, settings.local);
        let chosen = podium_planning::choose_all(choices, pool, &callees, OPEN_BUNDLE, limits).await?;
        notices.extend(chosen.notices);
        let cache = settings.step_cache.map(|options| -> Arc<dyn StepCache> {
            Arc::new(MemoryCache::new(Arc::new(SystemClock), options))
        });
        let calls = CallParts { limiter, cache, vendors };
        let profiles = ConductorProfile::of_all(&chosen.conductors);
        let work = Work { plan: Some(chosen.conductors), execute: Some(calls) };
        let embedded = Self::open(settings, data, workers, profiles, traces).await?;
        Ok(Self { work, notices, keyless, ..embedded })
    }

    /// An engine without work.
    async fn open(
        settings: &Settings,
        data: Data,
        workers: Workers,
        conductors: ConductorProfiles,
        traces: Option<Arc<dyn RunTraces>>,
    ) -> Result<Self, Error> {
        let pool = Arc::clone(workers.pool());
        let options = options(settings, &pool);
        let durability = match &data {
            Data::Kept(_) => Durability::Synced,
            Data::Thrown { .. } => Durability::Unsynced,
        };
        let store = open_store(data.dir(), &options, durability).await?;
        let parts = Parts {
            traces,
            ..parts(Arc::new(store.clone()), Arc::new(SystemClock), conductors, pool, &options)
        };
        let (engine, file) = (Engine::new(parts.clone(), options), Arc::clone(&parts.pool));
        Ok(Self {
            engine,
            parts,
            work: Work::default(),
            notices: Vec::new(),
            keyless: Vec::new(),
            stop: CancellationToken::new(),
            loops: JoinSet::new(),
            store,
            workers,
            file,
            _data: data,
        })
    }

    fn working(mut self) -> Self {
        let (engine, work, stop) = (self.engine.clone(), self.work.clone(), self.stop.clone());
        self.loops.spawn(async move { engine.work(work, stop).await });
        self
    }

    /// Goes on with the pool of `choice`, if it differs from the current one: for new runs at once, while calls under way end as they
    /// began. Workers that it lacks stay callable for runs that were planned before. After an error nothing has changed.
    pub(crate) async fn use_pool(&mut self, settings: &Settings, choice: &PoolChoice) -> Result<(), Error> {
        let file = match choice {
            PoolChoice::File(_) => Arc::new(pool::read(choice)?),
            // It is part of the program.
            PoolChoice::Demo => return Ok(()),
        };
        let (Some(conductors), Some(calls)) = (&self.work.plan, &self.work.execute) else { return Ok(()) };
        if file == self.file {
            return Ok(());
        }
        let before = self.engine.pool();
        let pool = Arc::new((*file).clone().succeeding(&before));
        let vendors = HttpVendors::new(&pool, &EnvironmentKeys).map_err(|e| Error::Vendors(Box::new(e)))?;
        let warnings: Vec<_> = unpriced(&file).chain(vendors.missing_secrets()).collect();
        let vendors: Arc<dyn Vendors> = Arc::new(vendors);
        let callees = Callees { vendors: Arc::clone(&vendors), limiter: Some(Arc::clone(&calls.limiter)) };
        let (choices, limits) = (&settings.conductors, settings.local);
        let conductors =
            podium_planning::choose_all_again(conductors, choices, &pool, &callees, limits).await?;
        let profiles = ConductorProfile::of_all(&conductors);
        let options = options(settings, &pool);
        let parts = Parts { pool, conductors: profiles, ..self.parts.clone() };
        let work = Work { plan: Some(conductors), execute: Some(CallParts { vendors, ..calls.clone() }) };
        self.engine.replace(parts, options, work)?;
        for warning in warnings {
            warn!("{warning}");
        }
        log_pool_change(&before, &file);
        self.file = file;
        Ok(())
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Plans a question with the current conductor. Nothing is run or stored.
    pub(crate) async fn plan(
        &self,
        conversation: &Conversation,
        policy: Policy,
        text: TextSink<'_>,
    ) -> Result<PlanOutcome, ConductorError> {
        match &self.work.plan {
            Some(conductors) => self.engine.plan(conductors.current(), conversation, policy, text).await,
            None => Err(ConductorError::Absent { id: self.engine.conductor_id() }),
        }
    }

    /// The objects of clients besides runs.
    pub(crate) fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.store.clone())
    }

    /// The check of callers' keys.
    pub(crate) fn access(&self, keys_required: bool) -> Authenticator {
        Authenticator::new(Arc::new(self.store.clone()), Arc::new(SystemClock), keys_required)
    }

    /// The workers whose vendor's key is set or not needed; `None` if these are all workers.
    pub(crate) fn workers_with_keys(&self) -> Result<Option<Vec<String>>, Error> {
        if self.keyless.is_empty() {
            return Ok(None);
        }
        let workers = self.workers.pool().workers().iter();
        let usable = workers.filter(|worker| !self.keyless.contains(&worker.vendor));
        let usable: Vec<_> = usable.map(|worker| worker.id.as_str().to_owned()).collect();
        if usable.is_empty() {
            return Err(Error::NoKeys { pool: self.workers.pool().version() });
        }
        Ok(Some(usable))
    }

    /// Messages that the user should read before trusting an answer.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Waits until the loops end without having been stopped, and gives the reason.
    pub(crate) async fn broke_down(&mut self) -> BoxError {
        match self.loops.join_next().await {
            None => std::future::pending().await,
            Some(Err(panic)) => panic.into(),
            Some(Ok(Err(ended))) => ended.into(),
            Some(Ok(Ok(()))) => "the engine's loops ended without an error".into(),
        }
    }

    /// Finishes or hands back the work under way, and closes everything.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.loops.join_next().await.is_some() {}
        for conductor in self.work.plan.iter().flat_map(Conductors::all) {
            conductor.shut_down().await;
        }
        drop((self.engine, self.parts));
        self.store.close().await;
        self.workers.close().await;
    }
}

fn notices(workers: &Workers, vendors: &HttpVendors) -> Vec<String> {
    let mut notices = Vec::new();
    if workers.are_simulated() {
        let pool = workers.pool().version();
        notices.push(format!(
            "the workers of pool {pool} are simulated by small programs in this process, at made-up prices; --pool FILE names real \
             ones"
        ));
    }
    notices.extend(unpriced(workers.pool()));
    notices.extend(vendors.missing_secrets());
    notices
}

/// A sentence for each worker that cannot be called yet.
fn unpriced(pool: &Pool) -> impl Iterator<Item = String> {
    pool.unpriced_at(SystemClock.now()).map(|worker| {
        format!("worker `{}` has no price list that is valid yet: it cannot be called", worker.id)
    })
}

/// The options of an engine with this pool.
fn options(settings: &Settings, pool: &Pool) -> Options {
    Options {
        executor: instance(),
        plan_slots: settings.plan_slots(),
        step_slots: settings.step_slots(pool),
        runs_kept: settings.runs_kept,
        drain: settings.drain * ENGINE_DRAIN_TENTHS / 10,
        ..Options::default()
    }
}

async fn open_store(data: &DataDir, options: &Options, durability: Durability) -> Result<Store, Error> {
    let path = data.database();
    let store_options =
        StoreOptions { dispatch_grace: options.dispatch_grace, durability, ..StoreOptions::default() };
    Store::open(&path, store_options).await.map_err(|e| Error::Open { path, source: Box::new(e) })
}

/// An engine that cancels and expires runs of any store, and neither plans nor calls. Other processes on the store learn of the
/// changes from the store itself.
pub(crate) fn repairing(store: Arc<dyn RunStore>, clock: Arc<dyn Clock>) -> Result<Engine, Error> {
    let pool = Arc::new(pool::read(&PoolChoice::Demo)?);
    let choices = ConductorChoices::one(ConductorChoice::Direct(None));
    let conductors = podium_planning::describe_all(&choices, &pool)?;
    let options = Options { executor: instance(), ..Options::default() };
    Ok(Engine::new(parts(store, clock, conductors, pool, &options), options))
}

fn parts(
    store: Arc<dyn RunStore>,
    clock: Arc<dyn Clock>,
    conductors: ConductorProfiles,
    pool: Arc<Pool>,
    options: &Options,
) -> Parts {
    // A lane holds more messages than it has slots, so that no slot waits for the store.
    let lane_messages_max = QueueOptions::default().lane_messages_max.max(2 * options.step_slots);
    let queue_options = QueueOptions { lane_messages_max, ..QueueOptions::default() };
    Parts {
        store,
        queue: Arc::new(MemoryQueue::new(Arc::clone(&clock), queue_options)),
        live: Arc::new(MemoryLive::new(LiveOptions::default())),
        conductors,
        clock,
        ids: Arc::new(RandomIds),
        pool,
        traces: None,
    }
}
