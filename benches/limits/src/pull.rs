//! Whether runs of one vendor are slowed down by runs that wait for another one, which has no room at all.
//!
//! A real engine on SQLite with the queue and the limiter of one process; steps are answered at once. Rounds with and without
//! the waiting runs take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use podium_domain::conversation::Conversation;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::request::RunRequest;
use podium_engine::{AnswerPart, CallParts, Engine, Options, Parts, Submit, Work};
use podium_memory::{LiveOptions, MemoryLimiter, MemoryLive, MemoryQueue, QueueOptions};
use podium_ports::conductor::{Conductor, Conductors};
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::limiter::{Grant, Limiter, Outcome, Settlement};
use podium_setup::{RandomIds, SystemClock};
use podium_testkit::limiter::Caller;
use podium_testkit::{Answer, ScriptedConductor, ScriptedVendor, a_pool, plan_of};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 15;
const RUNS: usize = 150;
const WAITING: usize = 100;
/// How much of the throughput has to be left.
const RATIO_MIN: f64 = 0.95;

struct House {
    engine: Engine,
    conductor: ScriptedConductor,
    work: JoinSet<()>,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl House {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = podium_store_sqlite::Store::open(
            &folder.path().join("podium.db"),
            podium_store_sqlite::Options::default(),
        )
        .await?;
        let clock = Arc::new(SystemClock);
        let (vendor, conductor) = (ScriptedVendor::new(), ScriptedConductor::new());
        vendor.otherwise(Answer::text("fine"));
        let limiter = MemoryLimiter::new(clock.clone());
        let worker = a_pool().workers()[0].clone();
        let Grant::Permit(permit) = limiter.acquire(&Caller::new(0).request(&worker)).await? else {
            bail!("a new limiter has no room");
        };
        let retry_after = Some(Duration::from_hours(1));
        permit.settle(Settlement::of(Outcome::Limited { retry_after }));
        let conductors: Conductors = (Arc::new(conductor.clone()) as Arc<dyn Conductor>).into();
        let calls = CallParts { limiter: Arc::new(limiter), cache: None, vendors: Arc::new(vendor) };
        let parts = Parts {
            conductors: ConductorProfile::of_all(&conductors),
            store: Arc::new(store),
            queue: Arc::new(MemoryQueue::new(clock.clone(), QueueOptions::default())),
            live: Arc::new(MemoryLive::new(LiveOptions::default())),
            clock,
            ids: Arc::new(RandomIds),
            pool: Arc::new(a_pool()),
            traces: None,
        };
        let engine = Engine::new(parts, Options::default());
        let (stop, mut work) = (CancellationToken::new(), JoinSet::new());
        let (at_work, stopped) = (engine.clone(), stop.clone());
        let work_parts = Work { plan: Some(conductors), execute: Some(calls) };
        work.spawn(async move { at_work.work(work_parts, stopped).await.expect("the engine works") });
        Ok(Self { engine, conductor, work, stop, _folder: folder })
    }

    async fn ask(&self, worker: &str) -> Result<RunId> {
        self.conductor.otherwise(plan_of(&[(worker, "Do it.", &[])]));
        let submit = Submit {
            tenant: TenantId::new("bench")?,
            key: None,
            budgets: Vec::new(),
            request_id: None,
            request_digest: None,
            model: "podium-ultra".to_owned(),
            conductor: None,
            request: RunRequest::new(
                Conversation::question_only("Why?")?,
                Policy::new(Tier::Ultra, Effort::Medium),
            ),
        };
        Ok(self.engine.submit(submit).await?.run_id())
    }

    async fn until_planned(&self, id: RunId) -> Result<()> {
        let mut updates = self.engine.watch(id, 0).await?;
        loop {
            let run = self.engine.run(id).await?.context("the run is there")?;
            if run.rounds().first().is_some_and(|round| round.planned.is_some()) {
                return Ok(());
            }
            ensure!(updates.next().await.is_some(), "the run ended unplanned");
        }
    }

    /// Runs a second.
    async fn measure(&self) -> Result<f64> {
        let begun = Instant::now();
        let mut ids = Vec::new();
        for _ in 0..RUNS {
            ids.push(self.ask("careful").await?);
        }
        for id in ids {
            let mut answer = self.engine.answer(id).await?;
            while let Some(part) = answer.next().await {
                if let AnswerPart::Ended(run) = part? {
                    ensure!(run.answer() == Some("fine"), "a run failed");
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        let runs = RUNS as f64;
        Ok(runs / begun.elapsed().as_secs_f64())
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while self.work.join_next().await.is_some() {}
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(crate) async fn run() -> Result<()> {
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let mut rates = [0.0; 2];
        // The order alternates as well.
        for turn in 0..2 {
            let waits = (turn + round) % 2;
            let house = House::start().await?;
            if waits == 1 {
                let mut ids = Vec::new();
                for _ in 0..WAITING {
                    ids.push(house.ask("quick").await?);
                }
                for id in ids {
                    house.until_planned(id).await?;
                }
            }
            rates[waits] = house.measure().await?;
            house.stop().await;
        }
        let [alone, crowded] = rates;
        println!("runs a second: {alone:.1} alone, {crowded:.1} with {WAITING} that wait");
        // The first round warms up.
        if round > 0 {
            ratios.push(crowded / alone);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("{}", serde_json::json!({ "ratio": ratio, "rounds": ROUNDS, "least": ratios[0] }));
    ensure!(ratio >= RATIO_MIN, "the ratio is {ratio:.3}, at least {RATIO_MIN} is expected");
    Ok(())
}
