//! The bounded lane: if it is full, ready tasks wait in the store's backlog, from which they are published fairly.

use std::sync::Arc;

use podium_domain::ids::{RunId, TenantId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::Run;
use podium_engine::{Options, Submit};
use podium_memory::{MemoryQueue, QueueOptions};
use podium_testkit::{Answer, Gate, TestClock, plan_of};

use crate::house::{House, quick, request, within};

const SLOTS: usize = 4;
/// Most messages of a lane.
const WINDOW: usize = 2 * SLOTS;
const FLOOD: usize = 200;

fn queue() -> Arc<MemoryQueue> {
    let options = QueueOptions { lane_messages_max: WINDOW, ..QueueOptions::default() };
    Arc::new(MemoryQueue::new(Arc::new(TestClock::new()), options))
}

/// Few slots, and a grace period longer than any test: so no task is published because it counts as lost.
fn narrow() -> Options {
    Options {
        plan_slots: SLOTS,
        step_slots: SLOTS,
        dispatch_grace: std::time::Duration::from_hours(1),
        lease: std::time::Duration::from_mins(1),
        ..quick()
    }
}

async fn a_house() -> House {
    House::idle(narrow(), |store| store).await.with_queue(queue(), narrow())
}

impl House {
    async fn ask_as(&self, tenant: &str, tier: Tier) -> RunId {
        let submit =
            Submit { tenant: TenantId::new(tenant).unwrap(), ..request(Policy::new(tier, Effort::Medium)) };
        self.engine.submit(submit).await.unwrap().run_id()
    }

    async fn flood(&self, tenant: &str, tier: Tier) -> Vec<RunId> {
        let mut ids = Vec::new();
        for _ in 0..FLOOD {
            ids.push(self.ask_as(tenant, tier).await);
        }
        ids
    }

    async fn how_many_ended(&self, ids: &[RunId]) -> usize {
        let runs = self.parts.store.load(ids).await.unwrap();
        runs.iter().flatten().filter(|run| Run::is_ended(run)).count()
    }
}

#[tokio::test]
async fn a_flood_beyond_the_lanes_capacity_is_completed() {
    let house = a_house().await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Draft it.", &[]), ("careful", "Do it.", &[0])]));
    house.vendor.otherwise(Answer::text("fine"));
    for id in house.flood("acme", Tier::Ultra).await {
        assert_eq!(house.ended(id).await.answer(), Some("fine"));
    }
    assert_eq!(house.vendor.calls().len(), 2 * FLOOD, "no call was repeated");
}

#[tokio::test]
async fn a_quiet_tenant_does_not_wait_behind_the_backlog_of_another() {
    let house = a_house().await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let flood = house.flood("flood", Tier::Ultra).await;
    within(house.vendor.until_called(SLOTS)).await;
    // The flood fills all slots and the lane, and most of it waits. Then another tenant submits one run.
    let quiet = house.ask_as("quiet", Tier::Ultra).await;
    house.until(quiet, |run| run.rounds()[0].planned.is_some()).await;
    gate.open();
    let quiet = house.ended(quiet).await;
    let mut before = 0;
    for id in flood {
        let run = house.ended(id).await;
        assert_eq!(run.answer(), Some("fine"));
        before += usize::from(run.ended_at() < quiet.ended_at());
    }
    // These are the runs that were in the lane before its step, and those that run concurrently.
    assert!(before <= WINDOW + SLOTS, "{before} of {FLOOD} came first");
}

#[tokio::test]
async fn a_mini_run_does_not_wait_for_a_flood_of_ultra() {
    let house = a_house().await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let gate = Gate::closed();
    house.vendor.script("quick", (0..SLOTS).map(|_| Answer::blank().wait(&gate).say("late")));
    house.vendor.otherwise(Answer::text("at once"));
    let flood = house.flood("flood", Tier::Ultra).await;
    within(house.vendor.until_called(SLOTS)).await;
    // All slots of ultra are taken, and none of its steps ends.
    let mini = house.ask_as("quiet", Tier::Mini).await;
    assert_eq!(house.ended(mini).await.answer(), Some("at once"));
    assert_eq!(house.how_many_ended(&flood).await, 0);
    gate.open();
}

#[tokio::test]
async fn a_vendor_that_hangs_with_a_full_lane_delays_no_other_vendor() {
    let house = a_house().await.at_work();
    let hanging = plan_of(&[("quick", "Hang.", &[])]);
    house.conductor.otherwise(hanging);
    // `quick` and `careful` have different vendors.
    house.vendor.script("quick", (0..FLOOD).map(|_| Answer::hang()));
    house.vendor.otherwise(Answer::text("fine"));
    let stuck = house.flood("acme", Tier::Ultra).await;
    // All runs are planned, because plans have a separate lane. Their steps wait at the vendor that hangs.
    for id in &stuck {
        house.until(*id, |run| run.rounds()[0].planned.is_some()).await;
    }
    house.conductor.otherwise(plan_of(&[("careful", "Do it.", &[])]));
    for _ in 0..20 {
        // The run is of the same tenant, so only its lane differs.
        let id = house.ask_as("acme", Tier::Ultra).await;
        assert_eq!(house.ended(id).await.answer(), Some("fine"));
    }
    assert_eq!(house.how_many_ended(&stuck).await, 0);
    assert_eq!(house.vendor.calls_of("quick").len(), SLOTS, "as many as there are slots");
}

#[tokio::test]
async fn two_processes_share_one_backlog_without_repeating_calls() {
    let first = a_house().await.at_work();
    first.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    // The lanes are full before the first call ends, so that a backlog exists.
    let gate = Gate::closed();
    first.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let second = first.beside(narrow(), 8, |_| ()).at_work();
    let mut ids = Vec::new();
    for number in 0..FLOOD {
        let tenant = ["a", "b", "c"][number % 3];
        ids.push(if number % 2 == 0 { &first } else { &second }.ask_as(tenant, Tier::Ultra).await);
    }
    gate.open();
    for id in ids {
        assert_eq!(second.ended(id).await.answer(), Some("fine"));
    }
    assert_eq!(first.vendor.calls().len(), FLOOD);
    assert_eq!(first.conductor.requests().len(), FLOOD);
}
