//! A node: a process of the cluster on a separate runtime. The world polls it a few tasks at a time. To crash it between two polls,
//! the world drops the runtime; to freeze it, the world stops polling it.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Waker};

use podium_domain::pool::Pool;
use podium_engine::{CallParts, Engine, Options, Parts, Work};
use podium_ports::cache::StepCache;
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_testkit::SeededIds;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::cache::SimCache;
use crate::clients::{ClientAction, UnderWay, run_action};
use crate::clocks::NodeClock;
use crate::conductor::SimConductor;
use crate::limits::SimLimiter;
use crate::live::SimLive;
use crate::queue::SimQueue;
use crate::simulation::Order;
use crate::store::SimStore;
use crate::troubles::Roles;
use crate::vendor::SimVendors;
use crate::world::{Link, World};

thread_local! {
    /// Whether the last poll found the runtime idle.
    static IS_IDLE: Cell<bool> = const { Cell::new(false) };
    /// The turn that waits for the runtime to be idle.
    static WAITER: RefCell<Option<Waker>> = const { RefCell::new(None) };
    /// The message of a panic in a world on this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_IN_WORLD: Cell<bool> = const { Cell::new(false) };
}

/// The configuration of a node's processes.
#[derive(Clone)]
pub(crate) struct NodeConfig {
    pub(crate) roles: Roles,
    pub(crate) options: Options,
    /// Whether it is alone on its store and takes over the claims of its earlier process.
    pub(crate) is_alone: bool,
    pub(crate) pool: Arc<Pool>,
    pub(crate) seed: u64,
    /// Whether it has a step cache.
    pub(crate) has_cache: bool,
}

/// A node, which runs one process after the other.
pub(crate) struct Node {
    link: Link,
    config: NodeConfig,
    process: Option<Process>,
    lives: u64,
    pub(crate) is_frozen: bool,
    /// The remaining turns until the process dies, and the milliseconds until the next one starts.
    dying: Option<(u64, u64)>,
}

struct Process {
    runtime: Runtime,
    engine: Engine,
    stop: CancellationToken,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// More work may be left.
    Busy,
    /// No work is left until an event arrives.
    Idle,
    /// The process died; the next one starts after `down_ms`.
    Died { down_ms: u64 },
}

impl Node {
    pub(crate) fn new(world: World, index: usize, config: NodeConfig) -> Self {
        let link = Link { world, node: index };
        Self { link, config, process: None, lives: 0, is_frozen: false, dying: None }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn is_dying(&self) -> bool {
        self.dying.is_some()
    }

    pub(crate) fn lives(&self) -> u64 {
        self.lives
    }

    /// Starts a process unless one runs.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        if self.is_up() {
            return Ok(());
        }
        self.lives += 1;
        // The runtime returns after every poll, so that a turn can be one poll long.
        let runtime = Builder::new_current_thread().event_interval(1).on_thread_park(notice_idle).build()?;
        let conductors = self.conductors();
        let engine = {
            let _inside = runtime.enter();
            Engine::new(self.parts(&conductors), self.options())
        };
        let work = self.work(conductors);
        let stop = CancellationToken::new();
        let life = Life { link: self.link.clone(), is_alone: self.config.is_alone, number: self.lives };
        runtime.spawn(life.live(engine.clone(), work, stop.clone()));
        self.process = Some(Process { runtime, engine, stop });
        self.link.world.lock().ready.insert(self.link.node);
        Ok(())
    }

    fn options(&self) -> Options {
        Options { executor: format!("node-{}.{}", self.link.node, self.lives), ..self.config.options.clone() }
    }

    fn conductors(&self) -> Conductors {
        let (link, pool) = (self.link.clone(), Arc::clone(&self.config.pool));
        let conductor: Arc<dyn Conductor> = Arc::new(SimConductor { link, pool });
        conductor.into()
    }

    fn work(&self, conductors: Conductors) -> Work {
        let (link, Roles { plan, execute }) = (|| self.link.clone(), self.config.roles);
        let calls = CallParts {
            limiter: Arc::new(SimLimiter(link())),
            cache: self.config.has_cache.then(|| -> Arc<dyn StepCache> { Arc::new(SimCache(link())) }),
            vendors: Arc::new(SimVendors(link())),
        };
        Work { plan: plan.then_some(conductors), execute: execute.then_some(calls) }
    }

    fn parts(&self, conductors: &Conductors) -> Parts {
        let link = || self.link.clone();
        let life = self.config.seed ^ ((self.link.node as u64 + 1) << 56) ^ (self.lives << 48);
        Parts {
            store: Arc::new(SimStore(link())),
            queue: Arc::new(SimQueue(link())),
            live: Arc::new(SimLive(link())),
            conductors: ConductorProfile::of_all(conductors),
            clock: Arc::new(NodeClock(link())),
            ids: Arc::new(SeededIds::new(life)),
            pool: Arc::clone(&self.config.pool),
            traces: None,
        }
    }

    /// Serves a client's action.
    pub(crate) fn serve(&self, action: ClientAction) {
        if let Some(process) = &self.process {
            // Created before the task, so that dropping the task before its first poll is noticed.
            let under_way = UnderWay::new(self.link.world.clone(), action);
            process.runtime.spawn(run_action(process.engine.clone(), self.link.clone(), under_way));
            self.link.world.lock().ready.insert(self.link.node);
        }
    }

    /// Kills the process after some turns, in the middle of its work.
    pub(crate) fn kill_after(&mut self, turns: u64, down_ms: u64) {
        if self.is_up() {
            self.dying = Some((turns, down_ms));
        }
    }

    /// Cancels a scheduled death and a freeze.
    pub(crate) fn cancel_faults(&mut self) {
        (self.dying, self.is_frozen) = (None, false);
    }

    /// Stops the process, like SIGTERM.
    pub(crate) fn stop(&self) {
        if let Some(process) = &self.process {
            process.stop.cancel();
            self.link.world.lock().ready.insert(self.link.node);
        }
    }

    /// Kills the process, like SIGKILL: drops its tasks wherever they are.
    pub(crate) fn kill(&mut self) {
        (self.dying, self.is_frozen) = (None, false);
        if let Some(Process { runtime, engine, .. }) = self.process.take() {
            drop(runtime);
            drop(engine);
        }
    }

    /// Polls the process.
    pub(crate) fn turn(&mut self, reach: Reach) -> TurnOutcome {
        let Some(process) = &self.process else { return TurnOutcome::Idle };
        IS_IDLE.set(false);
        process.runtime.block_on(Turn { reach });
        match &mut self.dying {
            Some((0, down_ms)) => {
                let down_ms = *down_ms;
                self.kill();
                return TurnOutcome::Died { down_ms };
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        if IS_IDLE.get() { TurnOutcome::Idle } else { TurnOutcome::Busy }
    }
}

/// A process of a node.
struct Life {
    link: Link,
    is_alone: bool,
    number: u64,
}

impl Life {
    /// The work of the process, as in `main`.
    async fn live(self, engine: Engine, work: Work, stop: CancellationToken) {
        while self.is_alone && engine.take_over().await.is_err() {
            self.link.pause(500).await;
        }
        let worked = engine.work(work, stop).await;
        assert_eq!(worked, Ok(()), "a loop ended");
        let stopped = Order::Stopped { node: self.link.node, life: self.number };
        self.link.world.lock().orders.push_back(stopped);
    }
}

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// After this number of polls. More work may be left.
    Polls(u64),
    /// When no work is left.
    Idle,
}

/// Completes at the end of a turn.
struct Turn {
    reach: Reach,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.reach {
            Reach::Polls(0) => return Poll::Ready(()),
            // The runtime polls this first whenever it is awake, and then one task.
            Reach::Polls(left) => {
                *left -= 1;
                context.waker().wake_by_ref();
            }
            Reach::Idle if IS_IDLE.get() => return Poll::Ready(()),
            Reach::Idle => WAITER.set(Some(context.waker().clone())),
        }
        Poll::Pending
    }
}

/// Called when the runtime has no task to poll.
fn notice_idle() {
    IS_IDLE.set(true);
    if let Some(waker) = WAITER.take() {
        waker.wake();
    }
}

/// Keeps panics on this thread for [`take_panic`] until it is dropped.
pub(crate) struct PanicWatch;

impl PanicWatch {
    pub(crate) fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if IS_IN_WORLD.get() {
                    PANIC.set(Some(panic.to_string()));
                } else {
                    before(panic);
                }
            }));
        });
        PANIC.set(None);
        IS_IN_WORLD.set(true);
        Self
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        IS_IN_WORLD.set(false);
    }
}

pub(crate) fn take_panic() -> Option<String> {
    PANIC.take()
}
