//! Removal of runs that ended long ago, and the answers to clients that ask for them.

use std::time::Duration;

use futures::StreamExt;
use podium_domain::ids::RunId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::time::Timestamp;
use podium_engine::{CommandError, Options, Update, WatchError};
use podium_ports::store::StoreError;
use podium_testkit::{Answer, Gate, plan_of};
use tokio::time::interval;

use crate::house::{House, quick, within};

/// Waits until the store has removed a run.
async fn gone(house: &House, id: RunId) {
    let mut looking = interval(Duration::from_millis(10));
    within(async {
        while house.engine.run(id).await.unwrap().is_some() {
            looking.tick().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_ended_run_is_removed_and_an_active_one_is_kept() {
    let options = Options {
        runs_kept: Some(Duration::from_millis(100)),
        remove_every: Duration::from_millis(20),
        remove_runs_max: 2,
        ..quick()
    };
    let house = House::idle(options, |store| store).await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let active = house.ask().await;
    within(house.vendor.until_called(1)).await;
    house.vendor.otherwise(Answer::text("fine"));
    // This is more than one batch.
    let mut ended = Vec::new();
    for _ in 0..5 {
        ended.push(house.ask().await);
    }
    for id in &ended {
        gone(&house, *id).await;
    }
    assert!(house.engine.run(active).await.unwrap().is_some_and(|run| !run.is_ended()));

    let unknown = house.engine.watch(ended[0], 0).await.err().unwrap();
    assert!(matches!(unknown, WatchError::UnknownRun), "{unknown:?}");
    let unknown = house.engine.cancel(ended[0]).await.unwrap_err();
    assert!(matches!(unknown, CommandError::UnknownRun), "{unknown:?}");

    gate.open();
    gone(&house, active).await;
}

/// The client is so slow that the run ends and is removed between two of its reads.
#[tokio::test]
async fn a_watcher_of_a_removed_run_gets_an_error() {
    let house = House::idle(quick(), |store| store).await;
    let policy = Policy { deadline_ms: 1, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let id = house.ask_under(policy).await;
    let mut updates = house.engine.watch(id, 0).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(Update::Event(_)))));
    house.engine.cancel(id).await.unwrap();
    let end_of_time = Timestamp::from_unix_ms(u64::MAX);
    assert_eq!(house.parts.store.remove_ended(end_of_time, Duration::ZERO, 1).await.unwrap(), 1);
    let told = within(updates.next()).await;
    assert!(matches!(told, Some(Err(StoreError::Removed { run })) if run == id), "{told:?}");
}
