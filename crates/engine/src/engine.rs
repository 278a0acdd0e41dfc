//! The engine's handle: everything that the servers may ask, and the loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::BoxStream;
use podium_domain::conversation::Conversation;
use podium_domain::ids::{ClaimId, RunId, TenantId};
use podium_domain::policy::Policy;
use podium_domain::pool::Pool;
use podium_domain::run::{Command, Run, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::clock::Skew;
use podium_ports::conductor::{ConductorError, PlanOutcome, TextSink};
use podium_ports::queue::Lane;
use podium_ports::store::{RunSummary, StoreError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::claims::leases::Holds;
use crate::commit::run_cache::{Bounds as KnownBounds, Known};
use crate::commit::store_batching::{self, ChargedCreations, Creations, Gathering, Loads};
use crate::commit::{Bounds, CommandError, Commands, Sides};
use crate::executor::Executor;
use crate::front::answer::{AnswerError, AnswerPart, answer};
use crate::front::history::{Reads, history};
use crate::front::submit::within_abilities;
use crate::front::watch::{Update, Wants, Watcher};
use crate::lanes::dispatcher::Dispatcher;
use crate::lanes::publisher::Dispatch;
use crate::lanes::task::Slots;
use crate::metrics::Metrics;
use crate::metrics::cache_counts::CacheCounts;
use crate::options::{Options, Parts, Roles};
use crate::planner::{MayRetry, Planner, Planning};
use crate::upkeep::retention::Remover;
use crate::upkeep::settler::Settler;
use crate::upkeep::supervision::{LoopEnded, Supervision};
use crate::upkeep::sweeper::Sweeper;
use crate::upkeep::unreadable::Unreadable;

/// How often it is looked whether the wall clock is right again.
const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs that are loaded at once: each may be some MB long, and a batch is in memory as a whole.
const LOADS_MAX: usize = 16;

/// The front half (accept, watch, read, cancel) and, through [`Engine::work`], the loops. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    options: Options,
    dispatch: Dispatch,
    holds: Holds,
    known: Known,
    commands: Commands,
    creations: Creations,
    charged_creations: ChargedCreations,
    loads: Loads,
    reads: Reads,
    unreadable: Unreadable,
    metrics: Metrics,
    supervision: Supervision,
    /// What goes on while nobody waits for it.
    background: TaskTracker,
    /// Whether its loops have begun to run.
    is_at_work: AtomicBool,
}

/// Why a run cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no such run.
    #[error("there is no such run")]
    UnknownRun,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Builds the engine. Must be called inside a tokio runtime: runs are created and loaded and commands are decided in tasks
    /// of their own, which end with the last handle. What it measures goes to the meter that the process has by then.
    pub fn new(parts: Parts, options: Options) -> Self {
        let metrics = Metrics::new(&parts.pool);
        let unreadable = Unreadable::new(parts.clone(), metrics.clone());
        let dispatch = Dispatch::new(parts.clone(), unreadable.clone(), metrics.clone());
        let holds = Holds::new(parts.ids.process_id());
        let known =
            Known::new(KnownBounds { runs_max: options.known_runs_max, bytes_max: options.known_bytes_max });
        let bounds = Bounds {
            batch: options.batch_commands_max,
            batches: options.batches_max,
            waiting: options.waiting_commands_max,
        };
        let sides = Sides {
            parts: parts.clone(),
            dispatch: dispatch.clone(),
            holds: holds.clone(),
            known: known.clone(),
            unreadable: unreadable.clone(),
            metrics: metrics.clone(),
        };
        let (commands, command_loop) = Commands::new(sides, bounds);
        let (creations, to_create) = Gathering::new(bounds);
        let (charged_creations, to_create_charged) = Gathering::new(bounds);
        let (loads, to_load) = Gathering::new(Bounds { batch: LOADS_MAX, ..bounds });
        let loops = TaskTracker::new();
        let supervision = Supervision::default();
        loops.spawn(supervision.clone().of("command", command_loop.run()));
        let create = store_batching::create(to_create, Arc::clone(&parts.store));
        loops.spawn(supervision.clone().of("creation", create));
        let create = store_batching::create_charged(to_create_charged, Arc::clone(&parts.store));
        loops.spawn(supervision.clone().of("charged creation", create));
        loops.spawn(supervision.clone().of("load", store_batching::load(to_load, Arc::clone(&parts.store))));
        let is_at_work = AtomicBool::new(false);
        let shared = Shared {
            parts,
            options,
            dispatch,
            holds,
            known,
            commands,
            creations,
            charged_creations,
            loads,
            reads: Reads::new(),
            unreadable,
            metrics,
            supervision,
            background: TaskTracker::new(),
            is_at_work,
        };
        Self { shared: Arc::new(shared) }
    }

    /// How often the step cache was of use to this process.
    pub fn cache_counts(&self) -> CacheCounts {
        self.metrics().cache().counts()
    }

    /// The workers.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.shared.parts.pool
    }

    /// The current conductor's name and version.
    pub fn conductor_id(&self) -> &str {
        self.shared.parts.conductors.current().id()
    }

    /// Name and version of each conductor, the current one first.
    pub fn conductor_ids(&self) -> impl Iterator<Item = &str> {
        self.shared.parts.conductors.all().map(|conductor| conductor.id())
    }

    /// A run as it is.
    pub async fn run(&self, id: RunId) -> Result<Option<Run>, StoreError> {
        self.shared.loads.ask(id).await
    }

    /// Takes a run back. A run that was taken back before is returned as it is.
    pub async fn cancel(&self, id: RunId) -> Result<Run, CommandError> {
        self.commands().send(id, Command::Cancel).await.map(|run| (*run).clone())
    }

    /// A tenant's runs, the newest first, those before `before` when given.
    pub async fn list(
        &self,
        tenant: &TenantId,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.parts().store.list(tenant, before, limit).await
    }

    /// All updates after event `after` (0: from the beginning): stored events without gaps, live text between them. Ends
    /// after the event that ends the run.
    pub async fn watch(
        &self,
        id: RunId,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Update, StoreError>>, WatchError> {
        Ok(Watcher::new(self.parts().clone(), id, after, Wants::Everything).await?.into_stream())
    }

    /// The stored events after event `after` of a run that has ended, up to the one that ended it. They are read while they are
    /// taken, so that a slow reader holds few of them.
    pub fn history(&self, id: RunId, after: u64) -> BoxStream<'static, Result<SequencedEvent, StoreError>> {
        history(self.parts().clone(), self.shared.reads.clone(), id, after)
    }

    /// The answer as it is written: texts that concatenate to the run's answer, then the run as it ended.
    pub async fn answer(
        &self,
        id: RunId,
    ) -> Result<BoxStream<'static, Result<AnswerPart, AnswerError>>, WatchError> {
        let updates = Watcher::new(self.parts().clone(), id, 0, Wants::Answer).await?.into_stream();
        Ok(answer(self.parts().clone(), id, updates))
    }

    /// Plans only, by the current conductor: nothing is run or stored.
    pub async fn plan(
        &self,
        conversation: &Conversation,
        policy: Policy,
        text: TextSink<'_>,
    ) -> Result<PlanOutcome, ConductorError> {
        let conductor = self.parts().conductors.current();
        let request = self.first_request(conversation, within_abilities(&**conductor, policy));
        let stop = CancellationToken::new();
        let (parts, conductor) = (self.parts(), Ok(conductor));
        let planning = Planning { parts, conductor, request: &request, is_of_tenant: false };
        planning.plan_or_fall_back(text, &stop, MayRetry::No).await
    }

    /// Whether it plans or executes: then it remembers the runs that it accepts, as it may soon work on them.
    pub fn is_at_work(&self) -> bool {
        self.shared.is_at_work.load(Ordering::Relaxed)
    }

    /// Takes over all that a process left behind that is known to be dead, as the only process on the store: claims are
    /// released and ready tasks published at once instead of after their leases.
    pub async fn take_over(&self) -> Result<(), StoreError> {
        Sweeper::new(self.clone()).take_over().await
    }

    /// Runs the loops of `roles` until `stop`; then work under way is finished within the drain time, or handed back. An error if
    /// a loop panics or ends by itself: then the process must end, as it would look healthy and do nothing.
    pub async fn work(&self, roles: Roles, stop: CancellationToken) -> Result<(), LoopEnded> {
        self.shared.is_at_work.store(roles.plan || roles.execute, Ordering::Relaxed);
        let supervision = &self.shared.supervision;
        let (abandon, ended) = (CancellationToken::new(), CancellationToken::new());
        let mut keepers = self.keepers(roles, &stop, &ended);
        let mut lanes = self.lanes(roles, &stop, &abandon);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            failed = supervision.ended() => return Err(failed),
        }
        let all_done = async { while lanes.join_next().await.is_some() {} };
        tokio::pin!(all_done);
        tokio::select! {
            biased;
            () = &mut all_done => {}
            () = self.parts().clock.sleep(self.options().drain) => {
                info!("the drain time is over: work under way is handed back");
                abandon.cancel();
                all_done.await;
            }
        }
        ended.cancel();
        while keepers.join_next().await.is_some() {}
        supervision.first().map_or(Ok(()), Err)
    }

    /// What keeps the store and the queue in order, whatever the process is for. Heartbeats go on until `ended`.
    fn keepers(&self, roles: Roles, stop: &CancellationToken, ended: &CancellationToken) -> JoinSet<()> {
        let supervision = &self.shared.supervision;
        let mut keepers = JoinSet::new();
        let beat = self.shared.holds.clone().beat(self.parts().clone(), self.options().lease, ended.clone());
        keepers.spawn(supervision.clone().until(ended.clone(), "heartbeat", beat));
        if roles.plan || roles.execute {
            let listen = self.shared.holds.clone().listen(self.parts().clone(), ended.clone());
            keepers.spawn(supervision.clone().until(ended.clone(), "stop", listen));
        }
        let sweep = Sweeper::new(self.clone()).run(stop.clone());
        keepers.spawn(supervision.clone().until(stop.clone(), "sweep", sweep));
        let dispatch = Dispatcher::new(self.clone()).run(stop.clone());
        keepers.spawn(supervision.clone().until(stop.clone(), "dispatch", dispatch));
        let settle = Settler::new(self.clone()).run(stop.clone());
        keepers.spawn(supervision.clone().until(stop.clone(), "settlement", settle));
        if let Some(remover) = Remover::new(self.clone()) {
            keepers.spawn(supervision.clone().until(stop.clone(), "removal", remover.run(stop.clone())));
        }
        keepers
    }

    /// What takes tasks from the lanes and works on them.
    fn lanes(&self, roles: Roles, stop: &CancellationToken, abandon: &CancellationToken) -> JoinSet<()> {
        let supervision = &self.shared.supervision;
        let mut lanes = JoinSet::new();
        let step_lanes = if roles.execute { Lane::steps(self.pool()) } else { Vec::new() };
        let slots = Slots::new(step_lanes, self.options().step_slots);
        let executor = Executor::new(self.clone(), slots.clone(), stop.clone());
        for lane in slots.lanes() {
            let serve = executor.clone().run(lane.clone(), abandon.clone());
            lanes.spawn(supervision.clone().until(stop.clone(), "step lane", serve));
        }
        for lane in Lane::plans().into_iter().filter(|_| roles.plan) {
            let serve = Planner::new(self.clone()).run(lane, stop.clone(), abandon.clone());
            lanes.spawn(supervision.clone().until(stop.clone(), "plan lane", serve));
        }
        lanes
    }

    /// Waits while the machine's wall clock is too far from the clock that runs are recorded by: then no work is taken.
    pub(crate) async fn clock_is_right(&self) {
        let clock = &self.parts().clock;
        while clock.skew().is_some_and(Skew::is_excessive) {
            clock.sleep(CLOCK_LOOK_EVERY).await;
        }
    }

    /// How long after its claim no call for a step can be under way any more.
    pub(crate) fn longest_call(&self) -> Duration {
        let longest = self.pool().workers().iter().map(|worker| worker.limits.call_ms_max).max();
        Duration::from_millis(longest.unwrap_or_default()) + self.options().report_margin
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.shared.dispatch
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.shared.holds
    }

    pub(crate) fn known(&self) -> &Known {
        &self.shared.known
    }

    pub(crate) fn creations(&self) -> &Creations {
        &self.shared.creations
    }

    pub(crate) fn charged_creations(&self) -> &ChargedCreations {
        &self.shared.charged_creations
    }

    pub(crate) fn unreadable(&self) -> &Unreadable {
        &self.shared.unreadable
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn background(&self) -> &TaskTracker {
        &self.shared.background
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.shared.commands
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts().clock.now()
    }
}

/// A seed from a random id.
pub(crate) fn seed(claim: ClaimId) -> u64 {
    claim.as_uuid().as_u64_pair().1
}
