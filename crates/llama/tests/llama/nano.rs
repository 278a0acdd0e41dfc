//! The conductor that ships, `models/nano`, asked the demo's question.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::PlanResult;
use podium_llama::bundle::Bundle;
use podium_llama::{LlamaConductor, LlamaOptions};
use podium_ports::conductor::{Conductor, PlanRequest};
use tokio_util::sync::CancellationToken;

use crate::conductor::pool;

const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, \
    and write the result in words.";

#[tokio::test]
async fn the_demo_question_is_split_over_the_workers_that_it_needs() {
    let bundle = Bundle::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano")).unwrap();
    let slots: Vec<&str> = bundle.manifest().pool.slots.iter().map(WorkerId::as_str).collect();
    let options =
        LlamaOptions { waiting_max: NonZeroUsize::MIN, threads: Some(NonZeroUsize::MIN), gpu_layers: 0 };
    let conductor = LlamaConductor::open(&bundle, &pool(&slots), options).unwrap();
    let request = PlanRequest {
        question: QUESTION.to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        time_max: Duration::from_mins(2),
    };
    let outcome = conductor.plan(&request, &|_| {}, &CancellationToken::new()).await.unwrap();
    let PlanResult::Plan(planned) = outcome.result else { panic!("{outcome:?}") };
    let workers: Vec<_> = planned.plan.steps().iter().map(|step| step.worker.as_str()).collect();
    assert_eq!(workers, ["sim-dates", "sim-arithmetic", "sim-words"]);
    let subtasks: Vec<_> = planned.plan.steps().iter().map(|step| step.subtask.as_str()).collect();
    assert_eq!(
        subtasks,
        [
            "the number of days between 3 March 2024 and 17 May 2025",
            "multiply the result by 12",
            "write the result in words"
        ]
    );
    let seen: Vec<_> = planned.plan.steps().iter().map(|step| step.access.as_slice().len()).collect();
    assert_eq!(seen, [0, 1, 1]);
    conductor.shut_down().await;
}
