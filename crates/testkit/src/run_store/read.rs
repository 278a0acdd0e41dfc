//! Reading events and lists.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::conversation::Conversation;
use podium_domain::ids::{ClaimId, RunId, StepIndex, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{FailedStep, Tier};
use podium_domain::run::{
    AttemptError, Command, FinishReason, RunSpec, Saved, StateKind, StepResult, TaskRef,
};
use podium_domain::usage::{Spent, Usage};
use podium_ports::clock::Ids;
use podium_ports::store::{Lack, RunFilter, RunSummary, RunSums, ToLoad};

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_result, a_spec, a_tenant, plan_of};
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };

pub(crate) async fn unknown_runs_load_as_none(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    let unknown = ids.run_id(run.now);
    let loaded = store.first.load(&[unknown, run.id(), unknown]).await.unwrap();
    assert_eq!(loaded, [None, Some(run.run), None]);
    assert_eq!(store.first.load(&[]).await.unwrap(), []);
}

pub(crate) async fn newer_events_are_added_to_a_known_run(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let [mut run, mut other] = [(); 2].map(|()| Driven::accepted(&ids));
    store.must_create(run.commit()).await;
    store.must_create(other.commit()).await;
    let at_first = ToLoad { id: run.id(), known: Some(Arc::new(run.run.clone())) };
    run.plan(a_plan(), &ids);
    run.step(0, "first", &ids);
    store.must_commit(run.commit()).await;
    let now = ToLoad { id: run.id(), known: Some(Arc::new(run.run.clone())) };
    run.step(1, "second", &ids);
    store.must_commit(run.commit()).await;
    let expected = Some(run.run);
    for known in [at_first, now] {
        let asked = [known.clone(), other.id().into(), ids.run_id(run.now).into(), known];
        let loaded = store.second.load_newer(&asked).await.unwrap();
        assert_eq!(loaded, [expected.clone(), Some(other.run.clone()), None, expected.clone()]);
    }
    assert_eq!(store.second.load_newer(&[]).await.unwrap(), []);
}

/// As after a standby without the last commits took over.
pub(crate) async fn a_known_run_with_another_history_is_loaded_as_stored(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    let mut lost = run.clone();
    run.now = run.now.after(Duration::from_secs(1));
    run.claim(PLAN, &ids);
    store.must_commit(run.commit()).await;
    lost.claim(PLAN, &ids);
    let as_long = Arc::new(lost.run.clone());
    lost.planned(a_plan(), lost.last_claim);
    for known in [as_long, Arc::new(lost.run)] {
        let loaded = store.first.load_newer(&[ToLoad { id: run.id(), known: Some(known) }]).await.unwrap();
        assert_eq!(loaded, [Some(run.run.clone())]);
    }
}

pub(crate) async fn events_are_gap_free_and_come_in_pages(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = Driven::accepted(&ids);
    let mut all = run.fresh.clone();
    store.must_create(run.commit()).await;
    run.plan(a_plan(), &ids);
    for step in 0..3 {
        run.step(step, "done", &ids);
        all.extend(run.fresh.clone());
        store.must_commit(run.commit()).await;
    }
    assert!((1u64..).zip(&all).all(|(sequence, event)| event.sequence == sequence));
    // However the events were grouped into commits.
    for limit in 1..=5 {
        let mut read = Vec::new();
        loop {
            let after = read.len() as u64;
            let page = store.first.events(run.id(), after, limit).await.unwrap();
            let left = all.len() - read.len();
            assert_eq!(page.len(), left.min(limit as usize), "{limit} after {after}");
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read, all);
    }
    assert_eq!(store.first.events(run.id(), 2, 1_000).await.unwrap(), all[2..]);
    assert_eq!(store.first.events(run.id(), u64::MAX, 1_000).await.unwrap(), []);
    assert_eq!(store.first.events(run.id(), 0, u32::MAX).await.unwrap(), all);
}

pub(crate) async fn the_list_is_newest_first_and_comes_in_pages(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut made: Vec<_> = (0..5).map(|_| Driven::accepted(&ids)).collect();
    for run in &mut made {
        store.must_create(run.commit()).await;
    }
    made.reverse();
    let newest: Vec<_> = made.iter().map(Driven::id).collect();
    let page = async |before, limit| {
        let page = store.first.list(&a_tenant(), &RunFilter::default(), before, limit).await.unwrap();
        page.into_iter().map(|summary| summary.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 100).await, newest);
    assert_eq!(page(None, 2).await, newest[..2]);
    assert_eq!(page(Some(newest[1]), 2).await, newest[2..4]);
    assert_eq!(page(Some(newest[4]), 2).await, []);
}

pub(crate) async fn the_list_shows_the_runs_that_its_filter_names(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let at = |seconds: u64| a_spec().accepted_at.after(Duration::from_secs(seconds));
    let mut made = Vec::new();
    let models = ["podium-mini", "podium-mini@nano-1", "podium-ultra", "podium-ultra@mini", "podium-ultra"];
    for (second, model) in (0..).zip(models) {
        let spec = RunSpec { model: model.to_owned(), accepted_at: at(second), ..a_spec() };
        let mut run = Driven::accept(ids.run_id(spec.accepted_at), spec);
        if second % 2 == 1 {
            run.drive(&Command::Cancel);
        }
        store.must_create(run.commit()).await;
        made.push(run.id());
    }
    let listed = async |filter: RunFilter, before: Option<RunId>, limit| {
        let page = store.first.list(&a_tenant(), &filter, before, limit).await.unwrap();
        let place = |summary: &RunSummary| made.iter().position(|id| *id == summary.id).unwrap();
        page.iter().map(place).collect::<Vec<_>>()
    };
    let all = RunFilter::default;
    let states = |states: &[StateKind]| RunFilter { states: states.to_vec(), ..all() };
    assert_eq!(listed(states(&[StateKind::Active]), None, 9).await, [4, 2, 0]);
    assert_eq!(listed(states(&[StateKind::Cancelled, StateKind::Failed]), None, 9).await, [3, 1]);
    assert_eq!(listed(states(&[StateKind::Cancelled, StateKind::Active]), None, 9).await, [4, 3, 2, 1, 0]);
    assert!(listed(states(&[StateKind::Suspended]), None, 9).await.is_empty());
    assert_eq!(listed(RunFilter { tier: Some(Tier::Mini), ..all() }, None, 9).await, [1, 0]);
    assert_eq!(listed(RunFilter { tier: Some(Tier::Ultra), ..all() }, None, 9).await, [4, 3, 2]);
    let model = Some("podium-ultra".to_owned());
    assert_eq!(listed(RunFilter { model, ..all() }, None, 9).await, [4, 2]);
    let since = RunFilter { created_after: Some(at(1)), ..all() };
    assert_eq!(listed(since.clone(), None, 9).await, [4, 3, 2, 1]);
    assert_eq!(listed(since.clone(), Some(made[3]), 9).await, [2, 1]);
    assert_eq!(listed(RunFilter { created_before: Some(at(3)), ..since.clone() }, None, 9).await, [2, 1]);
    assert_eq!(listed(RunFilter { created_before: Some(at(3)), ..all() }, Some(made[4]), 1).await, [2]);
    // Pages are filtered before they are cut.
    let filter = RunFilter { states: vec![StateKind::Active], tier: Some(Tier::Ultra), ..since };
    assert_eq!(listed(filter.clone(), None, 1).await, [4]);
    assert_eq!(listed(filter.clone(), Some(made[4]), 1).await, [2]);
    assert!(listed(filter, Some(made[2]), 1).await.is_empty());
}

pub(crate) async fn the_list_has_state_sums_and_end(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let question = "Why is the sky blue?";
    let conversation = Conversation::question_only(question).expect("it is a question");
    let mut spec = a_spec();
    spec.request.conversation = conversation;
    let mut run = Driven::accept(ids.run_id(spec.accepted_at), spec);
    store.must_create(run.commit()).await;
    let line =
        async || store.first.list(&a_tenant(), &RunFilter::default(), None, 1).await.unwrap().remove(0);
    let first = line().await;
    assert_eq!((first.id, &first.tenant), (run.id(), &run.run.spec().tenant));
    assert_eq!((first.model.as_str(), first.question.as_str()), ("podium-ultra", question));
    assert_eq!((first.state.as_str(), first.sums, first.ended_at), ("active", RunSums::default(), None));
    assert_eq!(first.accepted_at, run.run.spec().accepted_at);
    run.plan(a_plan(), &ids);
    fall_back(&mut run, &ids);
    for step in 0..3 {
        let claim = run.claim(TaskRef::Step { round: 0, step: StepIndex::new(step) }, &ids);
        complete(&mut run, step, claim);
    }
    store.must_commit(run.commit()).await;
    let last = line().await;
    // All values differ, so that none can be mistaken for another.
    let nano = Cost::from_nano_usd;
    let (cost, wasted, saved) = (nano(360_000 + 7), nano(7), nano(5));
    let lack = Some(Lack::default());
    let expected = RunSums { steps: 3, cost, wasted, saved, fallbacks: 1, lack };
    assert_eq!((last.state.as_str(), last.sums), ("succeeded", expected));
    assert_eq!((last.ended_at, last.question.as_str()), (run.run.ended_at(), question));
}

pub(crate) async fn the_list_says_what_an_answer_lacks(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let listed = async |run: &mut Driven| {
        store.must_commit(run.commit()).await;
        store.first.list(&a_tenant(), &RunFilter::default(), None, 1).await.unwrap().remove(0).sums.lack
    };
    let mut degraded = going_on(store, &ids).await;
    for step in 0..2 {
        let task = TaskRef::Step { round: 0, step: StepIndex::new(step) };
        let claim = degraded.claim(task, &ids);
        degraded.fail(task, claim, None);
    }
    assert_eq!(listed(&mut degraded).await, None, "it is active");
    degraded.step(2, "middle", &ids);
    degraded.step(3, "built without two", &ids);
    let lack = Lack { failed_steps: 2, degraded: true, refused: false };
    assert_eq!(listed(&mut degraded).await, Some(lack));
    let mut refused = going_on(store, &ids).await;
    refused.step(0, "left", &ids);
    refused.step(1, "right", &ids);
    refused.step(2, "middle", &ids);
    let last = StepIndex::new(3);
    let claim = refused.claim(TaskRef::Step { round: 0, step: last }, &ids);
    let result = StepResult { finish: FinishReason::ContentFilter, ..a_result("I cannot do that.") };
    refused.drive(&Command::CompleteStep { round: 0, step: last, claim, result });
    let lack = Lack { failed_steps: 0, degraded: false, refused: true };
    assert_eq!(listed(&mut refused).await, Some(lack));
}

/// A stored run of four steps, the last of which sees the others and is done without those that fail.
async fn going_on(store: &StoreFixture, ids: &SeededIds) -> Driven {
    let mut spec = a_spec();
    spec.request.policy.failed_step = FailedStep::Continue;
    let mut run = Driven::accept(ids.run_id(spec.accepted_at), spec);
    store.must_create(run.commit()).await;
    let seen = ["left", "right", "middle"].map(|subtask| ("quick", subtask, &[][..]));
    run.plan(plan_of(&[&seen[..], &[("careful", "join", &[0, 1, 2])]].concat()), ids);
    run
}

/// Fails the first step with `quick`, at a cost; it continues with `checker`.
fn fall_back(run: &mut Driven, ids: &SeededIds) {
    let task = TaskRef::Step { round: 0, step: StepIndex::new(0) };
    let claim = run.claim(task, ids);
    let error = AttemptError {
        is_rate_limit: false,
        message: "scripted".to_owned(),
        retry_at: None,
        fall_back_to: Some(WorkerId::new("checker").expect("it is a name")),
        spent: Spent { cost: Cost::from_nano_usd(7), ..Spent::NONE },
    };
    run.drive(&Command::FailAttempt { task, claim, error });
}

/// Completes a step: the first one from the cache.
fn complete(run: &mut Driven, step: u16, claim: ClaimId) {
    let saved = Saved { usage: Usage::NONE, cost: Cost::from_nano_usd(5) };
    let result = StepResult { saved: (step == 0).then_some(saved), ..a_result("done") };
    run.drive(&Command::CompleteStep { round: 0, step: StepIndex::new(step), claim, result });
}

pub(crate) async fn the_store_answers(store: &StoreFixture) {
    store.first.ping().await.unwrap();
    store.second.ping().await.unwrap();
}
