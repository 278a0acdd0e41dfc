//! Where there was room whenever it was asked for, a permit is asked for beside the commit of its claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{StepIndex, WorkerId};
use podium_domain::run::{Attempt, AttemptOutcome, Run, TaskRef};
use podium_memory::MemoryLimiter;
use podium_ports::limiter::{CallWish, Grant, Limiter, LimiterError, Why};
use podium_testkit::{Answer, Fault, TestClock};

use crate::chain::{CHAINED, Scene, a_chain, a_scene, a_scene_over};
use crate::faults::StoreFaults;
use crate::house::{quick, within};

/// Whoever wants a step's permit asks for it in the order of the chain: a second run begins with the fourth.
const SECOND_RUN: usize = 3;

/// A limiter that does with some of those who ask what a test says, by their numbers from 0.
struct Picky {
    asked: AtomicUsize,
    refuses: &'static [usize],
    never_answers: &'static [usize],
    inner: MemoryLimiter,
}

fn picky(refuses: &'static [usize], never_answers: &'static [usize]) -> Arc<dyn Limiter> {
    let (asked, inner) = (AtomicUsize::new(0), MemoryLimiter::new(Arc::new(TestClock::new())));
    Arc::new(Picky { asked, refuses, never_answers, inner })
}

#[async_trait]
impl Limiter for Picky {
    async fn acquire(&self, wish: &CallWish<'_>) -> Result<Grant, LimiterError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.never_answers.contains(&number) {
            return std::future::pending().await;
        }
        if self.refuses.contains(&number) {
            return Ok(Grant::AskAgain { after: Duration::from_millis(1), why: Why::Rate });
        }
        self.inner.acquire(wish).await
    }
}

/// A limiter that grants some calls only once so many commits were made.
struct AfterCommits {
    asked: AtomicUsize,
    /// Whose call, which commit, and how many of it.
    rules: &'static [(usize, &'static str, usize)],
    store: Arc<StoreFaults>,
    inner: MemoryLimiter,
}

#[async_trait]
impl Limiter for AfterCommits {
    async fn acquire(&self, wish: &CallWish<'_>) -> Result<Grant, LimiterError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        for (_, wanted, count) in self.rules.iter().filter(|(rule, ..)| *rule == number) {
            while self.store.commits().iter().filter(|commit| commit == wanted).count() < *count {
                tokio::task::yield_now().await;
            }
        }
        self.inner.acquire(wish).await
    }
}

fn attempts(run: &Run, step: u16) -> &[Attempt] {
    &run.task(TaskRef::Step { round: 0, step: StepIndex::new(step) }).unwrap().attempts
}

fn outcomes(run: &Run) -> Vec<Vec<AttemptOutcome>> {
    let of = |step| attempts(run, step).iter().map(|attempt| attempt.outcome.clone()).collect();
    (0..3).map(of).collect()
}

async fn a_run(scene: &Scene) -> Run {
    let run = scene.house.ended(scene.house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    run
}

const ONE: [AttemptOutcome; 1] = [AttemptOutcome::Accepted];
const AGAIN: [AttemptOutcome; 2] = [AttemptOutcome::HandedBack, AttemptOutcome::Accepted];

#[tokio::test]
async fn a_claim_does_not_wait_for_a_permit_that_is_likely() {
    let (store, inner) = (Arc::<StoreFaults>::default(), MemoryLimiter::new(Arc::new(TestClock::new())));
    // The third call is of a worker that had room for the second. Of the second run's first step, the claim is the fourth one
    // that stands alone, after those of both plans and of the first step before.
    let rules = &[(2, CHAINED, 2), (SECOND_RUN, "claimed", 4)];
    let limiter = AfterCommits { asked: AtomicUsize::new(0), rules, store: Arc::clone(&store), inner };
    let scene = a_scene_over(store, a_chain(), Arc::new(limiter), quick()).await;
    assert_eq!(outcomes(&a_run(&scene).await), [ONE, ONE, ONE]);
    assert_eq!(scene.chained(), 2, "{:#?}", scene.store.commits());
    assert_eq!(outcomes(&within(a_run(&scene)).await), [ONE, ONE, ONE]);
}

#[tokio::test]
async fn who_is_refused_beside_its_claim_hands_the_step_back_and_the_next_ask_first() {
    // The last step is refused beside its claim, by its message, and granted.
    let scene = a_scene(a_chain(), picky(&[2, 3], &[]), quick()).await;
    assert_eq!(outcomes(&a_run(&scene).await), [&ONE[..], &ONE[..], &AGAIN[..]]);
    assert!(scene.was_published(2), "somebody has to go on with it");
    assert_eq!(scene.house.vendor.calls().len(), 3, "nobody was called without a permit");

    // Of that worker nothing is claimed before its permit now.
    let scene = a_scene(a_chain(), picky(&[2, SECOND_RUN + 3], &[]), quick()).await;
    a_run(&scene).await;
    assert_eq!(outcomes(&a_run(&scene).await), [ONE, ONE, ONE]);
}

#[tokio::test]
async fn the_first_step_of_a_run_is_handed_back_too() {
    let scene = a_scene(a_chain(), picky(&[SECOND_RUN, SECOND_RUN + 1], &[]), quick()).await;
    a_run(&scene).await;
    assert_eq!(outcomes(&a_run(&scene).await), [&AGAIN[..], &ONE[..], &ONE[..]]);
    assert_eq!(scene.house.vendor.calls().len(), 6);
}

#[tokio::test]
async fn a_step_is_handed_back_if_its_permit_does_not_come() {
    let scene = a_scene(a_chain(), picky(&[], &[2]), quick()).await;
    assert_eq!(outcomes(&a_run(&scene).await), [&ONE[..], &ONE[..], &AGAIN[..]]);
}

#[tokio::test]
async fn what_was_handed_back_leaves_the_step_all_its_attempts() {
    let scene = a_scene(a_chain(), picky(&[2], &[]), quick()).await;
    let failed = || Answer::refuse(Fault::Unreachable);
    scene.house.vendor.script("careful", [Answer::text("two"), failed(), failed()]);
    let run = a_run(&scene).await;
    // Were it one, the third would have been the last of this worker's.
    let workers: Vec<_> = attempts(&run, 2).iter().map(|attempt| attempt.worker.clone().unwrap()).collect();
    assert_eq!(workers.iter().map(WorkerId::as_str).collect::<Vec<_>>(), ["careful"; 4]);
}
