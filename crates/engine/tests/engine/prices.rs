//! The cost of an attempt follows the price list that was valid when it began.

use std::sync::Arc;

use podium_domain::money::{Price, Prices};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::prices::{PriceList, PriceLists};
use podium_domain::run::{FailReason, RunState};
use podium_domain::time::Timestamp;
use podium_testkit::{Answer, TestClock, a_pool, plan_of};

use crate::house::{House, Roles, quick};

/// The test pool with two price lists for its worker `quick`, the second one ten times as expensive.
fn priced_from(first: Timestamp, second: Timestamp) -> Pool {
    let usd = |usd| Price::from_usd_per_million_tokens(usd).unwrap();
    let list = |from, factor| PriceList::new(from, Prices::plain(usd(factor), usd(2.0 * factor)));
    let mut workers = a_pool().workers().to_vec();
    workers[0].prices = PriceLists::new(vec![list(first, 1.0), list(second, 10.0)]).unwrap();
    a_pool().with_workers(workers)
}

async fn house_with(pool: Pool) -> House {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("done"));
    house.beside(quick(), 8, |parts| parts.pool = Arc::new(pool)).at_work()
}

#[tokio::test]
async fn an_attempt_has_the_prices_that_were_valid_when_it_began() {
    let (long_ago, later) = (Timestamp::from_unix_ms(0), Timestamp::from_unix_ms(u64::MAX));
    for (second, expected_nano_usd) in [(later, 100_000 + 20_000), (TestClock::START, 1_000_000 + 200_000)] {
        let house = house_with(priced_from(long_ago, second)).await;
        let run = house.ended(house.ask().await).await;
        let [attempt] = &run.rounds()[0].steps[0].task.attempts[..] else { panic!("{run:?}") };
        assert_eq!(attempt.cost.nano_usd(), expected_nano_usd);
    }
}

#[tokio::test]
async fn a_worker_whose_prices_are_not_valid_yet_is_never_called() {
    let later = TestClock::START.after(std::time::Duration::from_hours(24));
    let house = house_with(priced_from(later, Timestamp::from_unix_ms(u64::MAX))).await;
    let soon = Policy { deadline_ms: 2_500, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let run = house.ended(house.ask_under(soon).await).await;
    let RunState::Failed { reason: FailReason::FinalStepFailed { message, .. } } = run.state() else {
        panic!("{run:?}")
    };
    assert_eq!(message, "worker `quick` has no price list that is valid yet");
    assert!(house.vendor.calls().is_empty());
}

#[tokio::test]
async fn a_step_of_an_unknown_worker_is_left_to_other_executors() {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("done"));
    let older = a_pool().with_workers(a_pool().workers()[1..].to_vec());
    let lacking = house.beside(quick(), 8, |parts| parts.pool = Arc::new(older)).at_work_as(Roles::EXECUTOR);
    let id = house.ask().await;
    let newer = house.beside(quick(), 9, |_| {}).at_work();
    let run = newer.ended(id).await;
    assert_eq!((run.answer(), run.rounds()[0].steps[0].task.attempts.len()), (Some("done"), 1));
    drop(lacking);
}
