//! Runs that are stored by whoever claims their first step.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use podium_domain::ids::RequestId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_engine::{Submit, Submitted};
use podium_testkit::{Answer, ScriptedConductor, plan_of};

use crate::faults::{FaultyStore, StoreFaults};
use crate::house::{House, a_queue, one, quick, request, within};

/// One whose plans need no model, and that nobody works for yet.
async fn a_house(store: &Arc<StoreFaults>) -> House {
    let house = House::idle(quick(), |inner| FaultyStore::around(inner, store)).await;
    let conductor = ScriptedConductor::new().at_once(plan_of(&[("quick", "Do it.", &[])]));
    let house = house.beside(quick(), 8, |parts| parts.conductors = one(conductor));
    house.vendor.otherwise(Answer::text("fine"));
    house
}

fn a_request() -> Submit {
    request(Policy::new(Tier::Ultra, Effort::Medium))
}

#[tokio::test]
async fn who_claims_the_first_step_stores_the_run_with_it() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await.at_work();
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(store.commits()[0], "accepted, claimed, plan_ready, step_ready, claimed");
}

#[tokio::test]
async fn a_run_that_nobody_claims_is_stored_by_who_was_asked() {
    let house = a_house(&Arc::default()).await;
    let (submitted, mut ending) = house.engine.ask(a_request()).await.unwrap();
    let id = submitted.run_id();
    assert!(!ending.is_secured());
    assert_eq!(house.engine.run(id).await.unwrap(), None);
    let is_stored = async { while house.engine.run(id).await.unwrap().is_none() {} };
    within(async {
        tokio::select! {
            ended = ending.run() => panic!("nobody could have ended it: {ended:?}"),
            () = is_stored => {}
        }
    })
    .await;
    // The message was lost, and the sweeper tells of the step.
    let _executor = house.beside(quick(), 9, |parts| parts.queue = a_queue()).at_work();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
}

#[tokio::test]
async fn a_message_that_comes_when_the_run_is_stored_already_runs_it_once() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    ending.secure().await.unwrap();
    assert!(ending.is_secured());
    let house = house.at_work();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(store.commits()[..2], ["accepted, claimed, plan_ready, step_ready", "claimed"]);
    assert_eq!(house.vendor.calls().len(), 1);
}

#[tokio::test]
async fn a_request_that_can_be_repeated_is_stored_before_anybody_is_told() {
    let house = a_house(&Arc::default()).await;
    let named = || Submit { request_id: Some(RequestId::new("r-1").unwrap()), ..a_request() };
    let (submitted, ending) = house.engine.ask(named()).await.unwrap();
    assert!(ending.is_secured());
    assert!(house.engine.run(submitted.run_id()).await.unwrap().is_some());
    let (again, _) = house.engine.ask(named()).await.unwrap();
    assert_eq!(again, Submitted::Existing(submitted.run_id()));
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_made_again_and_runs_once() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    store.answers_lost.store(1, Ordering::SeqCst);
    let house = house.at_work();
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(house.vendor.calls().len(), 1);
}
