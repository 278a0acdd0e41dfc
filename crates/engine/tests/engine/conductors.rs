//! Two conductors in one process: each run belongs to one of them, from its acceptance to its end.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{Planned, RunState};
use podium_domain::share::Share;
use podium_engine::{Submit, SubmitError};
use podium_ports::conductor::{Conductor, Conductors};
use podium_testkit::{Answer, ScriptedConductor, plan_of};

use crate::house::{House, Roles, quick, request, within};

const NEXT: &str = "scripted-2";

fn ultra() -> Policy {
    Policy::new(Tier::Ultra, Effort::Medium)
}

/// A process with two conductors that write different plans.
async fn with_two(share: f64) -> House {
    let house = House::idle(quick(), |store| store).await;
    let next = ScriptedConductor::new().called(NEXT);
    house.conductor.otherwise(plan_of(&[("quick", "The current one.", &[])]));
    next.otherwise(plan_of(&[("quick", "The next one.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));
    let current: Arc<dyn Conductor> = Arc::new(house.conductor.clone());
    let two = Conductors::with_next(current, Arc::new(next), Share::new(share).unwrap());
    house.beside(quick(), 8, |parts| parts.conductors = two)
}

#[tokio::test]
async fn each_run_is_planned_by_the_conductor_of_its_id() {
    let house = with_two(0.5).await.at_work();
    let mut next = 0;
    for _ in 0..40 {
        let run = house.ended(house.ask_under(ultra()).await).await;
        let is_next = Share::new(0.5).unwrap().includes(run.id());
        let (id, subtask) =
            if is_next { (NEXT, "The next one.") } else { (ScriptedConductor::ID, "The current one.") };
        assert_eq!(run.spec().conductor, id);
        assert_eq!(run.rounds()[0].plan().unwrap().steps()[0].subtask, subtask);
        next += usize::from(is_next);
    }
    assert!((8..=32).contains(&next), "{next} of 40");
}

#[tokio::test]
async fn a_given_plan_is_carried_out_and_no_conductor_is_asked() {
    let house = House::idle(quick(), |store| store).await;
    house.vendor.otherwise(Answer::text("fine"));
    let house = house.at_work_as(Roles::EXECUTOR);
    let plan = plan_of(&[("quick", "First.", &[]), ("quick", "Then.", &[0])]);
    let planned = Planned { plan: plan.clone(), reasoning: String::new(), fallback: None };
    let (_, mut ending) = house.engine.ask_planned(request(ultra()), planned).await.unwrap();
    let run = within(ending.run()).await.unwrap();
    assert_eq!((run.rounds()[0].plan(), run.answer()), (Some(&plan), Some("fine")));
}

#[tokio::test]
async fn a_pinned_run_is_planned_by_the_conductor_that_it_names() {
    let house = with_two(0.0).await.at_work();
    for id in [ScriptedConductor::ID, NEXT] {
        let submit = Submit { conductor: Some(id.to_owned()), ..request(ultra()) };
        let run = house.ended(house.engine.submit(submit).await.unwrap().run_id()).await;
        assert_eq!(run.spec().conductor, id);
    }
    let submit = Submit { conductor: Some("scripted-3".to_owned()), ..request(ultra()) };
    let refused = house.engine.submit(submit).await.unwrap_err();
    assert!(matches!(refused, SubmitError::UnknownConductor { .. }), "{refused}");
    assert_eq!(house.engine.conductor_ids(), [ScriptedConductor::ID, NEXT]);
}

#[tokio::test]
async fn a_planner_without_the_conductor_leaves_the_run_to_others() {
    let house = with_two(1.0).await;
    let current: Arc<dyn Conductor> = Arc::new(house.conductor.clone());
    let lacking =
        house.beside(quick(), 9, |parts| parts.conductors = current.into()).at_work_as(Roles::PLANNER);
    let looked = lacking.parts.clock.now();
    let id = house.ask_under(ultra()).await;
    // The first planner has received the message and put it back before the other one starts.
    within(async {
        while lacking.parts.clock.now().since(looked) < Duration::from_millis(300) {
            lacking.parts.clock.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let run = house.at_work().ended(id).await;
    assert_eq!((run.answer(), run.spec().conductor.as_str()), (Some("fine"), NEXT));
    assert_eq!(run.rounds()[0].planning.attempts.len(), 1, "no attempt before that");
    assert_eq!(run.rounds()[0].planned.as_ref().unwrap().fallback, None);
    assert!(lacking.conductor.requests().is_empty());
}

#[tokio::test]
async fn a_run_without_its_conductor_fails_before_its_deadline() {
    let house = with_two(1.0).await;
    let id = house.ask_under(Policy { deadline_ms: 2_500, ..ultra() }).await;
    let current: Arc<dyn Conductor> = Arc::new(house.conductor.clone());
    let later = house.beside(quick(), 9, |parts| parts.conductors = current.into()).at_work_as(Roles::ALL);
    let run = later.ended(id).await;
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert!(reason.to_string().contains("conductor `scripted-2` is not in this process"), "{reason}");
    assert!(later.conductor.requests().is_empty() && later.vendor.calls().is_empty());
}
