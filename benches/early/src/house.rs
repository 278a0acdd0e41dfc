//! An embedded engine over a conductor and workers that are simulated.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use podium_domain::conversation::Conversation;
use podium_domain::ids::{StepIndex, TenantId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::request::RunRequest;
use podium_domain::run::{Run, TaskRef};
use podium_domain::time::Timestamp;
use podium_engine::{CallParts, Engine, Options, Parts, Submit, Work};
use podium_memory::{LiveOptions, MemoryLimiter, MemoryLive, MemoryQueue, QueueOptions};
use podium_ports::clock::Clock;
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_setup::{RandomIds, SystemClock};
use podium_store_sqlite::Store;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Arguments;
use crate::simulated::{Course, SimulatedConductor, SimulatedWorkers, Waits};

const POOL: &str = r#"
schema = 1
name = "simulated"
version = "1"
[[vendors]]
id = "simulated"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"
[[workers]]
id = "worker"
vendor = "simulated"
model = "none"
description = "Says one word after a while."
context_tokens = 8192
usd_per_million_tokens = { input = 1.0, output = 1.0 }
"#;

/// Plans and steps that may be under way at the same time: more than there ever are.
const SLOTS: usize = 256;

/// How long a run took, in milliseconds from its acceptance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// Until the plan was there.
    pub(crate) plan: u64,
    /// Until the first step's worker was to be called.
    pub(crate) first_step: u64,
    /// Until its end.
    pub(crate) run: u64,
}

pub(crate) struct House {
    engine: Engine,
    stop: CancellationToken,
    work: JoinSet<()>,
    // Dropped last: the store's folder.
    _folder: tempfile::TempDir,
}

impl House {
    pub(crate) async fn open(arguments: &Arguments, waits: Waits) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("podium.db");
        let store = Store::open(&file, podium_store_sqlite::Options::default()).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let pool = Arc::new(Pool::parse(POOL).context("reading the pool")?);
        let conductor = SimulatedConductor {
            pool: Arc::clone(&pool),
            clock: Arc::clone(&clock),
            waits,
            reasoning_tokens: arguments.reasoning_tokens,
            subtask_tokens: arguments.subtask_tokens,
            order: arguments.order,
        };
        let answer_after = Duration::from_millis(arguments.worker_ms);
        let conductors: Conductors = (Arc::new(conductor) as Arc<dyn Conductor>).into();
        let calls = CallParts {
            limiter: Arc::new(MemoryLimiter::new(Arc::clone(&clock))),
            cache: None,
            vendors: Arc::new(SimulatedWorkers { clock: Arc::clone(&clock), answer_after }),
        };
        let parts = Parts {
            conductors: ConductorProfile::of_all(&conductors),
            store: Arc::new(store),
            queue: Arc::new(MemoryQueue::new(Arc::clone(&clock), QueueOptions::default())),
            live: Arc::new(MemoryLive::new(LiveOptions::default())),
            clock,
            ids: Arc::new(RandomIds),
            pool,
            traces: None,
        };
        let options = Options { plan_slots: SLOTS, step_slots: SLOTS, ..Options::default() };
        let (engine, stop, mut work) =
            (Engine::new(parts, options), CancellationToken::new(), JoinSet::new());
        let (working, stopped) = (engine.clone(), stop.clone());
        let work_parts = Work { plan: Some(conductors), execute: Some(calls) };
        work.spawn(async move { working.work(work_parts, stopped).await.expect("the engine works") });
        Ok(Self { engine, stop, work, _folder: folder })
    }

    /// Has a run carried out.
    pub(crate) async fn ask(&self, course: Course) -> Result<Took> {
        let request = Submit {
            tenant: TenantId::new("bench")?,
            key: None,
            budgets: Vec::new(),
            request_id: None,
            request_digest: None,
            model: "podium-ultra".to_owned(),
            conductor: None,
            request: RunRequest::new(
                Conversation::question_only(course.to_string())?,
                Policy { rounds_max: 1, ..Policy::new(Tier::Ultra, Effort::Medium) },
            ),
        };
        let (_, mut ending) = self.engine.ask(request).await?;
        let run = ending.run().await?;
        ensure!(run.answer() == Some("done"), "{course}: run {} is {:?}", run.id(), run.state());
        took(&run).with_context(|| format!("{course}: run {} has no times", run.id()))
    }

    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        while self.work.join_next().await.is_some() {}
    }
}

fn took(run: &Run) -> Option<Took> {
    let accepted = run.spec().accepted_at;
    let since = |at: Timestamp| u64::try_from(at.since(accepted).as_millis()).ok();
    let attempt = |task| run.task(task)?.attempts.last();
    let planning = attempt(TaskRef::Plan { round: 0 })?;
    let first = attempt(TaskRef::Step { round: 0, step: StepIndex::new(0) })?;
    Some(Took {
        plan: since(planning.ended_at?)?,
        first_step: since(first.started_at)?,
        run: since(run.ended_at()?)?,
    })
}
