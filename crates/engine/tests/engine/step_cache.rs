//! Steps with an output from the step cache.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::plan::Plan;
use podium_domain::policy::{Effort, Policy, StepCaching, Tier};
use podium_domain::run::{Attempt, FinishReason, Run, Saved};
use podium_domain::sampling::Sampling;
use podium_domain::stops::Stops;
use podium_domain::usage::Usage;
use podium_engine::Submit;
use podium_memory::MemoryCache;
use podium_ports::cache::{CacheError, CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError};
use podium_ports::live::{Frame, LiveError, LiveStream, Signal, Signals};
use podium_testkit::{Answer, plan_of};

use crate::house::{House, Parts, quick, request, with};

const COLD: Sampling = Sampling { temperature: Some(0.0), top_p: None, seed: None };

fn one_step() -> Plan {
    plan_of(&[("quick", "Do it.", &[])])
}

/// A working engine with its own cache and some parts replaced.
async fn a_house_with(plan: Plan, tamper: impl FnOnce(&mut Parts)) -> House {
    let idle = House::idle(quick(), |store| store).await;
    idle.conductor.otherwise(plan);
    let with_cache = |parts: &mut Parts| {
        parts.cache = Some(Arc::new(MemoryCache::new(Arc::clone(&parts.clock), CacheOptions::default())));
        tamper(parts);
    };
    idle.beside(quick(), 8, with_cache).at_work()
}

async fn a_house(plan: Plan) -> House {
    a_house_with(plan, |_| ()).await
}

fn cold() -> Submit {
    with(request(Policy::new(Tier::Ultra, Effort::Medium)), |request| request.sampling = COLD)
}

async fn ask(house: &House, submit: Submit) -> RunId {
    house.engine.submit(submit).await.unwrap().run_id()
}

async fn ended(house: &House, submit: Submit) -> Run {
    house.ended(ask(house, submit).await).await
}

fn last_attempt(run: &Run) -> &Attempt {
    run.rounds()[0].steps[0].task.attempts.last().unwrap()
}

#[tokio::test]
async fn a_step_with_a_cached_output_costs_nothing() {
    let house = a_house(one_step()).await;
    house.vendor.script("quick", [Answer::parts(["bl", "ue"]).finish(FinishReason::Length)]);
    let first = ended(&house, cold()).await;
    let (texts, second) = house.answer(ask(&house, cold()).await).await;
    assert_eq!((first.answer(), second.answer()), (Some("blue"), Some("blue")));
    assert_eq!(texts.concat(), "blue");
    assert_eq!(house.vendor.calls().len(), 1);
    let (called, recalled) = (last_attempt(&first), last_attempt(&second));
    assert_eq!((called.cost, called.saved), (Cost::from_nano_usd(120_000), None));
    let saved = Saved { usage: Answer::USAGE, cost: called.cost };
    assert_eq!((recalled.usage, recalled.cost, recalled.saved), (Usage::NONE, Cost::ZERO, Some(saved)));
    assert_eq!((recalled.reserved, second.saved()), (Cost::ZERO, saved));
    assert_eq!(second.rounds()[0].steps[0].finish, Some(FinishReason::Length));
    assert_eq!(second.cost() + saved.cost, first.cost());
    let counts = house.engine.cache_counts();
    assert_eq!((counts.hits, counts.misses, counts.kept), (1, 1, 1), "{counts:?}");
}

#[tokio::test]
async fn a_cached_output_keeps_its_stop_sequence() {
    let house = a_house(one_step()).await;
    let stops = Stops::new(vec!["END".to_owned()]).unwrap();
    let stopped = || with(cold(), |request| request.stops = stops.clone());
    house.vendor.script("quick", [Answer::text("blue").stopped_by("END")]);
    for run in [ended(&house, stopped()).await, ended(&house, stopped()).await] {
        assert_eq!(run.rounds()[0].steps[0].stop_sequence.as_deref(), Some("END"));
    }
    assert_eq!(house.vendor.calls().len(), 1);
}

#[tokio::test]
async fn a_step_is_called_again_if_the_answer_may_differ() {
    let house = a_house(one_step()).await;
    house.vendor.otherwise(Answer::text("blue"));
    let other_tenant = || TenantId::new("other").unwrap();
    let off = Policy { step_cache: StepCaching::Off, ..cold().request.policy };
    let longer = Policy { output_bytes_max: 1000, ..cold().request.policy };
    let sampled = |temperature, seed| Sampling { temperature, seed, ..Sampling::NONE };
    let asked = [
        cold(),
        Submit { tenant: other_tenant(), ..cold() },
        with(cold(), |request| request.policy = off.clone()),
        with(cold(), |request| request.policy = off),
        with(cold(), |request| request.policy = longer),
        with(cold(), |request| request.answer_tokens_max = Some(7)),
        with(cold(), |request| request.sampling = sampled(None, None)),
        with(cold(), |request| request.sampling = sampled(Some(0.5), None)),
        with(cold(), |request| request.sampling = sampled(Some(0.5), None)),
        with(cold(), |request| request.sampling = sampled(Some(0.5), Some(1))),
        with(cold(), |request| request.sampling = sampled(Some(0.5), Some(2))),
    ];
    for (before, submit) in asked.into_iter().enumerate() {
        ended(&house, submit).await;
        assert_eq!(house.vendor.calls().len(), before + 1);
    }
    let seeded = with(cold(), |request| request.sampling = sampled(Some(0.5), Some(1)));
    ended(&house, seeded).await;
    ended(&house, cold()).await;
    assert_eq!(house.vendor.calls().len(), 11);
}

#[tokio::test]
async fn a_withheld_answer_is_not_kept() {
    let house = a_house(one_step()).await;
    house.vendor.otherwise(Answer::text("bl").finish(FinishReason::ContentFilter));
    ended(&house, cold()).await;
    ended(&house, cold()).await;
    assert_eq!(house.vendor.calls().len(), 2);
}

#[tokio::test]
async fn every_step_of_a_workflow_is_answered_from_the_cache() {
    let plan = plan_of(&[
        ("quick", "Draft it.", &[]),
        ("careful", "Solve it.", &[]),
        ("checker", "Decide.", &[0, 1]),
    ]);
    let house = a_house(plan).await;
    house.vendor.otherwise(Answer::text("blue"));
    let first = ended(&house, cold()).await;
    let second = ended(&house, cold()).await;
    assert_eq!((first.answer(), second.answer()), (Some("blue"), Some("blue")));
    assert_eq!(house.vendor.calls().len(), 3);
    assert_eq!(second.saved().cost + second.cost(), first.cost());
}

/// Counts the requests for permits.
struct Counting {
    limiter: Arc<dyn Limiter>,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Limiter for Counting {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.limiter.acquire(request).await
    }
}

/// Records the published frames.
struct Noting {
    live: Arc<dyn LiveStream>,
    frames: Arc<Mutex<Vec<(RunId, Frame)>>>,
}

#[async_trait]
impl LiveStream for Noting {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        if let Signal::Frame(frame) = &signal {
            self.frames.lock().unwrap().push((run, frame.clone()));
        }
        self.live.publish(run, signal).await
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        self.live.subscribe(run).await
    }
}

#[tokio::test]
async fn a_cached_output_takes_no_permit_and_is_shown_to_watchers() {
    let (asked, frames) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
    let tamper = |parts: &mut Parts| {
        let limiter = Arc::clone(&parts.limiter);
        parts.limiter = Arc::new(Counting { limiter, asked: Arc::clone(&asked) });
        let live = Arc::clone(&parts.live);
        parts.live = Arc::new(Noting { live, frames: Arc::clone(&frames) });
    };
    let house = a_house_with(one_step(), tamper).await;
    house.vendor.otherwise(Answer::text("blue"));
    ended(&house, cold()).await;
    frames.lock().unwrap().clear();
    let run = ended(&house, cold()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let shown = frames.lock().unwrap().clone();
    let [(id, frame)] = shown.as_slice() else { unreachable!("one frame: {shown:?}") };
    assert_eq!((*id, frame.claim, frame.offset), (run.id(), last_attempt(&run).claim, 0));
    assert_eq!(frame.text, "blue");
}

/// A cache that never answers.
struct Broken;

#[async_trait]
impl StepCache for Broken {
    async fn look_up(&self, _: &CacheKey) -> Result<Option<CachedOutput>, CacheError> {
        Err(CacheError("away".into()))
    }

    async fn keep(&self, _: &CacheKey, _: &CachedOutput) -> Result<(), CacheError> {
        Err(CacheError("away".into()))
    }
}

#[tokio::test]
async fn a_failing_cache_is_counted_and_has_no_other_effect() {
    let house = a_house_with(one_step(), |parts| parts.cache = Some(Arc::new(Broken))).await;
    house.vendor.otherwise(Answer::text("blue"));
    for _ in 0..2 {
        assert_eq!(ended(&house, cold()).await.answer(), Some("blue"));
    }
    assert_eq!(house.vendor.calls().len(), 2);
    let counts = house.engine.cache_counts();
    assert!(counts.failures >= 4 && counts.hits == 0, "{counts:?}");
}
