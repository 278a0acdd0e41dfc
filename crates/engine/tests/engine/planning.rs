//! Planning leaves time and attempts for one worker. Time is virtual.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{AttemptOutcome, Run};
use podium_engine::Options;
use podium_memory::{MemoryQueue, QueueOptions};
use podium_ports::conductor::ConductorError;
use podium_ports::limiter::RefusalReason;
use podium_testkit::{Answer, Gate, Planning, TestStore, plan_of};

use crate::house::{House, within};

fn options() -> Options {
    Options { retry_pause: Duration::from_millis(1), drain: Duration::from_millis(1), ..Options::default() }
}

async fn a_house() -> House {
    let house = House::idle(options(), |_| Arc::new(TestStore::new())).await;
    // The fixture has opened a database that it does not use, in a separate thread. From now on no other thread runs.
    tokio::time::pause();
    let queue = MemoryQueue::new(Arc::clone(&house.parts.clock), QueueOptions::default());
    let house = house.with_queue(Arc::new(queue), options());
    house.vendor.otherwise(Answer::text("fine"));
    house
}

fn silent() -> Planning {
    Planning::gives(plan_of(&[("quick", "Do it.", &[])])).behind(&Gate::closed())
}

fn away() -> Planning {
    Planning::fails(ConductorError::Unavailable("a moment".into()))
}

fn policy(attempts_max: u32, deadline: Duration) -> Policy {
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap();
    Policy { attempts_max, deadline_ms, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

/// The reason why one worker got the question, if it did.
fn fallback(run: &Run) -> Option<&String> {
    run.rounds()[0].planned.as_ref().unwrap().fallback.as_ref()
}

#[tokio::test]
async fn a_silent_conductor_leaves_half_of_the_time_to_one_worker() {
    let house = a_house().await.at_work();
    house.conductor.script([silent()]);
    let run = house.ended(house.ask_under(policy(3, Duration::from_secs(20))).await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(fallback(&run).map(String::as_str), Some("the conductor did not finish within 10000 ms"));
    let took = run.ended_at().unwrap().since(run.spec().accepted_at);
    assert!((10_000..12_000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test]
async fn attempts_at_a_plan_together_leave_half_of_the_time() {
    let house = a_house().await.at_work();
    let full = || ConductorError::NoCapacity { why: RefusalReason::Rate, after: Duration::from_secs(4) };
    house.conductor.script((0..5).map(|_| Planning::fails(full())));
    let run = house.ended(house.ask_under(policy(5, Duration::from_secs(20))).await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(fallback(&run).is_some());
    assert_eq!(run.rounds()[0].planning.attempts.len(), 3, "after 0, 4 and 8 s; not after 12");
}

#[tokio::test]
async fn a_released_attempt_does_not_count() {
    let mut house = a_house().await.at_work();
    let plan = Planning::gives(plan_of(&[("quick", "Do it.", &[])]));
    house.conductor.script([silent(), silent(), away(), plan]);
    let id = house.ask_under(policy(2, Duration::from_mins(5))).await;
    for stops in 1..=2 {
        within(house.conductor.until_requested(stops)).await;
        house.stop().await;
        house = house.beside(options(), 8 + stops as u64, |_| {}).at_work();
    }
    let run = house.ended(id).await;
    assert_eq!((run.answer(), fallback(&run)), (Some("fine"), None));
    let outcomes: Vec<_> =
        run.rounds()[0].planning.attempts.iter().map(|attempt| attempt.outcome.clone()).collect();
    let [
        AttemptOutcome::HandedBack,
        AttemptOutcome::HandedBack,
        AttemptOutcome::Failed(_),
        AttemptOutcome::Accepted,
    ] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
}
