//! Builds a complete engine for a test, and waits for its results.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podium_domain::conversation::Conversation;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::plan::Plan;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::request::RunRequest;
use podium_domain::run::Run;
use podium_engine::{AnswerPart, CallParts, Engine, Options, Submit, Work};
use podium_memory::{MemoryLimiter, MemoryLive, MemoryQueue};
use podium_ports::cache::StepCache;
use podium_ports::clock::{Clock, Ids};
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::limiter::Limiter;
use podium_ports::live::LiveStream;
use podium_ports::queue::StepQueue;
use podium_ports::run_traces::RunTraces;
use podium_ports::store::RunStore;
use podium_ports::vendor::Vendors;
use podium_store_sqlite::Store;
use podium_testkit::{ScriptedConductor, ScriptedVendor, SeededIds, TestClock, a_pool};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest wait in a test. It is no assertion about durations.
const PATIENCE: Duration = Duration::from_secs(30);

/// The ports of a process that may do all kinds of work.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) queue: Arc<dyn StepQueue>,
    pub(crate) live: Arc<dyn LiveStream>,
    pub(crate) limiter: Arc<dyn Limiter>,
    pub(crate) cache: Option<Arc<dyn StepCache>>,
    pub(crate) vendors: Arc<dyn Vendors>,
    pub(crate) conductors: Conductors,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) traces: Option<Arc<dyn RunTraces>>,
}

/// The work of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    plan: bool,
    execute: bool,
}

impl Roles {
    pub(crate) const ALL: Self = Self { plan: true, execute: true };
    pub(crate) const NONE: Self = Self { plan: false, execute: false };
    pub(crate) const PLANNER: Self = Self { plan: true, execute: false };
    pub(crate) const EXECUTOR: Self = Self { plan: false, execute: true };
}

impl Parts {
    fn engine(&self, options: Options) -> Engine {
        Engine::new(self.of_engine(), options)
    }

    /// The ports of an engine.
    pub(crate) fn of_engine(&self) -> podium_engine::Parts {
        let Self { store, queue, live, conductors, clock, ids, pool, traces, .. } = self.clone();
        let conductors = ConductorProfile::of_all(&conductors);
        podium_engine::Parts { store, queue, live, conductors, clock, ids, pool, traces }
    }

    pub(crate) fn work(&self, roles: Roles) -> Work {
        let Self { limiter, cache, vendors, conductors, .. } = self.clone();
        let calls = CallParts { limiter, cache, vendors };
        Work { plan: roles.plan.then_some(conductors), execute: roles.execute.then_some(calls) }
    }
}

pub(crate) struct House {
    pub(crate) engine: Engine,
    pub(crate) vendor: ScriptedVendor,
    pub(crate) conductor: ScriptedConductor,
    pub(crate) parts: Parts,
    pub(crate) stop: CancellationToken,
    work: JoinSet<()>,
    // The store's folder, dropped last.
    folder: Arc<tempfile::TempDir>,
}

/// Options with short intervals, so that lost messages and leases are found quickly.
pub(crate) fn quick() -> Options {
    Options {
        lease: Duration::from_millis(600),
        sweep_every: Duration::from_millis(50),
        dispatch_grace: Duration::from_millis(200),
        retry_pause: Duration::from_millis(1),
        fetch_wait: Duration::from_millis(200),
        ..Options::default()
    }
}

impl House {
    /// An engine at work whose conductor always gives `plan`.
    pub(crate) async fn with_plan(plan: Plan) -> Self {
        let house = Self::idle(quick(), |store| store).await;
        house.conductor.otherwise(plan);
        house.at_work()
    }

    /// An engine whose loops do not run yet, over a store that `wrap` may replace.
    pub(crate) async fn idle(
        options: Options,
        wrap: impl FnOnce(Arc<dyn RunStore>) -> Arc<dyn RunStore>,
    ) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let options_of_store = podium_store_sqlite::Options {
            dispatch_grace: options.dispatch_grace,
            ..podium_store_sqlite::Options::default()
        };
        let store = Store::open(&folder.path().join("podium.db"), options_of_store).await.unwrap();
        let clock = Arc::new(TestClock::new());
        let (vendor, conductor) = (ScriptedVendor::new(), ScriptedConductor::new());
        let parts = Parts {
            store: wrap(Arc::new(store)),
            queue: Arc::new(MemoryQueue::new(clock.clone(), podium_memory::QueueOptions::default())),
            live: Arc::new(MemoryLive::new(podium_memory::LiveOptions::default())),
            limiter: Arc::new(MemoryLimiter::new(clock.clone())),
            cache: None,
            vendors: Arc::new(vendor.clone()),
            conductors: one(conductor.clone()),
            clock,
            ids: Arc::new(SeededIds::new(7)),
            pool: Arc::new(a_pool()),
            traces: None,
        };
        Self::of(parts, options, vendor, conductor, folder)
    }

    fn of(
        parts: Parts,
        options: Options,
        vendor: ScriptedVendor,
        conductor: ScriptedConductor,
        folder: Arc<tempfile::TempDir>,
    ) -> Self {
        let engine = parts.engine(options);
        let (stop, work) = (CancellationToken::new(), JoinSet::new());
        Self { engine, vendor, conductor, parts, stop, work, folder }
    }

    /// Another engine on the same store and, unless given another, the same queue: another process, or the same after a
    /// restart.
    pub(crate) fn beside(&self, options: Options, seed: u64, tamper: impl FnOnce(&mut Parts)) -> Self {
        let mut parts = Parts { ids: Arc::new(SeededIds::new(seed)), ..self.parts.clone() };
        tamper(&mut parts);
        let (vendor, conductor) = (self.vendor.clone(), self.conductor.clone());
        Self::of(parts, options, vendor, conductor, Arc::clone(&self.folder))
    }

    pub(crate) fn with_queue(mut self, queue: Arc<dyn StepQueue>, options: Options) -> Self {
        self.parts.queue = queue;
        self.engine = self.parts.engine(options);
        self
    }

    pub(crate) fn at_work(self) -> Self {
        self.at_work_as(Roles::ALL)
    }

    pub(crate) fn at_work_as(mut self, roles: Roles) -> Self {
        let (engine, work, stop) = (self.engine.clone(), self.parts.work(roles), self.stop.clone());
        self.work.spawn(async move { engine.work(work, stop).await.unwrap() });
        self
    }

    /// Stops like a kill: no work is finished or released.
    pub(crate) async fn kill(&mut self) {
        self.work.shutdown().await;
    }

    /// Stops like SIGTERM.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        within(async { while self.work.join_next().await.is_some() {} }).await;
    }

    pub(crate) async fn ask(&self) -> RunId {
        self.ask_under(Policy::new(Tier::Ultra, Effort::Medium)).await
    }

    pub(crate) async fn ask_under(&self, policy: Policy) -> RunId {
        self.engine.submit(request(policy)).await.unwrap().run_id()
    }

    /// The streamed texts, and the ended run.
    pub(crate) async fn answer(&self, id: RunId) -> (Vec<String>, Run) {
        let collect = async {
            let mut parts = self.engine.answer(id).await.unwrap();
            let mut texts = Vec::new();
            while let Some(part) = parts.next().await {
                match part.unwrap() {
                    AnswerPart::Text(text) => texts.push(text),
                    AnswerPart::Reasoning(_)
                    | AnswerPart::ReasoningRestarted
                    | AnswerPart::CallBegun { .. }
                    | AnswerPart::CallArguments { .. }
                    | AnswerPart::Progress(_) => {}
                    AnswerPart::Ended(run) => return (texts, *run),
                }
            }
            panic!("the stream ended before the answer did");
        };
        within(collect).await
    }

    pub(crate) async fn ended(&self, id: RunId) -> Run {
        self.until(id, Run::is_ended).await
    }

    /// The run as soon as it fulfils a condition.
    pub(crate) async fn until(&self, id: RunId, wanted: impl Fn(&Run) -> bool) -> Run {
        let look = async {
            let mut updates = self.engine.watch(id, 0).await.unwrap();
            loop {
                let run = self.engine.run(id).await.unwrap().unwrap();
                if wanted(&run) {
                    return run;
                }
                assert!(updates.next().await.is_some(), "the run ended in another state: {run:#?}");
            }
        };
        within(look).await
    }
}

/// A conductor as the only one of a process.
pub(crate) fn one(conductor: ScriptedConductor) -> Conductors {
    let conductor: Arc<dyn Conductor> = Arc::new(conductor);
    conductor.into()
}

/// A separate queue.
pub(crate) fn a_queue() -> Arc<MemoryQueue> {
    Arc::new(MemoryQueue::new(Arc::new(TestClock::new()), podium_memory::QueueOptions::default()))
}

pub(crate) fn request(policy: Policy) -> Submit {
    Submit {
        tenant: TenantId::new("acme").unwrap(),
        key: None,
        budgets: Vec::new(),
        request_id: None,
        request_digest: None,
        model: "podium-ultra".to_owned(),
        conductor: None,
        request: RunRequest::new(Conversation::question_only("Why is the sky blue?").unwrap(), policy),
    }
}

/// A submit whose request is changed.
pub(crate) fn with(mut submit: Submit, change: impl FnOnce(&mut RunRequest)) -> Submit {
    change(&mut submit.request);
    submit
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("the engine must stop in time")
}
