//! A node: a process of the cluster, on a runtime of its own. The world polls it, a few tasks at a time, so that a crash between
//! any two polls is the runtime dropped, and a frozen process is one that is not polled.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Waker};

use podium_domain::pool::Pool;
use podium_engine::{Engine, Options, Parts, Roles};
use podium_ports::cache::StepCache;
use podium_ports::conductor::Conductor;
use podium_testkit::SeededIds;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::cache::SimCache;
use crate::clients::{Errand, UnderWay, run_errand};
use crate::clocks::NodeClock;
use crate::conductor::SimConductor;
use crate::limits::SimLimiter;
use crate::live::SimLive;
use crate::queue::SimQueue;
use crate::simulation::Order;
use crate::store::SimStore;
use crate::vendor::SimVendors;
use crate::world::{Link, World};

thread_local! {
    /// Whether the runtime that was polled last found nothing to do.
    static IS_IDLE: Cell<bool> = const { Cell::new(false) };
    /// Who wants to know.
    static WHO_WAITS: RefCell<Option<Waker>> = const { RefCell::new(None) };
    /// What panicked in a world on this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_IN_WORLD: Cell<bool> = const { Cell::new(false) };
}

/// What a node does, for all its lives.
#[derive(Clone)]
pub(crate) struct Nature {
    pub(crate) roles: Roles,
    pub(crate) options: Options,
    /// Alone on its store: it takes over what its earlier life left behind.
    pub(crate) is_alone: bool,
    pub(crate) pool: Arc<Pool>,
    pub(crate) seed: u64,
    /// Whether there is a step cache.
    pub(crate) has_cache: bool,
}

/// A place in the cluster, where processes live one after the other.
pub(crate) struct Node {
    link: Link,
    nature: Nature,
    process: Option<Process>,
    lives: u64,
    pub(crate) is_frozen: bool,
    /// It dies after so many more turns, and comes back after so many milliseconds.
    dying: Option<(u64, u64)>,
}

struct Process {
    runtime: Runtime,
    engine: Engine,
    stop: CancellationToken,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// There may be more to do.
    Busy,
    /// Nothing is left to do until something arrives.
    Idle,
    /// It died, and comes back after so many milliseconds.
    Died { down_ms: u64 },
}

impl Node {
    pub(crate) fn new(world: World, index: usize, nature: Nature) -> Self {
        let link = Link { world, node: index };
        Self { link, nature, process: None, lives: 0, is_frozen: false, dying: None }
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

    /// Starts a process, if there is none.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        if self.is_up() {
            return Ok(());
        }
        self.lives += 1;
        // After every poll the runtime looks up: so a turn can be one poll long.
        let runtime = Builder::new_current_thread().event_interval(1).on_thread_park(notice_idle).build()?;
        let engine = {
            let _inside = runtime.enter();
            Engine::new(self.parts(), self.options())
        };
        let stop = CancellationToken::new();
        runtime.spawn(live(engine.clone(), self.link.clone(), self.nature.clone(), stop.clone(), self.lives));
        self.process = Some(Process { runtime, engine, stop });
        self.link.world.lock().ready.insert(self.link.node);
        Ok(())
    }

    fn options(&self) -> Options {
        Options { executor: format!("node-{}.{}", self.link.node, self.lives), ..self.nature.options.clone() }
    }

    fn parts(&self) -> Parts {
        let link = || self.link.clone();
        let life = self.nature.seed ^ ((self.link.node as u64 + 1) << 56) ^ (self.lives << 48);
        let pool = Arc::clone(&self.nature.pool);
        let conductor: Arc<dyn Conductor> = Arc::new(SimConductor { link: link(), pool: Arc::clone(&pool) });
        Parts {
            store: Arc::new(SimStore(link())),
            queue: Arc::new(SimQueue(link())),
            live: Arc::new(SimLive(link())),
            limiter: Arc::new(SimLimiter(link())),
            cache: self.nature.has_cache.then(|| -> Arc<dyn StepCache> { Arc::new(SimCache(link())) }),
            vendors: Arc::new(SimVendors(link())),
            conductors: conductor.into(),
            clock: Arc::new(NodeClock(link())),
            ids: Arc::new(SeededIds::new(life)),
            pool,
        }
    }

    /// A client comes to this node.
    pub(crate) fn serve(&self, errand: Errand) {
        if let Some(process) = &self.process {
            // Made here: a task that is dropped before its first poll must be missed as well.
            let under_way = UnderWay::new(self.link.world.clone(), errand);
            process.runtime.spawn(run_errand(process.engine.clone(), self.link.clone(), under_way));
            self.link.world.lock().ready.insert(self.link.node);
        }
    }

    /// It will die in the middle of something.
    pub(crate) fn doom(&mut self, turns: u64, down_ms: u64) {
        if self.is_up() {
            self.dying = Some((turns, down_ms));
        }
    }

    /// It lives on, and is not frozen.
    pub(crate) fn spare(&mut self) {
        (self.dying, self.is_frozen) = (None, false);
    }

    /// As SIGTERM does.
    pub(crate) fn stop(&self) {
        if let Some(process) = &self.process {
            process.stop.cancel();
            self.link.world.lock().ready.insert(self.link.node);
        }
    }

    /// As SIGKILL does: wherever its tasks are, they are no more.
    pub(crate) fn kill(&mut self) {
        (self.dying, self.is_frozen) = (None, false);
        if let Some(Process { runtime, engine, .. }) = self.process.take() {
            drop(runtime);
            drop(engine);
        }
    }

    /// Lets the process work.
    pub(crate) fn turn(&mut self, reach: Reach) -> Turned {
        let Some(process) = &self.process else { return Turned::Idle };
        IS_IDLE.set(false);
        process.runtime.block_on(Turn { reach });
        match &mut self.dying {
            Some((0, down_ms)) => {
                let down_ms = *down_ms;
                self.kill();
                return Turned::Died { down_ms };
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        if IS_IDLE.get() { Turned::Idle } else { Turned::Busy }
    }
}

/// The life of a process: what `main` does.
async fn live(engine: Engine, link: Link, nature: Nature, stop: CancellationToken, life: u64) {
    while nature.is_alone && engine.take_over().await.is_err() {
        link.pause(500).await;
    }
    let worked = engine.work(nature.roles, stop).await;
    assert_eq!(worked, Ok(()), "a loop ended");
    link.world.lock().orders.push_back(Order::Stopped { node: link.node, life });
}

/// How far a turn goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// So many polls of tasks; it is not known whether more is left to do.
    Polls(u64),
    /// Until nothing is left to do.
    Idle,
}

/// Ends when a turn has reached its end.
struct Turn {
    reach: Reach,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.reach {
            Reach::Polls(0) => return Poll::Ready(()),
            // The runtime polls this first whenever it is awake, then one task.
            Reach::Polls(left) => {
                *left -= 1;
                context.waker().wake_by_ref();
            }
            Reach::Idle if IS_IDLE.get() => return Poll::Ready(()),
            Reach::Idle => WHO_WAITS.set(Some(context.waker().clone())),
        }
        Poll::Pending
    }
}

/// The runtime has no task to poll and would wait for one.
fn notice_idle() {
    IS_IDLE.set(true);
    if let Some(waker) = WHO_WAITS.take() {
        waker.wake();
    }
}

/// From now on panics on this thread are kept for [`take_panic`], until dropped.
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
