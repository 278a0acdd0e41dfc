//! A result is committed together with the claim of the step that it makes ready, unless that would delay the result or others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::StepIndex;
use podium_domain::plan::Plan;
use podium_domain::run::{AttemptOutcome, Run, TaskRef};
use podium_engine::Options;
use podium_memory::MemoryLimiter;
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError, RefusalReason};
use podium_testkit::{Answer, Gate, TestClock, a_plan, plan_of};

use crate::faults::{FaultyQueue, FaultyStore, StoreFaults};
use crate::house::{House, quick, within};

pub(crate) const CHAINED: &str = "step_done, step_ready, claimed";

pub(crate) struct Scene {
    pub(crate) house: House,
    queue: Arc<FaultyQueue>,
    pub(crate) store: Arc<StoreFaults>,
}

/// A working engine whose store and queue record their calls.
pub(crate) async fn a_scene(plan: Plan, limiter: Arc<dyn Limiter>, options: Options) -> Scene {
    a_scene_over(Arc::default(), plan, limiter, options).await
}

/// The same over a wrapped store.
pub(crate) async fn a_scene_over(
    store: Arc<StoreFaults>,
    plan: Plan,
    limiter: Arc<dyn Limiter>,
    options: Options,
) -> Scene {
    let mut house = House::idle(options.clone(), |inner| FaultyStore::around(inner, &store)).await;
    house.parts.limiter = limiter;
    let queue = FaultyQueue::around(Arc::clone(&house.parts.queue));
    let house = house.with_queue(queue.clone(), options).at_work();
    house.conductor.otherwise(plan);
    house.vendor.otherwise(Answer::text("fine"));
    Scene { house, queue, store }
}

fn a_limiter() -> Arc<dyn Limiter> {
    Arc::new(MemoryLimiter::new(Arc::new(TestClock::new())))
}

impl Scene {
    pub(crate) fn chained(&self) -> usize {
        self.store.commits().iter().filter(|commit| *commit == CHAINED).count()
    }

    pub(crate) fn was_published(&self, step: u16) -> bool {
        self.queue.published.lock().unwrap().contains(&step_of(step))
    }
}

pub(crate) fn a_chain() -> Plan {
    plan_of(&[("quick", "One.", &[]), ("careful", "Two.", &[0]), ("careful", "Three.", &[1])])
}

fn step_of(step: u16) -> TaskRef {
    TaskRef::Step { round: 0, step: StepIndex::new(step) }
}

/// Grants the first calls, refuses one, and grants again.
struct RefusesOnce {
    granted: AtomicUsize,
    refuses_after: usize,
    limiter: MemoryLimiter,
}

#[async_trait]
impl Limiter for RefusesOnce {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        if self.granted.fetch_add(1, Ordering::SeqCst) == self.refuses_after {
            return Ok(Grant::AskAgain { after: Duration::from_millis(1), why: RefusalReason::Busy });
        }
        self.limiter.acquire(request).await
    }
}

#[tokio::test]
async fn a_chain_of_steps_needs_one_message_and_a_commit_for_each_step() {
    let scene = a_scene(a_chain(), a_limiter(), quick()).await;
    let run = scene.house.ended(scene.house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(scene.chained(), 2, "{:#?}", scene.store.commits());
    assert!(scene.was_published(0) && !scene.was_published(1) && !scene.was_published(2));
    let prompts = scene.house.vendor.calls_of("careful");
    assert!(
        prompts[0].messages.last().unwrap().text.contains("fine"),
        "the second step sees the first one's output"
    );
}

#[tokio::test]
async fn one_of_several_ready_steps_is_chained_and_others_are_published() {
    let plan = plan_of(&[
        ("quick", "One.", &[]),
        ("careful", "Two.", &[0]),
        ("quick", "Three.", &[0]),
        ("checker", "Four.", &[1, 2]),
    ]);
    let scene = a_scene(plan, a_limiter(), quick()).await;
    let run = scene.house.ended(scene.house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(!scene.was_published(1) && scene.was_published(2));
    assert_eq!(scene.house.vendor.calls().len(), 4);
}

#[tokio::test]
async fn a_result_does_not_wait_for_the_permit_of_the_next_step() {
    let (granted, limiter) = (AtomicUsize::new(0), MemoryLimiter::new(Arc::new(TestClock::new())));
    let limiter = RefusesOnce { granted, refuses_after: 1, limiter };
    let scene = a_scene(a_chain(), Arc::new(limiter), quick()).await;
    let run = scene.house.ended(scene.house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(scene.was_published(1) && !scene.was_published(2));
    assert_eq!(scene.house.vendor.calls().len(), 3);
}

#[tokio::test]
async fn the_next_step_without_a_slot_waits_for_its_message() {
    // The only slot of the other vendor's lane is waiting for a message.
    let scene = a_scene(a_chain(), a_limiter(), Options { step_slots: 1, ..quick() }).await;
    let run = scene.house.ended(scene.house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(scene.was_published(1), "the step has another vendor");
    assert!(!scene.was_published(2), "the step uses the slot of the step before it");
}

#[tokio::test]
async fn a_process_that_stops_chains_no_step() {
    let mut scene = a_scene(a_chain(), a_limiter(), quick()).await;
    let gate = Gate::closed();
    scene.house.vendor.script("quick", [Answer::blank().wait(&gate).say("one")]);
    let id = scene.house.ask().await;
    within(scene.house.vendor.until_called(1)).await;
    scene.house.stop.cancel();
    gate.open();
    scene.house.stop().await;
    let run = scene.house.engine.run(id).await.unwrap().unwrap();
    assert_eq!((run.output(0, StepIndex::new(0)), run.is_ended()), (Some("one"), false));
    assert_eq!(scene.chained(), 0);
    let after = scene.house.beside(quick(), 8, |_| ()).at_work();
    assert_eq!(after.ended(id).await.answer(), Some("fine"));
}

#[tokio::test]
async fn a_death_in_a_chained_step_loses_only_that_call() {
    let mut scene = a_scene(a_chain(), a_limiter(), quick()).await;
    scene.house.vendor.script("careful", [Answer::hang(), Answer::text("two")]);
    let id = scene.house.ask().await;
    within(scene.house.vendor.until_called(2)).await;
    scene.house.kill().await;
    let after = scene.house.beside(quick(), 8, |_| ()).at_work();
    let run = after.ended(id).await;
    assert_eq!(run.output(0, StepIndex::new(1)), Some("two"));
    assert_eq!((after.vendor.calls_of("quick").len(), after.vendor.calls_of("careful").len()), (1, 3));
    let lost = |run: &Run| {
        run.tasks().flat_map(|(_, task)| &task.attempts).filter(|a| a.outcome == AttemptOutcome::Lost).count()
    };
    assert_eq!(lost(&run), 1);
}

#[tokio::test]
async fn a_result_and_a_claim_with_a_lost_answer_are_one_call_each() {
    let scene = a_scene(a_chain(), a_limiter(), quick()).await;
    let gate = Gate::closed();
    scene.house.vendor.script("quick", [Answer::blank().wait(&gate).say("one")]);
    let id = scene.house.ask().await;
    within(scene.house.vendor.until_called(1)).await;
    scene.store.answers_lost.store(1, Ordering::SeqCst);
    gate.open();
    let run = scene.house.ended(id).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(scene.house.vendor.calls().len(), 3);
}

#[tokio::test]
async fn two_branches_that_end_at_once_run_the_joining_step_once() {
    let scene = a_scene(a_plan(), a_limiter(), quick()).await;
    let second = scene.house.beside(quick(), 8, |_| ()).at_work();
    for _ in 0..20 {
        let gate = Gate::closed();
        let held = || Answer::blank().wait(&gate).say("a branch");
        scene.house.vendor.script("quick", [held()]);
        scene.house.vendor.script("careful", [held()]);
        let before = scene.house.vendor.calls().len();
        let id = second.ask().await;
        within(scene.house.vendor.until_called(before + 2)).await;
        gate.open();
        assert_eq!(scene.house.ended(id).await.answer(), Some("fine"));
    }
    assert_eq!(scene.house.vendor.calls_of("checker").len(), 20);
}
