//! The conductors without a local model.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

mod remote;
mod remote_form;
mod remote_limits;
mod remote_metrics;
mod remote_safety;
mod without_model;
mod workflows;

use std::time::Duration;

use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{PlanResult, Planned};
use podium_domain::time::Timestamp;
use podium_ports::conductor::{PlanOutcome, PlanRequest};
use podium_testkit::an_asker;

fn request() -> PlanRequest {
    PlanRequest {
        asker: an_asker(),
        question: "Why is the sky blue?".to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        asked_at: Timestamp::default(),
        time_max: Duration::from_mins(1),
    }
}

fn planned(outcome: &PlanOutcome) -> &Planned {
    match &outcome.result {
        PlanResult::Plan(planned) => planned,
        PlanResult::KeepAnswer => panic!("there was no answer to keep"),
    }
}
