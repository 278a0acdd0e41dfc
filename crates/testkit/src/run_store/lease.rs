//! The leases of processes, and the claims that depend on them.

use std::time::Duration;

use podium_domain::ids::{ProcessId, StepIndex};
use podium_domain::money::Cost;
use podium_domain::run::{Command, PlanResult, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::usage::Spent;
use podium_ports::clock::Ids;
use podium_ports::store::ClaimRef;

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_planned, head_of};
use crate::ids::SeededIds;

const FIRST: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// A store with its own clock takes its own time instead.
const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(i64::MAX as u64);

/// A planned run whose first step is claimed by `process`, and the claim.
async fn a_held_step(
    store: &StoreFixture,
    ids: &SeededIds,
    process: Option<ProcessId>,
) -> (Driven, ClaimRef) {
    let mut run = Driven::accepted(ids);
    store.must_create(run.commit()).await;
    run.plan(a_plan(), ids);
    run.process = process;
    let claim = run.claim(FIRST, ids);
    store.must_commit(run.commit()).await;
    let hold = ClaimRef { run: run.id(), task: FIRST, claim };
    (run, hold)
}

async fn extend(store: &StoreFixture, process: ProcessId, now: Timestamp, span: Duration) -> bool {
    store.first.extend_lease(process, now, span).await.unwrap()
}

async fn expired(store: &StoreFixture, at: Timestamp) -> Vec<ClaimRef> {
    store.second.due(at, at, 10, &[]).await.unwrap().expired
}

pub(crate) async fn a_claim_holds_as_long_as_the_lease_of_its_process(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let process = ids.process_id();
    let now = Driven::accepted(&ids).now;
    assert!(!extend(store, process, now, HOUR).await, "it had no lease before");
    let (run, hold) = a_held_step(store, &ids, Some(process)).await;
    let version = run.run.version();
    assert_eq!(expired(store, run.now.after(MINUTE)).await, [], "the claim's own lease does not count");
    assert!(extend(store, process, run.now, HOUR).await, "it had a lease until now");
    assert!(extend(store, process, run.now, Duration::ZERO).await);
    assert_eq!(expired(store, END_OF_TIME).await, [hold]);
    assert!(!extend(store, process, run.now, HOUR).await, "its lease expired before");
    assert_eq!(expired(store, run.now.after(MINUTE)).await, [], "nobody released the claim meanwhile");
    assert_eq!(store.events(run.id()).await.len() as u64, version, "no event is written");
}

pub(crate) async fn claims_of_a_process_without_a_lease_are_due_at_once(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let [living, unknown, other] = [(); 3].map(|()| ids.process_id());
    let (run, _) = a_held_step(store, &ids, Some(living)).await;
    extend(store, living, run.now, HOUR).await;
    let mut lost = Vec::new();
    for process in [unknown, other, unknown] {
        lost.push(a_held_step(store, &ids, Some(process)).await.1);
        a_held_step(store, &ids, Some(living)).await;
    }
    let mut due = expired(store, run.now).await;
    due.sort_unstable();
    lost.sort_unstable();
    assert_eq!(due, lost);
    let due = store.first.due(run.now, run.now, 2, &[]).await.unwrap();
    assert_eq!(due.expired.len(), 2, "the limit counts over all processes");
    let except = [lost[0].run, lost[2].run];
    let due = store.first.due(run.now, run.now, 2, &except).await.unwrap();
    assert_eq!(due.expired, [lost[1]]);
}

/// Processes of earlier versions extend the lease of each claim.
pub(crate) async fn a_claim_without_a_process_has_its_own_lease(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut run, hold) = a_held_step(store, &ids, Some(ids.process_id())).await;
    assert_eq!(expired(store, run.now).await, [hold]);
    run.drive(&Command::ExpireLease { task: FIRST, claim: hold.claim });
    store.must_commit(run.commit()).await;
    run.process = None;
    let hold = ClaimRef { claim: run.claim(FIRST, &ids), ..hold };
    store.must_commit(run.commit()).await;
    assert_eq!(expired(store, run.now).await, [], "the process before it does not count");
    assert_eq!(expired(store, run.now.after(MINUTE)).await, [hold]);
}

pub(crate) async fn a_claim_is_held_until_its_task_is_released(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut run, hold) = a_held_step(store, &ids, Some(ids.process_id())).await;
    let asked = [
        ClaimRef { claim: ids.claim_id(), ..hold },
        hold,
        ClaimRef { task: TaskRef::Plan { round: 0 }, ..hold },
        ClaimRef { task: TaskRef::Plan { round: 7 }, ..hold },
        ClaimRef { run: ids.run_id(run.now), ..hold },
    ];
    let answers = store.second.held(&asked).await.unwrap();
    assert_eq!(answers, [false, true, false, false, false]);
    assert_eq!(store.second.held(&[]).await.unwrap(), Vec::<bool>::new());
    run.fail(FIRST, hold.claim, Some(run.now));
    store.must_commit(run.commit()).await;
    assert_eq!(store.second.held(&[hold]).await.unwrap(), [false]);
}

pub(crate) async fn a_disowned_claim_is_due_although_its_process_lives(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let process = ids.process_id();
    let (mut run, hold) = a_held_step(store, &ids, Some(process)).await;
    let (_, kept) = a_held_step(store, &ids, Some(process)).await;
    extend(store, process, run.now, HOUR).await;
    let unknown = [ClaimRef { claim: ids.claim_id(), ..kept }, ClaimRef { run: ids.run_id(run.now), ..kept }];
    let asked = [hold, unknown[0], unknown[1]];
    assert_eq!(store.second.disown(&asked).await.unwrap(), [true; 3]);
    assert_eq!(store.second.disown(&[]).await.unwrap(), Vec::<bool>::new());
    let due = [hold];
    assert_eq!(expired(store, run.now.after(MINUTE)).await, due);
    assert_eq!(store.first.held(&due).await.unwrap(), [true], "it holds its task until it is released");
    run.process = None;
    run.step(1, "the other step's", &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(store.first.disown(&due).await.unwrap(), [true], "it can be repeated");
    assert_eq!(expired(store, run.now.after(MINUTE)).await, due, "another commit changes nothing");

    run.drive(&Command::ExpireLease { task: FIRST, claim: hold.claim });
    run.process = Some(process);
    run.claim(FIRST, &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(store.first.disown(&due).await.unwrap(), [true]);
    assert_eq!(expired(store, run.now.after(MINUTE)).await, [], "the next claim of the task is another one");
}

pub(crate) async fn a_claim_keeps_its_process_through_other_commits(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let process = ids.process_id();
    let (mut run, hold) = a_held_step(store, &ids, Some(process)).await;
    run.process = None;
    run.step(1, "the other step's", &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(expired(store, run.now).await, [hold]);
    extend(store, process, run.now, HOUR).await;
    assert_eq!(expired(store, run.now.after(MINUTE)).await, []);
}

/// The step keeps its claim if the plan contains it, and loses it otherwise.
pub(crate) async fn an_early_step_keeps_its_claim_if_the_plan_contains_it(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    for subtask in ["Draft it.", "Something else."] {
        let mut run = Driven::accepted(&ids);
        store.must_create(run.commit()).await;
        let (round, planning) = (0, run.claim(TaskRef::Plan { round: 0 }, &ids));
        let head = head_of(&[("quick", subtask, &[])]);
        run.drive(&Command::BeginSteps { round, claim: planning, head });
        store.must_commit(run.commit()).await;
        run.process = Some(ids.process_id());
        let claim = run.claim(FIRST, &ids);
        store.must_commit(run.commit()).await;
        let hold = ClaimRef { run: run.id(), task: FIRST, claim };
        assert_eq!(store.first.held(&[hold]).await.unwrap(), [true]);
        let (result, spent, reserve) = (PlanResult::Plan(a_planned(a_plan())), Spent::NONE, Cost::ZERO);
        run.drive(&Command::CompletePlan { round, claim: planning, result, spent, reserve });
        store.must_commit(run.commit()).await;
        let is_kept = run.run.rounds()[0].superseded == 0;
        assert_eq!(is_kept, subtask == "Draft it.");
        assert_eq!(store.first.held(&[hold]).await.unwrap(), [is_kept]);
        assert_eq!(store.load(run.id()).await, Some(run.run.clone()));
        let at = run.now.after(MINUTE);
        let due = store.first.due(at, at, 10, &[]).await.unwrap();
        assert_eq!(due.expired, if is_kept { vec![hold] } else { vec![] });
        let open = run.run.rounds()[0].steps.iter().filter(|step| step.task.state.as_str() == "ready");
        assert_eq!(due.ready.len(), open.count());
        run.drive(&Command::Cancel);
        store.must_commit(run.commit()).await;
    }
}
