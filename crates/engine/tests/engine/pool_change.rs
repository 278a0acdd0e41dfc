//! An engine at work gets another pool: work in flight ends as it began, and new runs use the new pool.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_testkit::{Answer, Gate, ScriptedConductor, a_pool, plan_of};

use crate::house::{House, Parts, Roles, one, quick, request, within};

/// The next version of the pool, which has only the first worker, as the successor of the pool.
fn only_quick() -> Pool {
    let file = "schema = 1\nname = \"test\"\nversion = \"2\"\n\
                vendors = [{ id = \"north\", api = \"openai-chat\", base_url = \"http://127.0.0.1:1/v1\" }]\n\
                [[workers]]\nid = \"quick\"\nvendor = \"north\"\nmodel = \"quick-2\"\ndescription = \"answers fast\"\n\
                context_tokens = 8192\nusd_per_million_tokens = { input = 1.0, output = 2.0 }\n";
    Pool::parse(file).unwrap().succeeding(&a_pool())
}

/// A policy that allows this worker only.
fn only(worker: &str) -> Policy {
    Policy {
        workers_allowed: WorkersAllowed::Only([WorkerId::new(worker).unwrap()].into()),
        ..Policy::new(Tier::Ultra, Effort::Medium)
    }
}

#[tokio::test]
async fn a_run_ends_with_the_workers_of_the_pool_that_it_was_planned_for() {
    let gate = Gate::closed();
    let mut house =
        House::with_plan(plan_of(&[("careful", "Solve it.", &[]), ("checker", "Decide.", &[0])])).await;
    house.vendor.script("careful", [Answer::blank().say("so").wait(&gate).say(" it is")]);
    house.vendor.script("checker", [Answer::text("decided")]);
    let under_way = house.ask().await;
    within(async {
        while house.vendor.in_flight() == 0 {
            house.parts.clock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;

    let parts = Parts { pool: Arc::new(only_quick()), ..house.parts.clone() };
    house.engine.replace(parts.of_engine(), quick(), parts.work(Roles::ALL)).unwrap();
    assert_eq!(house.engine.pool().version(), "test-2");

    // A new run ends while the earlier loops wait for the call.
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.script("quick", [Answer::text("done")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!((run.answer(), run.spec().pool.as_str()), (Some("done"), "test-2"));

    gate.open();
    let run = house.ended(under_way).await;
    assert_eq!((run.answer(), run.spec().pool.as_str()), (Some("decided"), "test-1"));
    assert_eq!(run.rounds()[0].steps[0].task.attempts.len(), 1, "the call was not repeated");
    assert_eq!((house.vendor.calls_of("careful").len(), house.vendor.aborted()), (1, 0));
    house.stop().await;
}

#[tokio::test]
async fn nothing_new_is_planned_for_a_retired_worker() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let parts = Parts { pool: Arc::new(only_quick()), ..house.parts.clone() };
    house.engine.replace(parts.of_engine(), quick(), parts.work(Roles::ALL)).unwrap();
    let submitted = house.engine.submit(request(only("careful"))).await;
    let error = submitted.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("worker"), "{error}");
    assert!(house.vendor.calls().is_empty());
}

#[tokio::test]
async fn a_planner_without_the_allowed_worker_leaves_the_run_to_others() {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("careful", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("done"));
    // Its pool file has not arrived yet.
    let late =
        house.beside(quick(), 9, |parts| parts.pool = Arc::new(only_quick())).at_work_as(Roles::PLANNER);
    let looked = late.parts.clock.now();
    let id = house.ask_under(only("careful")).await;
    within(async {
        while late.parts.clock.now().since(looked) < Duration::from_millis(300) {
            late.parts.clock.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(house.conductor.requests().is_empty(), "the planner asked for a plan over its own pool");
    let run = house.at_work().ended(id).await;
    assert_eq!((run.answer(), run.rounds()[0].planning.attempts.len()), (Some("done"), 1));
}

#[tokio::test]
async fn parts_with_another_conductor_are_refused() {
    let house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    house.vendor.otherwise(Answer::text("done"));
    let other = ScriptedConductor::new().called("scripted-2");
    let parts = Parts { conductors: one(other), pool: Arc::new(only_quick()), ..house.parts.clone() };
    let refused = house.engine.replace(parts.of_engine(), quick(), parts.work(Roles::ALL)).unwrap_err();
    assert_eq!((refused.before.as_str(), refused.after.as_str()), (ScriptedConductor::ID, "scripted-2"));
    let run = house.ended(house.ask().await).await;
    assert_eq!((run.answer(), run.spec().pool.as_str()), (Some("done"), "test-1"));
}
