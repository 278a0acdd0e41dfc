//! The tasks and runs that the sweeper must handle.

use std::time::Duration;

use podium_domain::ids::{RunId, StepIndex};
use podium_domain::rating::Rating;
use podium_domain::run::{Command, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::clock::Ids as _;
use podium_ports::store::{ClaimRef, Due, ReadyTask, RunFilter};

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_spec_with_tools, a_tenant, plan_of};
use crate::clock::TestClock;
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_mins(1);

const fn step(step: u16) -> TaskRef {
    TaskRef::Step { round: 0, step: StepIndex::new(step) }
}

fn just_before(time: Timestamp) -> Timestamp {
    Timestamp::from_unix_ms(time.unix_ms() - 1)
}

/// Without delaying the next report of ready tasks.
async fn due(store: &StoreFixture, now: Timestamp) -> Due {
    store.first.due(now, now, 100, &[]).await.unwrap()
}

async fn ready(store: &StoreFixture, now: Timestamp) -> Vec<(RunId, TaskRef)> {
    tasks(due(store, now).await.ready)
}

fn tasks(ready: Vec<ReadyTask>) -> Vec<(RunId, TaskRef)> {
    let mut tasks: Vec<_> = ready.into_iter().map(|ready| (ready.run, ready.task)).collect();
    tasks.sort_unstable();
    tasks
}

pub(crate) async fn a_ready_task_is_due_after_its_grace(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    let id = run.id();
    store.must_create(run.commit()).await;
    let forgotten = run.now.after(store.dispatch_grace);
    assert_eq!(ready(store, just_before(forgotten)).await, []);
    assert_eq!(ready(store, forgotten).await, [(id, PLAN)]);

    run.now = run.now.after(MINUTE);
    run.plan(a_plan(), &ids);
    store.must_commit(run.commit()).await;
    let forgotten = run.now.after(store.dispatch_grace);
    assert_eq!(ready(store, just_before(forgotten)).await, []);
    assert_eq!(ready(store, forgotten).await, [(id, step(0)), (id, step(1))], "the third waits for both");
}

pub(crate) async fn a_retry_is_due_after_its_time(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    let claim = run.claim(PLAN, &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(ready(store, run.now.after(MINUTE)).await, [], "it is held");
    let retry_at = run.now.after(MINUTE);
    run.fail(PLAN, claim, Some(retry_at));
    store.must_commit(run.commit()).await;
    let forgotten = retry_at.after(store.dispatch_grace);
    assert_eq!(due(store, just_before(forgotten)).await, Due::default());
    assert_eq!(ready(store, forgotten).await, [(run.id(), PLAN)]);

    // The next attempt begins and fails within one commit.
    run.now = retry_at;
    let claim = run.claim(PLAN, &ids);
    let retry_at = retry_at.after(MINUTE);
    run.fail(PLAN, claim, Some(retry_at));
    store.must_commit(run.commit()).await;
    let forgotten = retry_at.after(store.dispatch_grace);
    assert_eq!(ready(store, just_before(forgotten)).await, []);
    assert_eq!(ready(store, forgotten).await, [(run.id(), PLAN)]);
}

pub(crate) async fn a_due_task_is_not_due_again_before_its_time(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    run.plan(a_plan(), &ids);
    store.must_commit(run.commit()).await;
    let forgotten = run.now.after(store.dispatch_grace);
    let again_at = forgotten.after(MINUTE);
    assert_eq!(store.first.due(forgotten, again_at, 100, &[]).await.unwrap().ready.len(), 2);
    assert_eq!(store.second.due(just_before(again_at), again_at, 100, &[]).await.unwrap().ready, []);
    // A commit to another task of the run does not bring it back early either.
    run.step(0, "done", &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(ready(store, just_before(again_at)).await, []);
    assert_eq!(ready(store, again_at).await, [(run.id(), step(1))]);
}

pub(crate) async fn a_claim_is_due_when_its_lease_expired(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    let claim = run.claim(PLAN, &ids);
    store.must_commit(run.commit()).await;
    let until = run.now.after(Duration::from_secs(30));
    let hold = ClaimRef { run: run.id(), task: PLAN, claim };
    assert_eq!(due(store, just_before(until)).await, Due::default());
    assert_eq!(due(store, until).await, Due { expired: vec![hold], ..Due::default() });
    // It stays due until it is handled.
    assert_eq!(due(store, until.after(MILLISECOND)).await.expired, [hold]);
    run.now = until;
    run.drive(&Command::ExpireLease { task: PLAN, claim });
    store.must_commit(run.commit()).await;
    assert_eq!(due(store, until).await.expired, []);
}

pub(crate) async fn a_run_is_due_when_its_deadline_passed(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    let deadline = run.run.spec().deadline_at;
    assert_eq!(due(store, just_before(deadline)).await.overdue, []);
    assert_eq!(due(store, deadline).await.overdue, [run.id()]);
    run.now = deadline;
    run.drive(&Command::CheckDeadline);
    store.must_commit(run.commit()).await;
    assert_eq!(due(store, deadline).await, Due::default());
}

pub(crate) async fn due_keeps_its_limit(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    for is_claimed in [false, true, false, true, false, true] {
        let mut run = Driven::accepted(&ids);
        store.must_create(run.commit()).await;
        if is_claimed {
            run.claim(PLAN, &ids);
            store.must_commit(run.commit()).await;
        }
    }
    let end = crate::builders::a_spec().deadline_at;
    let later = end.after(MINUTE);
    let few = store.first.due(end, later, 2, &[]).await.unwrap();
    assert_eq!((few.ready.len(), few.expired.len(), few.overdue.len()), (2, 2, 2));
    let rest = store.first.due(end, later, 100, &[]).await.unwrap();
    assert_eq!((rest.ready.len(), rest.expired.len(), rest.overdue.len()), (1, 3, 6), "{rest:?}");
    assert!(few.ready.iter().all(|told| !rest.ready.contains(told)));
}

pub(crate) async fn runs_that_are_left_alone_are_not_due_and_take_no_place_of_others(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut ready, mut held) = (Vec::new(), Vec::new());
    for is_claimed in [false, true, false, true] {
        let mut run = Driven::accepted(&ids);
        store.must_create(run.commit()).await;
        if is_claimed {
            run.claim(PLAN, &ids);
            store.must_commit(run.commit()).await;
        }
        if is_claimed { held.push(run.id()) } else { ready.push(run.id()) }
    }
    // The oldest of each kind, which come first.
    let except = [ready[0], held[0]];
    let end = crate::builders::a_spec().deadline_at;
    let due = store.first.due(end, end.after(MINUTE), 1, &except).await.unwrap();
    assert_eq!(tasks(due.ready), [(ready[1], PLAN)]);
    assert_eq!(due.expired.iter().map(|hold| hold.run).collect::<Vec<_>>(), [held[1]]);
    assert!(due.overdue == [ready[1]] || due.overdue == [held[1]], "{:?}", due.overdue);
    let due = store.first.due(end, end.after(MINUTE), 100, &except).await.unwrap();
    assert_eq!(tasks(due.ready), []);
    assert_eq!(due.expired.iter().map(|hold| hold.run).collect::<Vec<_>>(), [held[1]]);
    let mut overdue = due.overdue;
    overdue.sort_unstable();
    assert_eq!(overdue, [ready[1], held[1]]);
}

pub(crate) async fn ended_runs_are_never_due(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut succeeded = Driven::accepted(&ids);
    let mut cancelled = Driven::accepted(&ids);
    store.must_create(succeeded.commit()).await;
    store.must_create(cancelled.commit()).await;
    succeeded.plan(a_plan(), &ids);
    for index in 0..3 {
        succeeded.step(index, "done", &ids);
    }
    // One step is claimed, one is ready and one waits when it ends.
    cancelled.plan(a_plan(), &ids);
    cancelled.claim(step(0), &ids);
    store.must_commit(cancelled.commit()).await;
    cancelled.drive(&Command::Cancel);
    for run in [&mut succeeded, &mut cancelled] {
        store.must_commit(run.commit()).await;
        assert!(run.run.is_ended());
    }
    let end_of_time = Timestamp::from_unix_ms(u64::MAX);
    assert_eq!(due(store, end_of_time).await, Due::default());
}

/// A run whose only step has called a tool.
async fn a_suspended(store: &StoreFixture, ids: &SeededIds) -> Driven {
    let mut run = Driven::accept(ids.run_id(TestClock::START), a_spec_with_tools());
    store.must_create(run.commit()).await;
    run.plan(plan_of(&[("quick", "Answer it.", &[])]), ids);
    run.claim(step(0), ids);
    store.must_commit(run.commit()).await;
    run.call(0, "look");
    store.must_commit(run.commit()).await;
    assert!(run.run.is_suspended());
    run
}

pub(crate) async fn a_suspended_run_has_no_task_and_is_due_when_its_wait_ends(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = a_suspended(store, &ids).await;
    let (deadline, end) = (run.run.deadline_at(), run.run.due_at());
    assert!(end > deadline);
    assert_eq!(due(store, just_before(end)).await, Due::default());
    assert_eq!(due(store, end).await, Due { overdue: vec![run.id()], ..Due::default() });
    assert_eq!(store.load(run.id()).await.as_ref(), Some(&run.run));
    let listed = store.first.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap();
    assert_eq!((listed[0].state.as_str(), listed[0].ended_at), ("suspended", None));
    assert_eq!(store.first.remove_ended(end.after(MINUTE), Duration::ZERO, 10).await.unwrap(), 0);
    let rating = Rating::new(1.0, None).unwrap();
    assert!(!store.first.rate(&a_tenant(), run.id(), &rating, end).await.unwrap());
    run.now = end;
    run.drive(&Command::CheckDeadline);
    store.must_commit(run.commit()).await;
    assert!(run.run.is_ended());
    assert_eq!(due(store, end).await, Due::default());
}

pub(crate) async fn a_continued_run_is_due_at_its_later_deadline(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = a_suspended(store, &ids).await;
    let before = run.run.deadline_at();
    run.now = run.now.after(MINUTE);
    run.give_results("blue");
    store.must_commit(run.commit()).await;
    assert_eq!(run.run.deadline_at(), before.after(MINUTE));
    assert_eq!(store.load(run.id()).await.as_ref(), Some(&run.run));
    // Its step waits for a worker again, as after any other commit.
    let again = due(store, run.now.after(MINUTE)).await;
    assert_eq!(tasks(again.ready), [(run.id(), step(0))]);
    assert_eq!(due(store, just_before(run.run.deadline_at())).await.overdue, []);
    assert_eq!(due(store, run.run.deadline_at()).await.overdue, [run.id()]);
}
