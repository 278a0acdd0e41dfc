//! The engine has the metrics that the page describes, and they match the runs. Each test is a separate process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::KeyId;
use podium_domain::money::Cost;
use podium_domain::plan::Plan;
use podium_domain::policy::{BrokenAnswer, Effort, Policy, StepCaching, Tier};
use podium_domain::run::Run;
use podium_domain::sampling::Sampling;
use podium_domain::usage::Usage;
use podium_engine::{Submit, SubmitError};
use podium_memory::{MemoryCache, MemoryQueue, QueueOptions};
use podium_ports::accounts::Accounts as _;
use podium_ports::cache::CacheOptions;
use podium_ports::clock::Clock;
use podium_ports::conductor::ConductorError;
use podium_ports::limiter::RefusalReason;
use podium_store_sqlite::{Options as StoreOptions, Store};
use podium_testkit::metrics::{Measured, Meters, assert_described};
use podium_testkit::{Answer, Fault, Gate, Planning, TestClock, a_tenant, plan_of};

use crate::guarded::Guarded;
use crate::house::{House, Parts, Roles, quick, request, with};

const PAGE: &str = include_str!("../../../../docs/metrics.md");
/// The cost of planning, where a test wants one.
const PLANNING: u64 = 77;

fn ultra() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

fn one_step() -> Plan {
    plan_of(&[("quick", "Do it.", &[])])
}

/// A working engine whose conductor plans one step by `quick`, with some parts replaced.
async fn a_house(tamper: impl FnOnce(&mut Parts)) -> House {
    let idle = House::idle(quick(), |store| store).await;
    idle.conductor.otherwise(one_step());
    idle.beside(quick(), 8, tamper).at_work()
}

async fn ended(house: &House, submit: Submit) -> Run {
    house.ended(house.engine.submit(submit).await.unwrap().run_id()).await
}

/// Waits until the metrics fulfil a condition, because the follow-up of a commit is measured after it.
async fn until(
    meters: &Meters,
    wanted: impl Fn(&BTreeMap<String, Measured>) -> bool,
) -> BTreeMap<String, Measured> {
    crate::house::within(async {
        loop {
            let measured = meters.read();
            if wanted(&measured) {
                return measured;
            }
            TestClock::new().sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// A plan at the second try, two retries of its step, and a fallback worker.
async fn fallbacks() -> Vec<Run> {
    let house = a_house(|_| ()).await;
    let half = || Answer::text("ha").fail(Fault::Garbled);
    house.vendor.script("quick", [half(), Answer::refuse(Fault::Failed), Answer::refuse(Fault::Failed)]);
    house.vendor.script("checker", [Answer::text("fine")]);
    let busy = ConductorError::Unavailable("busy".into()).charged(Usage::NONE, Cost::from_nano_usd(PLANNING));
    let planning = Planning::fails(busy);
    house.conductor.script([planning]);
    let again = Policy { broken_answer: BrokenAnswer::Again, ..ultra() };
    vec![ended(&house, request(again)).await]
}

/// An open circuit breaker.
async fn breakers() -> Vec<Run> {
    let guard = |parts: &mut Parts| {
        parts.limiter = Guarded::around(Arc::clone(&parts.limiter), &["quick"], RefusalReason::Broken);
    };
    let house = a_house(guard).await;
    house
        .vendor
        .otherwise(Answer::text("fine").usage(Some(Usage { completion_tokens: 1 << 40, ..Answer::USAGE })));
    vec![ended(&house, request(ultra())).await]
}

/// The same question twice.
async fn recalls() -> Vec<Run> {
    let with_cache = |parts: &mut Parts| {
        parts.cache = Some(Arc::new(MemoryCache::new(Arc::clone(&parts.clock), CacheOptions::default())));
    };
    let house = a_house(with_cache).await;
    house.vendor.otherwise(Answer::text("blue"));
    let sampling = Sampling { temperature: Some(0.0), ..Sampling::NONE };
    let cold = || {
        assert_eq!(ultra().step_cache, StepCaching::Exact);
        with(request(ultra()), |request| request.sampling = sampling)
    };
    vec![ended(&house, cold()).await, ended(&house, cold()).await]
}

/// A budget without capacity.
async fn refusals() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("podium.db"), StoreOptions::default()).await.unwrap();
    let payer = Payer::Key(KeyId::new("key_0").unwrap());
    let budget =
        Budget { payer, tenant: a_tenant(), period: Period::Total, cap: Some(Cost::from_nano_usd(1)) };
    let house = House::idle(quick(), |_| Arc::new(store.clone())).await;
    store.set_budget(&budget).await.unwrap();
    let refused = house.engine.submit(Submit { budgets: vec![budget], ..request(ultra()) }).await;
    assert!(matches!(refused, Err(SubmitError::OverBudget(_))), "{refused:?}");
}

/// A lane that is full.
async fn floods(meters: &Meters) -> Vec<Run> {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(one_step());
    house.vendor.otherwise(Answer::text("fine"));
    let options = QueueOptions { lane_messages_max: 1, ..QueueOptions::default() };
    let queue = Arc::new(MemoryQueue::new(Arc::new(TestClock::new()), options));
    let house = house.with_queue(queue, quick());
    let ids = [house.ask().await, house.ask().await, house.ask().await];
    let is_contended = |measured: &BTreeMap<String, Measured>| {
        measured.get("podium.lane.contended").is_some_and(|gauge| gauge.value("podium.lane=ultra.plan") > 0)
    };
    until(meters, is_contended).await;
    let house = house.at_work();
    let mut runs = Vec::new();
    for id in ids {
        runs.push(house.ended(id).await);
    }
    until(meters, |measured| !is_contended(measured)).await;
    runs
}

/// A run that nobody plans before its deadline.
async fn overdue() -> Vec<Run> {
    let house = House::idle(quick(), |store| store).await.at_work_as(Roles::NONE);
    vec![ended(&house, request(Policy { deadline_ms: 1, ..ultra() })).await]
}

#[tokio::test]
async fn the_metrics_match_their_page_and_the_runs() {
    let meters = Meters::start();
    refusals().await;
    let overdue = overdue().await;
    let (fallbacks, breakers) = (fallbacks().await, breakers().await);
    let all = [overdue, fallbacks, breakers, recalls().await, floods(&meters).await].concat();
    let measured = until(&meters, |measured| {
        measured.get("podium.run.duration").is_some_and(|duration| {
            duration.points.values().map(|point| point.count).sum::<u64>() == all.len() as u64
        })
    })
    .await;
    assert_described(PAGE, "The engine", &measured);

    let of = |name: &str| &measured[name];
    assert_eq!(of("podium.run.accepted").total(), all.len() as u64);
    let cost: u64 = all.iter().map(|run| run.cost().nano_usd()).sum();
    assert_eq!(of("podium.plan.cost").total(), PLANNING);
    assert_eq!(of("podium.cost").total() + of("podium.plan.cost").total(), cost);
    let wasted: u64 = all.iter().map(|run| run.wasted_cost().nano_usd()).sum();
    let useful: u64 = of("podium.cost")
        .points
        .iter()
        .filter(|(key, _)| key.contains("spent=output"))
        .map(|(_, point)| point.value)
        .sum();
    let wasted_by_workers = wasted - PLANNING;
    assert_eq!(of("podium.cost").total() - useful, wasted_by_workers);
    let saved: u64 = all.iter().map(|run| run.saved().cost.nano_usd()).sum();
    assert_eq!(of("podium.cache.saved_cost").value("podium.worker=quick"), saved);
    assert!(wasted_by_workers > 0 && saved > 0);
    assert_eq!(of("podium.run.wasted_cost").value("podium.tier=ultra"), wasted);
    let wasted = |of: fn(&Usage) -> u64| all.iter().map(|run| of(&run.wasted_usage())).sum::<u64>();
    let tokens =
        |kind| of("podium.run.wasted_tokens").value(&format!("gen_ai.token.type={kind},podium.tier=ultra"));
    assert_eq!(tokens("input"), wasted(|usage| usage.prompt_tokens));
    assert_eq!(tokens("output"), wasted(|usage| usage.completion_tokens));
    let delay = &of("podium.sweep.delay").points[""];
    assert_eq!((delay.count, delay.value), (1, 0), "the sweeper was not late");

    let attempts = of("podium.step.attempts");
    assert_eq!(attempts.value("podium.outcome=failed,podium.worker=quick"), 3);
    assert_eq!(attempts.value("podium.outcome=cached,podium.worker=quick"), 1);
    let made = all
        .iter()
        .flat_map(Run::rounds)
        .flat_map(|round| &round.steps)
        .map(|step| step.task.attempts.len() as u64);
    assert_eq!(attempts.total(), made.sum::<u64>());
    assert_eq!(of("podium.step.ended").total(), all.len() as u64 - 1, "the overdue run has no step");
    let plans = of("podium.plan.attempts");
    assert_eq!(plans.value("podium.outcome=failed,podium.tier=ultra"), 1);
    assert_eq!(of("podium.step.retries").value("podium.worker=quick"), 2);
    assert_eq!(of("podium.step.fallbacks").value("podium.reason=failed,podium.worker=checker"), 1);
    assert_eq!(of("podium.step.fallbacks").value("podium.reason=shut,podium.worker=checker"), 1);
    assert_eq!(
        of("podium.breaker.open").value("podium.worker=quick"),
        0,
        "another limiter granted the permit"
    );
    assert_eq!(of("podium.permit.asked").value("podium.outcome=broken,podium.worker=quick"), 1);
    assert_eq!(of("podium.cache.lookups").value("podium.outcome=hit"), 1);
    assert_eq!(of("podium.call.usage_misreported").value("podium.worker=checker"), 1);
    assert_eq!(of("podium.budget.refusals").value("podium.payer=key,podium.stage=accept"), 1);
    assert!(of("podium.lane.published").value("podium.lane=ultra.plan,podium.outcome=full") >= 1);
}

#[tokio::test]
async fn counters_that_alerts_watch_begin_at_zero() {
    let meters = Meters::start();
    let _house = a_house(|_| ()).await;
    // Prometheus sees no increase in a series that begins at one.
    let zero = |measured: &BTreeMap<String, Measured>, name: &str, attributes: &str| {
        measured.get(name).and_then(|of| of.points.get(attributes)).is_some_and(|point| point.value == 0)
    };
    until(&meters, |measured| {
        zero(measured, "podium.sweep.found", "podium.kind=unreadable")
            && zero(measured, "podium.call.usage_misreported", "podium.worker=quick")
    })
    .await;
}

#[tokio::test]
async fn metrics_of_calls_have_conventional_names_and_no_tenants_but_one() {
    let meters = Meters::start();
    let house = a_house(|_| ()).await;
    house.vendor.script("quick", [Answer::refuse(Fault::Unreachable), Answer::text("blue")]);
    let run = ended(&house, request(ultra())).await;
    let measured = until(&meters, |measured| measured.contains_key("podium.run.duration")).await;
    let call = "gen_ai.operation.name=chat,gen_ai.provider.name=north,gen_ai.request.model=";
    let duration = &measured["gen_ai.client.operation.duration"];
    let failed = duration.points.iter().find(|(key, _)| key.starts_with("error.type=failed,")).unwrap();
    assert_eq!((failed.1.count, duration.points.len()), (1, 2));
    assert!(duration.points.keys().all(|key| key.contains(call) && key.contains("podium.worker=quick")));
    let tokens = &measured["gen_ai.client.token.usage"];
    let of = |kind: &str| {
        tokens.points.iter().filter(|(key, _)| key.contains(kind)).map(|(_, point)| point.value).sum::<u64>()
    };
    assert_eq!(run.answer(), Some("blue"));
    let usage = Answer::USAGE;
    assert_eq!((of("type=input"), of("type=output")), (usage.prompt_tokens, usage.completion_tokens));
    let tenants = &measured["podium.tenant.cost"];
    assert_eq!(
        (tenants.value("podium.tenant=acme"), tenants.total()),
        (run.cost().nano_usd(), run.cost().nano_usd())
    );
    let others = measured.iter().filter(|(name, _)| *name != "podium.tenant.cost");
    let all: String = others.flat_map(|(_, measured)| measured.points.keys().cloned()).collect();
    assert!(!all.contains("acme") && !all.contains(&run.id().to_string()), "{all}");
}

#[tokio::test]
async fn the_open_tasks_of_each_lane_are_those_of_the_store() {
    let meters = Meters::start();
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(one_step());
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().say("fi").wait(&gate).say("ne"));
    let options = QueueOptions { lane_messages_max: 1, ..QueueOptions::default() };
    let queue = Arc::new(MemoryQueue::new(Arc::new(TestClock::new()), options));
    let mut house = house.with_queue(queue, quick());
    let ids = [house.ask().await, house.ask().await, house.ask().await];
    // Nobody plans yet: one message fits the queue, the others wait in the store.
    let tasks = |measured: &BTreeMap<String, Measured>, lane: &str| {
        let tasks = measured.get("podium.lane.tasks");
        ["backlog", "queued", "running"].map(|state| {
            tasks.map_or(0, |all| all.value(&format!("podium.lane={lane},podium.state={state}")))
        })
    };
    house = house.at_work_as(Roles::NONE);
    let measured = until(&meters, |measured| tasks(measured, "ultra.plan").iter().sum::<u64>() > 0).await;
    assert_eq!(tasks(&measured, "ultra.plan"), [2, 1, 0]);
    assert_eq!(tasks(&measured, "mini.plan"), [0, 0, 0]);
    assert!(measured["podium.lane.tasks"].points.contains_key("podium.lane=mini.plan,podium.state=backlog"));
    house.stop().await;

    // The next process reads them when its turn begins.
    let mut house = house.beside(quick(), 8, |_| ()).at_work();
    gate.open();
    for id in ids {
        house.ended(id).await;
    }
    house.stop().await;
    let last = house.beside(quick(), 9, |_| ()).at_work_as(Roles::NONE);
    until(&meters, |measured| tasks(measured, "ultra.plan") == [0, 0, 0]).await;
    drop(last);
}
