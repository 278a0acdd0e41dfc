//! The lower layer of the engine: the ports and the components that the API and all loops use. It depends on neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::pool::Pool;
use podium_domain::run::Run;
use podium_domain::time::Timestamp;
use podium_ports::clock::Skew;
use podium_ports::store::{Appended, Commit, RunLog, StoreError, ToLoad, Unwritten};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::claims::leases::ClaimRegistry;
use crate::commit::{
    Bounds, Commands, Gathering, RunCache, RunCacheBounds, UnreadableRuns, WriterParts, serve_batches,
};
use crate::lanes::publisher::Publisher;
use crate::metrics::{Metrics, Observed};
use crate::options::Options;
use crate::parts::Parts;
use crate::upkeep::supervision::Supervision;

/// Interval between checks of a wrong wall clock.
const CLOCK_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Most runs that are loaded together: each may have some MB, and a whole batch is in memory.
const LOADS_MAX: usize = 16;
/// Most runs that are loaded for clients at the same time; further requests wait. Many clients may ask for long answers at once, and
/// a run's length is known only after it is loaded.
const CLIENT_LOADS_MAX: usize = 8;

/// The first commits of runs, which wait to be written.
pub(crate) type Creations = Gathering<Commit, Result<Appended, Unwritten>>;

/// The components that the API and the loops share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    options: Options,
    publisher: Publisher,
    leases: ClaimRegistry,
    run_cache: RunCache,
    commands: Commands,
    creations: Creations,
    charged_creations: Creations,
    loads: Gathering<ToLoad, Option<Run>>,
    client_loads: Semaphore,
    unreadable: UnreadableRuns,
    metrics: Metrics,
    /// Whether the process takes tasks from lanes.
    takes_tasks: AtomicBool,
}

impl Context {
    /// Builds the components. Commands, creations and loads get tasks of their own under `supervision`; they end with the last handle.
    /// Must be called inside a tokio runtime, after the process' meter is set.
    pub(crate) fn new(parts: Parts, options: Options, supervision: &Supervision, observed: Observed) -> Self {
        let metrics = Metrics::new(&parts.pool, parts.traces.clone(), observed);
        let run_cache = RunCache::new(RunCacheBounds {
            runs_max: options.run_cache_runs_max,
            bytes_max: options.run_cache_bytes_max,
        });
        let unreadable = UnreadableRuns::new(parts.clone(), run_cache.clone(), metrics.clone());
        let publisher = Publisher::new(parts.clone(), unreadable.clone(), metrics.clone());
        let leases = ClaimRegistry::new(parts.ids.process_id());
        let bounds = Bounds {
            batch: options.batch_commands_max,
            batches: options.batches_max,
            waiting: options.waiting_commands_max,
        };
        let writer = WriterParts {
            parts: parts.clone(),
            publisher: publisher.clone(),
            leases: leases.clone(),
            run_cache: run_cache.clone(),
            unreadable: unreadable.clone(),
            metrics: metrics.clone(),
        };
        let (commands, command_loop) = Commands::new(writer, bounds);
        let (creations, to_create) = Gathering::new(bounds);
        let (charged_creations, to_charge) = Gathering::new(bounds);
        let (loads, to_load) = Gathering::new(Bounds { batch: LOADS_MAX, ..bounds });
        let (tasks, log) = (TaskTracker::new(), || Arc::clone(&parts.store) as Arc<dyn RunLog>);
        let create = serve_batches(to_create, log(), |log, commits| log.append(commits));
        let charge = serve_batches(to_charge, log(), |log, commits| log.append(commits));
        let load = serve_batches(to_load, log(), |log, runs| log.load_newer(runs));
        tasks.spawn(supervision.clone().of("command", command_loop.run()));
        tasks.spawn(supervision.clone().of("creation", create));
        tasks.spawn(supervision.clone().of("charged creation", charge));
        tasks.spawn(supervision.clone().of("load", load));
        let shared = Shared {
            parts,
            options,
            publisher,
            leases,
            run_cache,
            commands,
            creations,
            charged_creations,
            loads,
            client_loads: Semaphore::new(CLIENT_LOADS_MAX),
            unreadable,
            metrics,
            takes_tasks: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.shared.parts.pool
    }

    pub(crate) fn publisher(&self) -> &Publisher {
        &self.shared.publisher
    }

    pub(crate) fn leases(&self) -> &ClaimRegistry {
        &self.shared.leases
    }

    pub(crate) fn run_cache(&self) -> &RunCache {
        &self.shared.run_cache
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.shared.commands
    }

    /// Where a run's first commit waits. Those with a booking wait apart, because only they wait for the locks of budgets.
    pub(crate) fn creations(&self, first: &Commit) -> &Creations {
        if first.booking().is_some() { &self.shared.charged_creations } else { &self.shared.creations }
    }

    pub(crate) fn unreadable(&self) -> &UnreadableRuns {
        &self.shared.unreadable
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.parts.clock.now()
    }

    /// Loads a run from the store.
    pub(crate) async fn run(&self, id: RunId) -> Result<Option<Run>, StoreError> {
        self.shared.loads.ask(self.shared.run_cache.to_load(id)).await
    }

    /// Loads a run for a client. The caller decides whether to keep it before it waits for anything else, so that at most
    /// [`CLIENT_LOADS_MAX`] runs are in memory that no other bound counts.
    pub(crate) async fn run_for_client(&self, id: RunId) -> Result<Option<Run>, StoreError> {
        // The semaphore is never closed.
        let _permit = self.shared.client_loads.acquire().await.ok();
        self.run(id).await
    }

    /// Whether the process takes tasks from lanes. If so, it caches the runs that it accepts, because it may soon work on them.
    pub(crate) fn takes_tasks(&self) -> bool {
        self.shared.takes_tasks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_takes_tasks(&self, takes_tasks: bool) {
        self.shared.takes_tasks.store(takes_tasks, Ordering::Relaxed);
    }

    /// The time after a claim in which a call for its step may still be in flight.
    pub(crate) fn longest_call(&self) -> Duration {
        let longest = self.pool().workers_and_retired().map(|worker| worker.limits.call_ms_max).max();
        Duration::from_millis(longest.unwrap_or_default()) + self.options().report_margin
    }

    /// Waits while the machine's wall clock deviates too far from the clock of the runs. The process takes no work meanwhile.
    pub(crate) async fn clock_is_right(&self) {
        let clock = &self.parts().clock;
        while clock.skew().is_some_and(Skew::is_excessive) {
            clock.sleep(CLOCK_CHECK_EVERY).await;
        }
    }
}
