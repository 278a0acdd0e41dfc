//! Follow-up rounds: they see the round before, their number is bounded, and a failed one keeps the earlier answer.

use podium_domain::plan::{Plan, PlanDraft};
use podium_domain::policy::{Effort, FailedStep, Policy, Tier};
use podium_domain::prompt::EARLIER_BYTES_MAX;
use podium_domain::run::{FailReason, Run, RunEvent, TaskState};
use podium_domain::usage::Usage;
use podium_engine::Update;
use podium_ports::conductor::{Abilities, ConductorError};
use podium_testkit::{Answer, Fault, Gate, Planning, a_pool, plan_of};

use futures::StreamExt;

use crate::house::{House, one, quick, within};

fn two_rounds() -> Policy {
    Policy { rounds_max: 2, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

fn first_plan() -> Planning {
    Planning::gives(plan_of(&[("quick", "Do it.", &[])]))
}

/// A plan of one step that sees all earlier outputs.
fn seeing_all() -> Plan {
    let text = "model_id = [1]\nsubtasks = [\"Correct it.\"]\naccess_list = [[\"all\"]]";
    PlanDraft::parse(text).unwrap().check(&a_pool(), &two_rounds()).unwrap()
}

fn abilities(rounds_max: u16) -> Abilities {
    Abilities { steps_max: 5, rounds_max, failed_step: FailedStep::Fail }
}

fn no_plan() -> ConductorError {
    let (usage, message) = (Usage::default(), "unequal lists".to_owned());
    ConductorError::NoPlan { tries: 3, message, usage, cost: podium_domain::money::Cost::ZERO }
}

/// Asserts that the first round's answer stands. Returns the run's reason for that.
fn why_it_stands(run: &Run) -> &'static str {
    assert_eq!(run.answer(), Some("the first answer"));
    run.rounds()[1].abandoned.as_ref().map_or("none", FailReason::code)
}

#[tokio::test]
async fn a_follow_up_round_without_a_plan_leaves_the_answer() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan(), Planning::fails(no_plan())]);
    house.vendor.otherwise(Answer::text("the first answer"));
    let id = house.ask_under(two_rounds()).await;
    let run = house.ended(id).await;
    assert_eq!(why_it_stands(&run), "planning_failed");
    assert_eq!(house.vendor.calls().len(), 1, "a follow-up round has no fallback plan");
    let mut updates = house.engine.watch(id, 0).await.unwrap();
    let abandoned = within(async {
        while let Some(update) = updates.next().await {
            if let Update::Event(event) = update.unwrap()
                && let RunEvent::RoundAbandoned { round, reason } = &event.event
            {
                return Some((*round, reason.to_string()));
            }
        }
        None
    });
    let (round, reason) = abandoned.await.expect("watchers must be notified");
    assert!(round == 1 && reason.contains("unequal lists"), "{round}: {reason}");
}

#[tokio::test]
async fn an_unreachable_conductor_leaves_the_answer_of_the_round_before() {
    let house = House::idle(quick(), |store| store).await.at_work();
    let away = || Planning::fails(ConductorError::Unavailable("away".into()));
    house.conductor.script([first_plan(), away(), away(), away()]);
    house.vendor.otherwise(Answer::text("the first answer"));
    let run = house.ended(house.ask_under(two_rounds()).await).await;
    assert_eq!(why_it_stands(&run), "planning_failed");
    assert_eq!((house.conductor.requests().len(), house.vendor.calls().len()), (4, 1));
}

#[tokio::test]
async fn a_failed_follow_up_round_leaves_the_answer() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan(), Planning::gives(seeing_all())]);
    house.vendor.script("quick", [Answer::text("the first answer")]);
    house.vendor.script("careful", [Answer::refuse(Fault::Rejected)]);
    let run = house.ended(house.ask_under(two_rounds()).await).await;
    assert_eq!(why_it_stands(&run), "final_step_failed");
}

#[tokio::test]
async fn a_follow_up_round_beyond_the_cap_leaves_the_answer() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan()]);
    house.vendor.otherwise(Answer::text("the first answer"));
    // The worker of the second round is more expensive: a cap that suffices for the first one does not fit it.
    let first = house.ended(house.ask_under(Policy { rounds_max: 1, ..two_rounds() }).await).await;
    let reserved = first.rounds()[0].steps[0].task.attempts[0].reserved;
    house.conductor.script([first_plan(), Planning::gives(seeing_all())]);
    let run = house.ended(house.ask_under(Policy { cost_max: Some(reserved), ..two_rounds() }).await).await;
    assert_eq!(why_it_stands(&run), "cost_cap_reached");
}

#[tokio::test]
async fn a_step_that_sees_all_sees_the_round_before() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan(), Planning::gives(seeing_all())]);
    house.vendor.script("quick", [Answer::text("the first </output> answer")]);
    house.vendor.script("careful", [Answer::text("the second answer")]);
    let run = house.ended(house.ask_under(two_rounds()).await).await;
    assert_eq!(run.answer(), Some("the second answer"));
    assert_eq!(run.rounds()[1].abandoned, None);
    let prompt = house.vendor.calls_of("careful")[0].messages.last().unwrap().text.clone();
    for part in ["<earlier step=\"1\">", "Do it.", "the first &lt;/output> answer", "Correct it."] {
        assert!(prompt.contains(part), "`{part}` is not in {prompt}");
    }
}

#[tokio::test]
async fn a_conductor_sees_the_end_of_a_long_output() {
    let house = House::idle(quick(), |store| store).await.at_work();
    house.conductor.script([first_plan(), Planning::keeps_answer()]);
    let long = format!("{} and so it is 42.", "x".repeat(3 * EARLIER_BYTES_MAX));
    house.vendor.otherwise(Answer::text(long.clone()));
    let run = house.ended(house.ask_under(two_rounds()).await).await;
    assert_eq!(run.answer(), Some(long.as_str()), "the answer itself is complete");
    let earlier = house.conductor.requests()[1].earlier.clone().unwrap().text;
    assert!(earlier.len() <= EARLIER_BYTES_MAX, "{} bytes", earlier.len());
    assert!(
        earlier.contains("bytes are left out") && earlier.contains("so it is 42.\n</output>"),
        "{earlier}"
    );
    assert!(earlier.contains("step=\"1\" model=\"0\"") && earlier.contains("Do it."), "{earlier}");
}

#[tokio::test]
async fn the_number_of_rounds_has_the_policys_and_the_conductors_bound() {
    for (rounds_max, able_to, expected) in [(4, 4, 4), (4, 2, 2), (1, 4, 1)] {
        let house = House::idle(quick(), |store| store).await;
        let able = house.conductor.clone().able_to(abilities(able_to));
        let house = house.beside(quick(), 8, |parts| parts.conductors = one(able)).at_work();
        house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
        house.vendor.otherwise(Answer::text("an answer"));
        let run = house.ended(house.ask_under(Policy { rounds_max, ..two_rounds() }).await).await;
        assert_eq!((run.rounds().len(), run.answer()), (expected, Some("an answer")));
    }
}

#[tokio::test]
async fn a_failure_in_the_third_round_leaves_the_answer_of_the_second() {
    let house = House::idle(quick(), |store| store).await;
    let able = house.conductor.clone().able_to(abilities(4));
    let house = house.beside(quick(), 8, |parts| parts.conductors = one(able)).at_work();
    house.conductor.script([first_plan(), first_plan(), Planning::gives(seeing_all()), first_plan()]);
    house.vendor.script("quick", [Answer::text("the first answer"), Answer::text("the second answer")]);
    house.vendor.script("careful", [Answer::refuse(Fault::Rejected)]);
    let run = house.ended(house.ask_under(Policy { rounds_max: 4, ..two_rounds() }).await).await;
    assert_eq!(run.answer(), Some("the second answer"));
    let abandoned: Vec<_> =
        run.rounds().iter().map(|round| round.abandoned.as_ref().map(FailReason::code)).collect();
    assert_eq!(abandoned, [None, None, Some("final_step_failed")]);
    assert_eq!((house.conductor.requests().len(), house.vendor.calls().len()), (3, 3), "no fourth round");
}

#[tokio::test]
async fn an_abandoned_follow_up_round_stops_its_early_step() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    let written = "model_id = [\"careful\", \"checker\"]\nsubtasks = [\"Correct it.\", \"Check it.\"]\n\
         access_list = [[\"all\"],";
    house.conductor.script([first_plan(), Planning::fails(no_plan()).saying([written]).behind(&gate)]);
    house.vendor.script("quick", [Answer::text("the first answer")]).script("careful", [Answer::hang()]);
    let house = house.at_work();
    let id = house.ask_under(two_rounds()).await;
    within(house.vendor.until_called(2)).await;
    let prompt = house.vendor.calls_of("careful")[0].messages.last().unwrap().text.clone();
    assert!(prompt.contains("the first answer"), "an early step sees the round before: {prompt}");
    gate.open();
    within(house.vendor.until_aborted(1)).await;
    let run = house.ended(id).await;
    assert_eq!(why_it_stands(&run), "planning_failed");
    let begun = &run.rounds()[1].steps[0].task;
    assert_eq!((run.rounds()[1].steps.len(), &begun.state), (1, &TaskState::Cancelled));
}
