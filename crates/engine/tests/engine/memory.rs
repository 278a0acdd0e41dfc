//! The run cache saves loads and never leads to a wrong decision.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use podium_domain::ids::RequestId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{Run, RunState, Task, TaskRef, TaskState};
use podium_engine::{Options, Submit, Submitted};
use podium_testkit::{Answer, Gate, Planning, ScriptedConductor, a_plan, plan_of};

use crate::faults::{FaultyStore, StoreFaults};
use crate::house::{House, Roles, a_queue, one, quick, request, within};

#[tokio::test]
async fn a_run_that_stays_in_one_process_is_never_loaded() {
    let store = Arc::new(StoreFaults::default());
    // No sweeper reads the runs meanwhile.
    let options = Options { sweep_every: std::time::Duration::from_hours(1), ..quick() };
    let house = House::idle(options, |inner| FaultyStore::around(inner, &store)).await.at_work();
    until_at_work(&house).await;
    house.conductor.otherwise(a_plan());
    house.vendor.otherwise(Answer::text("fine"));
    let (submitted, mut ending) =
        house.engine.ask(request(Policy::new(Tier::Ultra, Effort::Medium))).await.unwrap();
    let run = within(ending.run()).await.unwrap();
    assert_eq!((run.id(), run.answer()), (submitted.run_id(), Some("fine")));
    assert_eq!(store.loads.load(Ordering::SeqCst), 0, "the caller that waits loads nothing either");
}

/// The first process has the accepted run in its cache. The other process claims the planning and dies. In the first one's cache,
/// no claim exists whose lease could have expired.
#[tokio::test]
async fn a_refusal_on_an_outdated_run_is_checked_in_the_store() {
    let idle = House::idle(quick(), |store| store).await;
    let first = idle.beside(quick(), 8, |_| ()).at_work_as(Roles::EXECUTOR);
    until_at_work(&first).await;
    first.conductor.script([Planning::gives(a_plan()).behind(&Gate::closed())]);
    first.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    first.vendor.otherwise(Answer::text("fine"));
    let id = first.ask().await;
    let mut second = first.beside(quick(), 9, |_| ()).at_work_as(Roles::PLANNER);
    within(first.conductor.until_requested(1)).await;
    second.kill().await;
    first.until(id, |run| matches!(planning(run).state, TaskState::Ready { .. })).await;
    // The second process' unacked message was lost with it.
    let third = first.beside(quick(), 10, |parts| parts.queue = a_queue());
    let _third = third.at_work_as(Roles::PLANNER);
    let run = first.ended(id).await;
    assert_eq!((run.answer(), planning(&run).attempts.len()), (Some("fine"), 2));
}

#[tokio::test]
async fn a_decision_on_an_outdated_run_is_repeated() {
    let first = House::idle(quick(), |store| store).await.at_work();
    first.conductor.script([Planning::gives(a_plan()).behind(&Gate::closed())]);
    let second = first.beside(quick(), 8, |_| ());
    let id = first.ask().await;
    within(first.conductor.until_requested(1)).await;
    second.engine.cancel(id).await.unwrap();
    assert_eq!(*first.engine.cancel(id).await.unwrap().state(), RunState::Cancelled);
    let events = first.parts.store.events(id, 0, 100).await.unwrap();
    let names: Vec<_> = events.iter().map(|event| event.event.name()).collect();
    assert_eq!(names, ["accepted", "claimed", "cancelled"]);
}

fn planning(run: &Run) -> &Task {
    run.task(TaskRef::Plan { round: 0 }).unwrap()
}

/// Until its loops run, a process does not cache the runs that it accepts.
async fn until_at_work(house: &House) {
    within(async {
        while !house.engine.is_at_work() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn concurrent_requests_create_one_run_per_request_id() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::text("fine"));
    let policy = Policy::new(Tier::Ultra, Effort::Medium);
    let asks = (0..60).map(|number| {
        let request_id = Some(RequestId::new(format!("r-{}", number / 2)).unwrap());
        house.engine.ask(Submit { request_id, ..request(policy.clone()) })
    });
    let mut ids = Vec::new();
    let mut new = 0;
    for asked in within(futures::future::join_all(asks)).await {
        let (submitted, mut ending) = asked.unwrap();
        assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
        new += usize::from(matches!(submitted, Submitted::New(_)));
        ids.push(submitted.run_id());
    }
    assert!(ids.chunks(2).all(|pair| pair[0] == pair[1]));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), new, house.vendor.calls().len()), (30, 30, 30));
}

#[tokio::test]
async fn a_plan_that_needs_no_model_is_created_with_the_run() {
    let store = Arc::new(StoreFaults::default());
    let house = House::idle(quick(), |inner| FaultyStore::around(inner, &store)).await;
    let conductor = ScriptedConductor::new().at_once(plan_of(&[("quick", "Do it.", &[])]));
    let house = house.beside(quick(), 8, |parts| parts.conductors = one(conductor.clone())).at_work();
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(store.commits()[0], "accepted, claimed, plan_ready, step_ready");
    assert!(conductor.requests().is_empty(), "no conductor was called");
    assert_eq!(planning(&run).attempts.len(), 1);
}
