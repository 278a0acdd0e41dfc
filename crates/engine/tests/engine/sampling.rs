//! Each call has the request's sampling parameters, as far as its worker supports them.

use std::sync::Arc;

use podium_domain::ids::StepIndex;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Feature;
use podium_domain::run::StepRef;
use podium_domain::sampling::Sampling;
use podium_engine::{Submit, SubmitError};
use podium_testkit::{Answer, a_plan, a_pool};

use crate::house::{House, Parts, quick, request, with};

const ASKED: Sampling = Sampling { temperature: Some(0.5), top_p: Some(0.9), seed: Some(7) };

fn asking(sampling: Sampling) -> Submit {
    with(request(Policy::new(Tier::Ultra, Effort::Medium)), |request| request.sampling = sampling)
}

#[tokio::test]
async fn each_worker_gets_the_sampling_parameters_that_it_supports() {
    let idle = House::idle(quick(), |store| store).await;
    idle.conductor.otherwise(a_plan());
    let without_temperature = |parts: &mut Parts| {
        let mut workers = a_pool().workers().to_vec();
        workers[1].features.remove(&Feature::Temperature);
        parts.pool = Arc::new(a_pool().with_workers(workers));
    };
    let house = idle.beside(quick(), 8, without_temperature).at_work();
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.engine.submit(asking(ASKED)).await.unwrap().run_id();
    let run = house.ended(run).await;
    assert_eq!(run.spec().request.sampling, ASKED);
    let asked = |worker: &str| {
        let call = house.vendor.calls_of(worker).remove(0);
        Sampling { temperature: call.temperature, top_p: call.top_p, seed: call.seed }
    };
    assert_eq!(asked("quick"), ASKED);
    let of_step = |number| ASKED.for_step(StepRef { round: 0, step: StepIndex::new(number) });
    assert_eq!(asked("careful"), Sampling { temperature: None, ..of_step(1) });
    assert_eq!(asked("checker"), of_step(2));
}

#[tokio::test]
async fn the_conductor_gets_the_seed_too() {
    let house = House::with_plan(a_plan()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let mut seeds = Vec::new();
    for seed in [Some(7), Some(7), Some(8), None, None] {
        let sampling = Sampling { seed, ..Sampling::NONE };
        house.ended(house.engine.submit(asking(sampling)).await.unwrap().run_id()).await;
        seeds.push(house.conductor.requests().last().unwrap().seed);
    }
    assert_eq!(seeds[0], seeds[1]);
    assert!(seeds[1] != seeds[2] && seeds[3] != seeds[4], "{seeds:?}");
}

#[tokio::test]
async fn a_parameter_out_of_bounds_is_rejected_by_name() {
    let house = House::idle(quick(), |store| store).await;
    let hot = Sampling { temperature: Some(2.5), ..ASKED };
    let refused = house.engine.submit(asking(hot)).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Sampling(_)));
    assert_eq!(refused.to_string(), "temperature is 2.5, it must be 0 to 2");
}
