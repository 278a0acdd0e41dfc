//! Estimates of a run's cost before it exists: bounds, and the typical cost of similar runs.

use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::usage::Usage;
use podium_engine::{Submit, Typical};
use podium_testkit::{Answer, Fault, plan_of};

use crate::house::{House, request};

fn ultra() -> Submit {
    request(Policy::new(Tier::Ultra, Effort::Medium))
}

#[tokio::test]
async fn an_estimate_has_a_typical_cost_after_enough_runs() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let typical = async |asked: Submit| house.engine.estimate(&asked).await.unwrap().typical;
    let usage = Usage { completion_tokens: 1_000, ..Answer::USAGE };
    let (short, long) = (|| Answer::text("fine"), || Answer::text("fine").usage(Some(usage)));
    house
        .vendor
        .script("quick", [short(), long(), Answer::refuse(Fault::Rejected), short(), long(), short()]);
    let mut costs = Vec::new();
    for number in 0..6 {
        assert_eq!(typical(ultra()).await, None, "after {number} runs");
        costs.push(house.ended(house.ask().await).await.cost());
    }
    assert!(costs[1] > costs[0], "the long answers are more expensive: {costs:?}");
    assert_eq!(typical(ultra()).await, Some(Typical { cost: costs[0], runs: 5 }));
    let other_model = Submit { model: "podium-mini".to_owned(), ..ultra() };
    assert_eq!(typical(other_model).await, None);
}
