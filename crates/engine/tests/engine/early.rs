//! Steps that begin while the rest of their plan is being written.

use std::sync::Arc;

use futures::StreamExt;
use podium_domain::money::Cost;
use podium_domain::plan::Plan;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{Run, TaskState};
use podium_domain::usage::Usage;
use podium_engine::{AnswerPart, Update};
use podium_ports::conductor::ConductorError;
use podium_testkit::{Answer, Gate, Planning, plan_of};

use crate::faults::{FaultyStore, StoreFaults};
use crate::house::{House, a_queue, quick, request, with, within};

/// The conductor's text for [`a_chain`]: up to the end of the first subtask, and the rest.
const CHAIN: [&str; 2] = [
    "Draft, then check.\nmodel_id = [\"quick\", \"checker\"]\nsubtasks = [\"Draft it.\",",
    " \"Check it.\"]\naccess_list = [[], [0]]\n",
];
const SINGLE: &str = "model_id = [\"quick\"]\nsubtasks = [\"Do it.\"";

fn a_chain() -> Plan {
    plan_of(&[("quick", "Draft it.", &[]), ("checker", "Check it.", &[0])])
}

fn events(updates: &[Update]) -> Vec<&'static str> {
    let names = updates.iter().filter_map(|update| match update {
        Update::Event(event) => Some(event.event.name()),
        _ => None,
    });
    names.collect()
}

fn is_step_done(run: &Run) -> bool {
    run.rounds()[0].steps.first().is_some_and(|step| step.output.is_some())
}

#[tokio::test]
async fn the_first_step_runs_while_the_plan_is_being_written() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    house.conductor.script([Planning::gives(a_chain()).saying(CHAIN[..1].iter().copied()).behind(&gate)]);
    house.vendor.script("quick", [Answer::text("a draft")]).script("checker", [Answer::text("checked")]);
    let id = house.ask().await;
    let updates = house.engine.watch(id, 0).await.unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let house = house.at_work();
    let run = house.until(id, is_step_done).await;
    assert!(run.rounds()[0].plan().is_none(), "only the first step is known");
    gate.open();
    let (run, updates) = within(async { tokio::join!(house.ended(id), updates) }).await;
    assert_eq!((run.answer(), house.vendor.calls().len()), (Some("checked"), 2));
    let expected = [
        "accepted",
        "claimed",
        "steps_planned",
        "step_ready",
        "claimed",
        "step_done",
        "plan_ready",
        "step_ready",
        "claimed",
        "step_done",
        "succeeded",
    ];
    assert_eq!(events(&updates), expected);
}

#[tokio::test]
async fn an_independent_step_runs_when_its_access_list_is_closed() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    let text = "model_id = [\"quick\", \"checker\", \"careful\", \"checker\"]\n\
                subtasks = [\"a\", \"b\", \"c\", \"d\"]\naccess_list = [[], [0], [],";
    let plan = plan_of(&[
        ("quick", "a", &[]),
        ("checker", "b", &[0]),
        ("careful", "c", &[]),
        ("checker", "d", &[1, 2]),
    ]);
    house.conductor.script([Planning::gives(plan).saying([text]).behind(&gate)]);
    house.vendor.otherwise(Answer::text("fine"));
    let house = house.at_work();
    let id = house.ask().await;
    within(house.vendor.until_called(3)).await;
    assert_eq!(house.vendor.calls_of("careful").len(), 1);
    gate.open();
    let run = house.ended(id).await;
    assert_eq!((run.answer(), house.vendor.calls().len()), (Some("fine"), 4));
}

#[tokio::test]
async fn a_plan_that_arrives_complete_needs_no_extra_commit() {
    let faults = Arc::new(StoreFaults::default());
    let house = House::idle(quick(), |store| FaultyStore::around(store, &faults)).await;
    house.conductor.script([Planning::gives(a_chain()).saying(CHAIN)]);
    house.vendor.otherwise(Answer::text("fine"));
    let house = house.at_work();
    house.ended(house.ask().await).await;
    assert!(!faults.commits().join(", ").contains("steps_planned"), "{:?}", faults.commits());
}

#[tokio::test]
async fn an_answer_that_begins_before_its_plan_is_complete() {
    let house = House::idle(quick(), |store| store).await;
    let (writing, working) = (Gate::closed(), Gate::closed());
    let plan = plan_of(&[("quick", "Do it.", &[])]);
    house.conductor.script([Planning::gives(plan).saying([SINGLE, ","]).behind(&writing)]);
    house.vendor.script("quick", [Answer::text("first ").wait(&working).say("second")]);
    let id = house.ask().await;
    let mut parts = house.engine.answer(id).await.unwrap();
    let reads_along = tokio::sync::Notify::new();
    let updates = house.engine.watch(id, 0).await.unwrap().map(Result::unwrap).inspect(|update| {
        if matches!(update, Update::Frame { .. }) {
            reads_along.notify_one();
        }
    });
    let house = house.at_work();
    let read = async {
        house.vendor.until_called(1).await;
        writing.open();
        let first = parts.next().await.unwrap().unwrap();
        assert_eq!(first, AnswerPart::Text("first ".to_owned()), "before the worker has finished");
        // A watcher that receives the plan only after the step has ended reads the step's text from the events.
        reads_along.notified().await;
        working.open();
        let second = parts.next().await.unwrap().unwrap();
        assert_eq!(second, AnswerPart::Text("second".to_owned()));
        assert!(matches!(parts.next().await.unwrap().unwrap(), AnswerPart::Ended(_)));
    };
    let ((), updates) = within(async { tokio::join!(read, updates.collect::<Vec<_>>()) }).await;
    let (mut is_planned, mut text) = (false, String::new());
    for update in updates {
        match update {
            Update::Event(event) => is_planned |= event.event.name() == "plan_ready",
            Update::Frame { frame, is_answer } => {
                assert!(is_planned && is_answer && frame.offset == text.len() as u64, "{frame:?}");
                text.push_str(&frame.text);
            }
            _ => {}
        }
    }
    assert_eq!(text, "first second");
}

#[tokio::test]
async fn a_possible_answer_waits_for_the_plan_if_it_has_a_limit() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    let plan = plan_of(&[("quick", "Do it.", &[])]);
    house.conductor.script([Planning::gives(plan).saying([SINGLE, ","]).behind(&gate)]);
    house.vendor.otherwise(Answer::text("fine"));
    let limited = with(request(Policy::new(Tier::Ultra, Effort::Medium)), |request| {
        request.answer_tokens_max = Some(7);
    });
    let id = house.engine.submit(limited).await.unwrap().run_id();
    let mut updates = house.engine.watch(id, 0).await.unwrap();
    let house = house.at_work();
    while !matches!(within(updates.next()).await.unwrap().unwrap(), Update::Planning { .. }) {}
    gate.open();
    let run = house.ended(id).await;
    assert!(run.rounds()[0].head.is_none());
    assert_eq!(house.vendor.calls()[0].1.output_tokens_max, 7);
}

#[tokio::test]
async fn a_different_plan_stops_the_calls_of_begun_steps() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    let other = plan_of(&[("careful", "Solve it.", &[]), ("checker", "Check it.", &[0])]);
    house.conductor.script([Planning::gives(other).saying(CHAIN[..1].iter().copied()).behind(&gate)]);
    house.vendor.script("quick", [Answer::hang()]).script("careful", [Answer::text("solved")]);
    house.vendor.script("checker", [Answer::text("checked")]);
    let house = house.at_work();
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    gate.open();
    within(house.vendor.until_aborted(1)).await;
    let run = house.ended(id).await;
    let round = &run.rounds()[0];
    assert_eq!((run.answer(), round.superseded), (Some("checked"), 1));
    assert_eq!(round.steps[0].task.state, TaskState::Cancelled);
    let prompt = &house.vendor.calls_of("checker")[0].messages[1].text;
    assert!(prompt.contains("solved") && prompt.matches("<step number").count() == 1, "{prompt}");
}

#[tokio::test]
async fn a_failed_conductor_does_not_lose_an_early_output() {
    let house = House::idle(quick(), |store| store).await;
    let gate = Gate::closed();
    let (message, usage, cost) = ("cut off".to_owned(), Usage::default(), Cost::ZERO);
    let broken = Planning::fails(ConductorError::NoPlan { tries: 1, message, usage, cost });
    house.conductor.script([broken.saying(CHAIN[..1].iter().copied()).behind(&gate)]);
    house.vendor.script("quick", [Answer::text("a draft")]).script("careful", [Answer::text("the answer")]);
    let house = house.at_work();
    let id = house.ask().await;
    house.until(id, is_step_done).await;
    gate.open();
    let run = house.ended(id).await;
    assert_eq!((run.answer(), run.rounds()[0].superseded), (Some("the answer"), 0));
    let prompt = &house.vendor.calls_of("careful")[0].messages[1].text;
    assert!(prompt.contains("a draft") && prompt.contains("Why is the sky blue?"), "{prompt}");
    assert_eq!(run.wasted_cost(), Cost::ZERO);
}

#[tokio::test]
async fn the_next_planner_keeps_a_dead_planners_early_output() {
    let mut house = House::idle(quick(), |store| store).await;
    let never = Gate::closed();
    house.conductor.script([Planning::gives(a_chain()).saying(CHAIN[..1].iter().copied()).behind(&never)]);
    house.conductor.otherwise(a_chain());
    house.vendor.script("quick", [Answer::text("a draft")]).script("checker", [Answer::text("checked")]);
    // The queue redelivers an unacked message late; the sweeper is faster.
    let beside = house.beside(quick(), 8, |parts| parts.queue = a_queue());
    house = house.at_work();
    let id = house.ask().await;
    house.until(id, is_step_done).await;
    house.kill().await;
    let beside = beside.at_work();
    let run = beside.ended(id).await;
    assert_eq!((run.answer(), run.rounds()[0].superseded), (Some("checked"), 0));
    assert_eq!(house.vendor.calls_of("quick").len(), 1, "the worker was not called again");
    assert_eq!(house.conductor.requests().len(), 2);
}
