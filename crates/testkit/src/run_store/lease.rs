//! Extending leases.

use std::time::Duration;

use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::run::{Command, PlanResult, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::Spent;
use podium_ports::clock::Ids;
use podium_ports::store::Hold;

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_planned, head_of};
use crate::ids::SeededIds;

const FIRST: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };
const MINUTE: Duration = Duration::from_mins(1);

/// A planned run whose first step is claimed, and the claim.
async fn a_held_step(store: &StoreFixture, ids: &SeededIds) -> (Driven, Hold) {
    let mut run = Driven::accepted(ids);
    store.must_create(run.commit()).await;
    run.plan(a_plan(), ids);
    let claim = run.claim(FIRST, ids);
    store.must_commit(run.commit()).await;
    let hold = Hold { run: run.id(), task: FIRST, claim };
    (run, hold)
}

fn just_before(time: Timestamp) -> Timestamp {
    Timestamp::from_unix_ms(time.unix_ms() - 1)
}

async fn expired(store: &StoreFixture, at: Timestamp) -> Vec<Hold> {
    store.first.due(at, at, 10).await.unwrap().expired
}

pub(crate) async fn a_lease_is_extended_for_the_holding_claim_only(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut run, hold) = a_held_step(store, &ids).await;
    let version = run.run.version();
    let until = run.now.after(MINUTE);
    let strangers = Hold { claim: ids.claim_id(), ..hold };
    assert_eq!(store.first.extend_leases(&[strangers], until).await.unwrap(), [false]);
    assert_eq!(expired(store, just_before(until)).await, [hold], "another claim extends nothing");
    let asked = [
        strangers,
        hold,
        Hold { task: TaskRef::Plan { round: 0 }, ..hold },
        Hold { task: TaskRef::Plan { round: 7 }, ..hold },
        Hold { run: ids.run_id(run.now), ..hold },
    ];
    let extended = store.first.extend_leases(&asked, until).await.unwrap();
    assert_eq!(extended, [false, true, false, false, false]);
    assert_eq!(store.events(run.id()).await.len() as u64, version, "no event is written");

    run.fail(FIRST, hold.claim, Some(run.now));
    store.must_commit(run.commit()).await;
    assert_eq!(store.first.extend_leases(&[hold], until).await.unwrap(), [false]);
}

pub(crate) async fn an_extended_lease_does_not_expire_before_its_new_time(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (run, hold) = a_held_step(store, &ids).await;
    let until = run.now.after(2 * MINUTE);
    assert_eq!(store.second.extend_leases(&[hold], until).await.unwrap(), [true]);
    assert_eq!(expired(store, run.now.after(MINUTE)).await, []);
    assert_eq!(expired(store, until).await, [hold]);
}

/// The extension is not an event, so no commit of the run knows of it.
pub(crate) async fn an_extended_lease_survives_other_commits(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut run, hold) = a_held_step(store, &ids).await;
    let until = run.now.after(2 * MINUTE);
    assert_eq!(store.first.extend_leases(&[hold], until).await.unwrap(), [true]);
    run.step(1, "the other step's", &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(expired(store, run.now.after(MINUTE)).await, []);
    assert_eq!(expired(store, until).await, [hold]);
}

/// The step keeps its lease if the plan contains it, and loses it otherwise.
pub(crate) async fn an_early_step_keeps_its_claim_if_the_plan_contains_it(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    for subtask in ["Draft it.", "Something else."] {
        let mut run = Driven::accepted(&ids);
        store.must_create(run.commit()).await;
        let (round, planning) = (0, run.claim(TaskRef::Plan { round: 0 }, &ids));
        let head = head_of(&[("quick", subtask, &[])]);
        run.drive(&Command::BeginSteps { round, claim: planning, head });
        store.must_commit(run.commit()).await;
        let claim = run.claim(FIRST, &ids);
        store.must_commit(run.commit()).await;
        let hold = Hold { run: run.id(), task: FIRST, claim };
        let until = run.now.after(2 * MINUTE);
        assert_eq!(store.first.extend_leases(&[hold], until).await.unwrap(), [true]);
        let (result, spent, reserve) = (PlanResult::Plan(a_planned(a_plan())), Spent::NONE, Cost::ZERO);
        run.drive(&Command::CompletePlan { round, claim: planning, result, spent, reserve });
        store.must_commit(run.commit()).await;
        let is_kept = run.run.rounds()[0].superseded == 0;
        assert_eq!(is_kept, subtask == "Draft it.");
        assert_eq!(store.first.extend_leases(&[hold], until).await.unwrap(), [is_kept]);
        assert_eq!(store.load(run.id()).await, Some(run.run.clone()));
        let due = store.first.due(until, until, 10).await.unwrap();
        assert_eq!(due.expired, if is_kept { vec![hold] } else { vec![] });
        let open = run.run.rounds()[0].steps.iter().filter(|step| step.task.state.as_str() == "ready");
        assert_eq!(due.ready.len(), open.count());
        run.drive(&Command::Cancel);
        store.must_commit(run.commit()).await;
    }
}
