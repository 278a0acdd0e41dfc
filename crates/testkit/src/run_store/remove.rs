//! Removing runs that ended.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::join;
use podium_domain::ids::{ClaimId, RequestId, StepIndex};
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::clock::Ids;
use podium_ports::queue::Lane;
use podium_ports::store::{Appended, ClaimRef, Due, ReadyTask, RunFilter, Unwritten};

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_result, a_spec, a_tenant};
use crate::ids::SeededIds;

const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(u64::MAX);
const MINUTE: Duration = Duration::from_mins(1);
const STEP: StepIndex = StepIndex::new(0);

/// A run that was cancelled while its first step was running, with the claim of that step.
async fn a_cancelled(store: &StoreFixture, ids: &SeededIds) -> (Driven, ClaimId) {
    let mut run = Driven::accepted(ids);
    store.must_create(run.commit()).await;
    run.plan(a_plan(), ids);
    let claim = run.claim(TaskRef::Step { round: 0, step: STEP }, ids);
    run.now = run.now.after(MINUTE);
    run.drive(&Command::Cancel);
    store.must_commit(run.commit()).await;
    assert!(run.run.is_ended());
    (run, claim)
}

async fn remove(store: &StoreFixture, ended_by: Timestamp, limit: u32) -> u32 {
    store.first.remove_ended(ended_by, Duration::ZERO, limit).await.expect("the store removes")
}

pub(crate) async fn an_active_run_is_never_removed(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut fresh, mut planned) = (Driven::accepted(&ids), Driven::accepted(&ids));
    store.must_create(fresh.commit()).await;
    store.must_create(planned.commit()).await;
    planned.plan(a_plan(), &ids);
    planned.step(0, "done", &ids);
    store.must_commit(planned.commit()).await;
    assert_eq!(remove(store, END_OF_TIME, 100).await, 0);
    assert_eq!(store.load(fresh.id()).await, Some(fresh.run));
    assert_eq!(store.load(planned.id()).await, Some(planned.run));
}

pub(crate) async fn a_removed_run_leaves_nothing_and_no_other_is_touched(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let (mut other, mut active) = (Driven::accepted(&ids), Driven::accepted(&ids));
    let (mut old, claim) = a_cancelled(store, &ids).await;
    store.must_create(other.commit()).await;
    store.must_create(active.commit()).await;
    other.now = old.now.after(MINUTE);
    other.drive(&Command::Cancel);
    store.must_commit(other.commit()).await;
    assert_eq!(remove(store, old.now, 100).await, 1);

    assert_eq!(store.load(old.id()).await, None);
    assert_eq!(store.events(old.id()).await, []);
    let listed =
        store.second.list(&a_tenant(), &RunFilter::default(), None, 100).await.expect("the store lists");
    assert_eq!(listed.iter().map(|line| line.id).collect::<Vec<_>>(), [active.id(), other.id()]);
    let task = TaskRef::Step { round: 0, step: STEP };
    let hold = ClaimRef { run: old.id(), task, claim };
    assert_eq!(store.first.held(&[hold]).await.unwrap(), [false]);
    old.drive(&Command::CompleteStep { round: 0, step: STEP, claim, result: a_result("late") });
    assert_eq!(store.first.append(&[old.commit()]).await.unwrap(), [Err(Unwritten::Conflict)]);
    assert_eq!(store.events(old.id()).await, []);

    assert_eq!(store.load(other.id()).await, Some(other.run.clone()));
    assert_eq!(store.load(active.id()).await, Some(active.run.clone()));
    assert_eq!(store.events(other.id()).await.len() as u64, other.run.version());
    let due = store.first.due(END_OF_TIME, END_OF_TIME, 100, &[]).await.unwrap();
    let (task, lane) = (TaskRef::Plan { round: 0 }, Lane::Plan(active.run.spec().request.policy.tier));
    let ready = vec![ReadyTask { run: active.id(), task, lane }];
    assert_eq!(due, Due { ready, overdue: vec![active.id()], ..Due::default() });
}

pub(crate) async fn a_run_is_removed_only_once_it_ended_long_enough_ago(store: &StoreFixture) {
    let (run, _) = a_cancelled(store, &SeededIds::new(1)).await;
    // It was accepted a minute before it ended.
    for too_early in [run.run.spec().accepted_at, Timestamp::from_unix_ms(run.now.unix_ms() - 1)] {
        assert_eq!(remove(store, too_early, 100).await, 0);
    }
    assert_eq!(remove(store, run.now, 100).await, 1);
    assert_eq!(remove(store, run.now, 100).await, 0, "it can be repeated");
}

pub(crate) async fn removing_keeps_its_limit_and_takes_the_oldest(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(a_cancelled(store, &ids).await.0);
    }
    for (removed, left) in [(2, 3), (2, 1), (1, 0), (0, 0)] {
        assert_eq!(remove(store, END_OF_TIME, 2).await, removed);
        let listed = store.first.list(&a_tenant(), &RunFilter::default(), None, 100).await.unwrap();
        let newest = runs.iter().rev().take(left).map(Driven::id);
        assert_eq!(listed.iter().map(|line| line.id).collect::<Vec<_>>(), newest.collect::<Vec<_>>());
    }
}

pub(crate) async fn a_removed_runs_request_id_is_free(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let request_id = RequestId::new("once").expect("it is a request id");
    let spec = RunSpec { request_id: Some(request_id), ..a_spec() };
    let [mut first, mut again] = [(); 2].map(|()| Driven::accept(ids.run_id(spec.accepted_at), spec.clone()));
    store.must_create(first.commit()).await;
    first.drive(&Command::Cancel);
    store.must_commit(first.commit()).await;
    assert_eq!(store.create(again.clone().commit()).await, Appended::Existing(first.id()));
    assert_eq!(remove(store, first.now, 100).await, 1);
    store.must_create(again.commit()).await;
    assert_eq!(store.load(again.id()).await, Some(again.run));
}

pub(crate) async fn two_removers_share_the_work(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    for _ in 0..40 {
        a_cancelled(store, &ids).await;
    }
    let removals = (0..8).map(|index| {
        let handle = Arc::clone(if index % 2 == 0 { &store.first } else { &store.second });
        async move { handle.remove_ended(END_OF_TIME, Duration::ZERO, 10).await.expect("the store removes") }
    });
    let removed = join_all(removals).await;
    assert_eq!(removed.iter().sum::<u32>(), 40, "each is removed once: {removed:?}");
    assert_eq!(store.first.list(&a_tenant(), &RunFilter::default(), None, 100).await.unwrap(), []);
}

/// A result that is no longer needed arrives while the run is being removed.
pub(crate) async fn a_write_during_a_removal_leaves_nothing(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut late = Vec::new();
    for _ in 0..20 {
        let (mut run, claim) = a_cancelled(store, &ids).await;
        run.drive(&Command::CompleteStep { round: 0, step: STEP, claim, result: a_result("late") });
        late.push(run.commit());
    }
    let writes = join_all(late.chunks(1).map(|commit| store.second.append(commit)));
    let removals = join_all((0..20).map(|_| store.first.remove_ended(END_OF_TIME, Duration::ZERO, 1)));
    let (written, removed) = join!(writes, removals);
    for answer in written {
        drop(answer.expect("the store answers"));
    }
    let removed: u32 = removed.into_iter().map(|answer| answer.expect("the store removes")).sum();
    assert_eq!(removed + remove(store, END_OF_TIME, 100).await, 20);
    for commit in late {
        assert_eq!(store.load(commit.after.id()).await, None);
        assert_eq!(store.events(commit.after.id()).await, []);
    }
}
