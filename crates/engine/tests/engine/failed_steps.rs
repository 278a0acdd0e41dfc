//! Failed steps and workers that decline to answer: the course of the run and its recorded reasons.

use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, FailedStep, Policy, Tier};
use podium_domain::run::{FailReason, FinishReason, Run, RunState};
use podium_domain::usage::Usage;
use podium_ports::conductor::{Abilities, ConductorError, PlanRequest};
use podium_testkit::{Answer, Fault, Planning, plan_of};

use crate::house::{House, one, quick};

/// Two steps, and a third one that sees both.
fn first_plan() -> Planning {
    Planning::gives(plan_of(&[
        ("quick", "Do it.", &[]),
        ("careful", "Do that.", &[]),
        ("checker", "Join them.", &[0, 1]),
    ]))
}

fn second_plan() -> Planning {
    Planning::gives(plan_of(&[("checker", "Answer it.", &[])]))
}

fn on_failure(failed_step: FailedStep) -> Policy {
    Policy { failed_step, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

/// An engine whose conductor can correct a plan.
async fn correcting() -> House {
    let house = House::idle(quick(), |store| store).await;
    let abilities = Abilities { steps_max: 5, rounds_max: 4, failed_step: FailedStep::Replan };
    let able = house.conductor.clone().able_to(abilities);
    house.beside(quick(), 8, |parts| parts.conductors = one(able)).at_work()
}

fn failure(run: &Run) -> &FailReason {
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    reason
}

#[tokio::test]
async fn a_conductor_that_sees_the_failure_corrects_the_plan() {
    let house = correcting().await;
    house.conductor.script([first_plan(), second_plan()]);
    house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
    house.vendor.script("careful", [Answer::text("that is 7")]);
    house.vendor.script("checker", [Answer::text("the corrected answer")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!((run.answer(), run.is_degraded()), (Some("the corrected answer"), false));
    assert_eq!(house.vendor.calls_of("checker").len(), 1, "no worker is called to join a missing result");
    let earlier = house.conductor.requests()[1].earlier.clone().unwrap();
    assert!(!earlier.gave_answer);
    assert!(earlier.text.contains("(failed: ") && earlier.text.contains("that is 7"), "{}", earlier.text);
    let failed = run.failed_steps();
    assert_eq!((failed[0].round, failed[0].step.get(), failed[0].worker.as_str()), (0, 0, "quick"));
}

/// An engine whose conductor cannot judge an earlier round.
async fn planning_anew() -> House {
    let house = House::idle(quick(), |store| store).await;
    let abilities = Abilities { steps_max: 5, rounds_max: 1, failed_step: FailedStep::Replan };
    let able = house.conductor.clone().able_to(abilities);
    house.beside(quick(), 8, |parts| parts.conductors = one(able)).at_work()
}

#[tokio::test]
async fn a_conductor_that_judges_no_round_plans_without_failed_workers() {
    let house = planning_anew().await;
    house.conductor.script([first_plan(), second_plan()]);
    house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
    house.vendor.script("careful", [Answer::text("that is 7")]);
    house.vendor.script("checker", [Answer::text("the other answer")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!((run.answer(), run.rounds().len()), (Some("the other answer"), 2));
    let [first, second] = &house.conductor.requests()[..] else { panic!("two requests") };
    let allowed = |request: &PlanRequest| -> Vec<bool> {
        ["quick", "careful", "checker"].map(|id| request.policy.allows(&WorkerId::new(id).unwrap())).to_vec()
    };
    assert_eq!((allowed(first), allowed(second)), (vec![true; 3], vec![false, true, true]));
    assert_eq!((&second.earlier, &second.question), (&None, &first.question));
}

#[tokio::test]
async fn a_corrective_plan_may_end_in_a_refusal() {
    for house in [correcting().await, planning_anew().await] {
        house.conductor.script([first_plan(), second_plan()]);
        house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
        house.vendor.script("careful", [Answer::text("that is 7")]);
        house
            .vendor
            .script("checker", [Answer::text("I only do dates.").finish(FinishReason::ContentFilter)]);
        let run = house.ended(house.ask().await).await;
        assert_eq!((run.refusal(), run.is_degraded()), (Some("I only do dates."), false));
        let first = run.replanned_because().unwrap();
        assert!(first.to_string().starts_with("step 1 (worker `quick`) failed"), "{first}");
        assert_eq!((run.failed_steps()[0].round, run.failed_steps()[0].worker.as_str()), (0, "quick"));
    }
}

#[tokio::test]
async fn a_second_failed_plan_ends_the_run_with_the_first_failure() {
    let house = planning_anew().await;
    house.conductor.script([first_plan(), first_plan()]);
    house.vendor.script("quick", [Answer::refuse(Fault::Rejected), Answer::refuse(Fault::Rejected)]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert!(failure(&run).to_string().starts_with("step 1 (worker `quick`) failed"), "{}", failure(&run));
    assert_eq!((house.conductor.requests().len(), run.rounds().len()), (2, 2), "one corrective plan per run");
    assert!(house.vendor.calls_of("checker").is_empty());
}

#[tokio::test]
async fn a_failed_corrective_plan_ends_the_run_with_the_first_failure() {
    for house in [correcting().await, planning_anew().await] {
        ends_with_the_first_failure(&house).await;
    }
}

async fn ends_with_the_first_failure(house: &House) {
    let (usage, message) = (Usage::default(), "unequal lists".to_owned());
    let cost = podium_domain::money::Cost::ZERO;
    let no_plan = ConductorError::NoPlan { tries: 3, message, usage, cost };
    let keeps = Planning::keeps_answer();
    for second in [Planning::fails(no_plan), keeps] {
        house.conductor.script([first_plan(), second]);
        house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
        house.vendor.otherwise(Answer::text("fine"));
        let run = house.ended(house.ask().await).await;
        assert_eq!(failure(&run).code(), "step_failed");
        assert!(failure(&run).to_string().starts_with("step 1 (worker `quick`) failed"), "{}", failure(&run));
        assert_eq!(run.rounds()[1].abandoned.as_ref().map(FailReason::code), Some("planning_failed"));
    }
    assert!(house.vendor.calls_of("checker").is_empty(), "a corrective plan has no fallback");
}

#[tokio::test]
async fn a_run_whose_conductor_cannot_correct_a_plan_fails() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan()]);
    house.vendor.script("quick", [Answer::refuse(Fault::Rejected)]);
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!((failure(&run).code(), house.conductor.requests().len()), ("step_failed", 1));
    assert!(house.vendor.calls_of("checker").is_empty());
}

#[tokio::test]
async fn a_declined_step_is_not_used_and_has_no_fallback() {
    let house = correcting().await;
    let declines = Answer::text("I only do dates.").finish(FinishReason::ContentFilter);
    let silent = Answer::blank().finish(FinishReason::ContentFilter);
    for (answer, reason) in [
        (declines, "the worker declined to answer: I only do dates."),
        (silent, "the worker declined to answer"),
    ] {
        house.conductor.script([first_plan(), second_plan()]);
        house.vendor.script("quick", [answer]);
        house.vendor.script("careful", [Answer::text("that is 7")]);
        house.vendor.script("checker", [Answer::text("the corrected answer")]);
        let run = house.ended(house.ask().await).await;
        assert_eq!(run.answer(), Some("the corrected answer"));
        assert_eq!(run.failed_steps()[0].reason, reason);
        assert_eq!((run.fallbacks(), run.rounds()[0].steps[0].task.attempts.len()), (0, 1));
    }
}

#[tokio::test]
async fn a_final_step_that_declines_is_a_refusal() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let declines = Answer::text("I cannot help.").finish(FinishReason::ContentFilter);
    let silent = Answer::blank().finish(FinishReason::ContentFilter);
    for (answer, said) in [(declines, "I cannot help."), (silent, "")] {
        house.vendor.script("quick", [answer]);
        let run = house.ended(house.ask_under(on_failure(FailedStep::Replan)).await).await;
        assert_eq!(run.refusal(), Some(said));
        assert_eq!(run.rounds()[0].steps[0].task.attempts.len(), 1, "a refusal is not retried");
    }
    assert_eq!(house.vendor.calls().len(), 2);
}
