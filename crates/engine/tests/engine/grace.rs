//! A process that has just started expires no leases, because it does not know whether their holders could extend them.

use std::sync::Arc;

use podium_domain::run::RunEvent;
use podium_testkit::{Answer, plan_of};

use crate::house::{House, quick, within};

#[tokio::test]
async fn a_new_process_gives_lease_holders_one_more_lease() {
    let mut dead = House::idle(quick(), |store| store).await;
    dead.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    dead.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    dead = dead.at_work();
    let run = dead.ask().await;
    within(dead.vendor.until_called(1)).await;
    dead.kill().await;
    let clock = Arc::clone(&dead.parts.clock);
    clock.sleep(2 * quick().lease).await;
    let started = clock.now();
    let next = dead.beside(quick(), 8, |_| ()).at_work();
    assert_eq!(next.ended(run).await.answer(), Some("fine"));
    let events = next.parts.store.events(run, 0, 100).await.unwrap();
    let lost = events.iter().find(|event| matches!(event.event, RunEvent::LeaseExpired { .. }));
    let held = lost.expect("its lease expired").at.since(started);
    assert!(held >= quick().lease, "the claim was released after {held:?}");
}
