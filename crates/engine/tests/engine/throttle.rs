//! A vendor without capacity does not delay others, and steps that wait for it commit nothing.

use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::plan::Plan;
use podium_domain::policy::Tier;
use podium_domain::run::Run;
use podium_memory::MemoryLimiter;
use podium_ports::limiter::{Grant, Limiter, Outcome, Settlement};
use podium_testkit::limiter::Caller;
use podium_testkit::{Answer, TestClock, a_pool, plan_of};

use crate::house::{House, quick};

const RUNS: usize = 40;

/// A limiter whose vendor of `quick` has requested this back-off.
async fn blocked_for(retry_after: Duration) -> MemoryLimiter {
    let limiter = MemoryLimiter::new(std::sync::Arc::new(TestClock::new()));
    let worker = a_pool().workers()[0].clone();
    let asked = limiter.acquire(&Caller::new(0).request(&worker)).await.unwrap();
    let Grant::Permit(permit) = asked else { panic!("there is room") };
    permit.settle(Settlement::of(Outcome::Limited { retry_after: Some(retry_after) }));
    limiter
}

async fn a_house(retry_after: Duration) -> House {
    let mut house = House::idle(quick(), |store| store).await;
    house.parts.limiter = std::sync::Arc::new(blocked_for(retry_after).await);
    let queue = std::sync::Arc::clone(&house.parts.queue);
    let house = house.with_queue(queue, quick()).at_work();
    house.vendor.otherwise(Answer::text("fine"));
    house
}

async fn ask_all(house: &House, plan: Plan) -> Vec<RunId> {
    house.conductor.otherwise(plan);
    let mut ids = Vec::new();
    for _ in 0..RUNS {
        ids.push(house.ask().await);
    }
    for id in &ids {
        house.until(*id, |run| run.rounds()[0].planned.is_some()).await;
    }
    ids
}

async fn all(house: &House, ids: &[RunId]) -> Vec<Run> {
    house.parts.store.load(ids).await.unwrap().into_iter().flatten().collect()
}

#[tokio::test]
async fn runs_of_a_vendor_without_capacity_wait_without_commits() {
    let house = a_house(Duration::from_hours(1)).await;
    let stuck = ask_all(&house, plan_of(&[("quick", "Do it.", &[])])).await;
    let before: Vec<_> = all(&house, &stuck).await.iter().map(Run::version).collect();
    for id in ask_all(&house, plan_of(&[("careful", "Do it.", &[])])).await {
        assert_eq!(house.ended(id).await.answer(), Some("fine"));
    }
    let runs = all(&house, &stuck).await;
    assert_eq!(runs.iter().map(Run::version).collect::<Vec<_>>(), before, "nothing was committed for them");
    assert!(runs.iter().all(|run| !run.is_ended() && run.spec().request.policy.tier == Tier::Ultra));
    assert!(house.vendor.calls_of("quick").is_empty());
}

#[tokio::test]
async fn waiting_steps_take_one_attempt_once_the_vendor_has_capacity() {
    let house = a_house(Duration::from_millis(300)).await;
    for id in ask_all(&house, plan_of(&[("quick", "Do it.", &[])])).await {
        let run = house.ended(id).await;
        assert_eq!(run.answer(), Some("fine"));
        let attempts: usize = run.rounds()[0].steps.iter().map(|step| step.task.attempts.len()).sum();
        assert_eq!(attempts, 1);
    }
    assert_eq!(house.vendor.calls_of("quick").len(), RUNS);
}
