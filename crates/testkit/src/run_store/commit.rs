//! Appending to runs.

use podium_domain::ids::RequestId;
use podium_domain::run::{Run, RunSpec, TaskRef};
use podium_ports::clock::Ids;
use podium_ports::store::{Appended, RunFilter, Unwritten};

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_spec, a_tenant, plan_of};
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };

pub(crate) async fn one_handle_loads_what_the_other_commits(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    run.plan(a_plan(), &ids);
    assert_eq!(store.second.append(&[run.commit()]).await.unwrap(), [Ok(Appended::New)]);
    assert_eq!(store.load(run.id()).await.as_ref(), Some(&run.run));
    for step in 0..3 {
        run.step(step, &format!("output {step}"), &ids);
        store.must_commit(run.commit()).await;
    }
    let loaded = store.second.load(&[run.id()]).await.unwrap();
    assert_eq!(loaded[0].as_ref().and_then(Run::answer), Some("output 2"));
}

pub(crate) async fn a_runs_first_events_create_it_unless_it_exists(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let named = |ids: &SeededIds| {
        let request_id = Some(RequestId::new("r-1").expect("it is a name"));
        let spec = RunSpec { request_id, ..a_spec() };
        Driven::accept(ids.run_id(spec.accepted_at), spec)
    };
    // A beginning run and a continued one, in one batch.
    let (mut begun, mut old) = (named(&ids), Driven::accepted(&ids));
    store.must_create(old.commit()).await;
    begun.plan(a_plan(), &ids);
    old.claim(PLAN, &ids);
    let first = begun.commit();
    assert_eq!(
        store.first.append(&[first.clone(), old.commit()]).await.unwrap(),
        [Ok(Appended::New), Ok(Appended::New)]
    );
    assert_eq!(store.load(begun.id()).await.as_ref(), Some(&begun.run));
    assert_eq!(store.load(old.id()).await.as_ref(), Some(&old.run));
    assert_eq!(store.first.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap().len(), 2);
    // Its own first events again, and another run with the same request id.
    let mut other = named(&ids);
    let commits = [first, other.commit()];
    let there = [Ok(Appended::Already), Ok(Appended::Existing(begun.id()))];
    assert_eq!(store.second.append(&commits).await.unwrap(), there);
    assert_eq!(store.load(other.id()).await, None);
    begun.step(0, "output", &ids);
    store.must_commit(begun.commit()).await;
    // A caller that cannot know that the run exists creates it again, and learns that it exists.
    assert_eq!(store.first.append(&[commits[0].clone()]).await.unwrap(), [Ok(Appended::Already)]);
    assert_eq!(store.load(begun.id()).await, Some(begun.run));
}

pub(crate) async fn a_stale_writer_is_refused_and_leaves_no_trace(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut winner = Driven::accepted(&ids);
    store.must_create(winner.commit()).await;
    let mut stale = winner.clone();
    winner.claim(PLAN, &ids);
    store.must_commit(winner.commit()).await;

    // Everything that the stale writer would change is visible: events, tasks and the entry in the list.
    stale.plan(a_plan(), &ids);
    for step in 0..3 {
        stale.step(step, "stale", &ids);
    }
    let before = store.first.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap();
    assert_eq!(store.first.append(&[stale.commit()]).await.unwrap(), [Err(Unwritten::Conflict)]);
    assert_eq!(store.load(winner.id()).await, Some(winner.run.clone()));
    assert_eq!(store.events(winner.id()).await.len(), 2);
    assert_eq!(store.first.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap(), before);
    let end = winner.run.spec().deadline_at;
    let due = store.first.due(end, end, 10, &[]).await.unwrap();
    assert_eq!((due.ready.len(), due.expired.len(), due.overdue.len()), (0, 1, 1), "{due:?}");
}

pub(crate) async fn repeating_a_commit_is_a_conflict_and_changes_nothing(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    run.claim(PLAN, &ids);
    let commit = run.commit();
    store.must_commit(commit.clone()).await;
    assert_eq!(store.first.append(&[commit]).await.unwrap(), [Err(Unwritten::Conflict)]);
    assert_eq!(store.load(run.id()).await, Some(run.run));
}

pub(crate) async fn a_commit_to_an_unknown_run_is_a_conflict(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    run.commit();
    run.claim(PLAN, &ids);
    assert_eq!(store.first.append(&[run.commit()]).await.unwrap(), [Err(Unwritten::Conflict)]);
    assert_eq!(store.load(run.id()).await, None);
    assert_eq!(store.events(run.id()).await, []);
}

pub(crate) async fn one_conflict_in_a_batch_does_not_touch_the_others(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = [(); 3].map(|()| Driven::accepted(&ids));
    for run in &mut runs {
        store.must_create(run.commit()).await;
    }
    let mut stale = runs[1].clone();
    for run in &mut runs {
        run.claim(PLAN, &ids);
    }
    store.must_commit(runs[1].commit()).await;
    stale.claim(PLAN, &ids);
    let batch = [runs[0].commit(), stale.commit(), runs[2].commit()];
    assert_eq!(
        store.first.append(&batch).await.unwrap(),
        [Ok(Appended::New), Err(Unwritten::Conflict), Ok(Appended::New)]
    );
    for run in runs {
        assert_eq!(store.load(run.id()).await, Some(run.run));
    }
}

pub(crate) async fn large_and_unusual_texts_are_stored_unchanged(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let odd =
        ["a NUL \0 inside", "quotes ' \" \\ and\r\nlines\u{2028}", "שלום 👩‍👩‍👧 e\u{301}\u{feff}\u{10ffff}"];
    let megabyte = "0123456789abcdeé".chars().cycle().take(1 << 20).collect::<String>();
    for output in odd.into_iter().chain([megabyte.as_str()]) {
        let mut run = Driven::accepted(&ids);
        store.must_create(run.commit()).await;
        run.plan(plan_of(&[("quick", "Say something odd.", &[])]), &ids);
        run.step(0, output, &ids);
        store.must_commit(run.commit()).await;
        let loaded = store.load(run.id()).await;
        // Not `assert_eq`, which would print a megabyte.
        assert!(loaded.as_ref().and_then(Run::answer) == Some(output), "an output of {} bytes", output.len());
        assert!(loaded == Some(run.run));
    }
}
