//! Outages: a minute without the queue, and a store that loses answers or does not write. Time is virtual.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use podium_domain::ids::{RunId, StepIndex};
use podium_domain::policy::Tier;
use podium_domain::run::{AttemptOutcome, Run, TaskRef};
use podium_engine::{Options, Update};
use podium_ports::clock::Clock as _;
use podium_ports::queue::Lane;
use podium_ports::store::StoreError;
use podium_testkit::{Answer, Gate, TestClock};

use crate::duties::{Scene, a_scene, due_in, overran};
use crate::faults::Held;
use crate::house::{House, Roles};

const SECOND: Duration = Duration::from_secs(1);
const STEP: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };

/// The ended run, with more patience than other tests have.
async fn ended_within(house: &House, clock: TestClock, run: RunId, most: Duration) -> Run {
    let began = clock.now();
    loop {
        let found = house.engine.run(run).await.unwrap().unwrap();
        if found.is_ended() {
            return found;
        }
        assert!(clock.now().since(began) < most, "{found:#?}");
        clock.sleep(SECOND / 4).await;
    }
}

#[tokio::test]
async fn a_minute_without_the_queue_delays_neither_accepts_nor_deadlines() {
    let drain = 3 * SECOND;
    let Scene { house, queue, clock, .. } = a_scene(Options { drain, ..Options::default() }).await;
    house.vendor.otherwise(Answer::hang());
    let mut house = house.at_work();
    house.ask().await;
    // Its call continues meanwhile.
    house.vendor.until_called(1).await;
    queue.is_unreachable.store(true, Ordering::SeqCst);
    let mut asked = Vec::new();
    for _ in 0..30 {
        let began = clock.now();
        asked.push(house.ask_under(due_in(4 * SECOND)).await);
        assert!(clock.now().since(began) <= SECOND / 10);
        clock.sleep(2 * SECOND).await;
    }
    for run in asked {
        let run = ended_within(&house, clock, run, 10 * SECOND).await;
        assert!(overran(&run) <= 2 * SECOND, "{:?}", overran(&run));
    }
    // While the queue fails for a lane, one task at a time is tried.
    let published = queue.published.load(Ordering::SeqCst);
    assert!(published < 150, "{published} tries in a minute");
    let began = clock.now();
    house.stop().await;
    let took = clock.now().since(began);
    assert!(took <= drain + SECOND / 10, "{took:?}");
}

/// If each publication waited for the one before, fewer tasks would be published in this time.
#[tokio::test]
async fn waiting_tasks_are_published_concurrently() {
    const RUNS: usize = 60;
    let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
    queue.is_unreachable.store(true, Ordering::SeqCst);
    for _ in 0..RUNS {
        house.ask().await;
    }
    let house = house.at_work_as(Roles::NONE);
    let lane = Lane::Plan(Tier::Ultra);
    let room = queue.queue.capacity(&lane).await.unwrap();
    clock.sleep(10 * SECOND).await;
    queue.publication_ms.store(40, Ordering::SeqCst);
    queue.is_unreachable.store(false, Ordering::SeqCst);
    let began = clock.now();
    while queue.queue.capacity(&lane).await.unwrap() > room - RUNS {
        clock.sleep(SECOND / 100).await;
        let took = clock.now().since(began);
        assert!(took < 5 * SECOND / 2, "{took:?}");
    }
    drop(house);
}

#[tokio::test]
async fn an_unwritable_run_does_not_delay_deadlines_of_others() {
    let options = Options { batches_max: 2, ..Options::default() };
    let Scene { house, faults, .. } = a_scene(options).await;
    let stuck = house.ask_under(due_in(SECOND)).await;
    let other = house.ask_under(due_in(3 * SECOND)).await;
    *faults.held.lock().unwrap() =
        Some(Held { run: stuck, has_come: Gate::closed(), may_go: Gate::closed() });
    let house = house.at_work_as(Roles::NONE);
    let run = house.ended(other).await;
    assert!(overran(&run) <= 2 * SECOND, "{:?}", overran(&run));
}

#[tokio::test]
async fn leases_do_not_expire_while_the_store_accepts_no_writes() {
    const RUNS: usize = 5;
    let options = Options { lease: 3 * SECOND, ..Options::default() };
    // In each iteration, heartbeats and sweeps have other times.
    for offset in 0_u32..8 {
        let Scene { house, faults, clock, .. } = a_scene(options.clone()).await;
        let gate = Gate::closed();
        house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
        let house = house.at_work();
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(house.ask().await);
        }
        house.vendor.until_called(RUNS).await;
        let sweeps = house.beside(options.clone(), 9, |_| ()).at_work_as(Roles::NONE);
        clock.sleep(10 * SECOND + offset * SECOND / 10).await;
        faults.writes_fail.store(true, Ordering::SeqCst);
        clock.sleep(8 * SECOND).await;
        faults.writes_fail.store(false, Ordering::SeqCst);
        clock.sleep(8 * SECOND).await;
        gate.open();
        for run in runs {
            assert_eq!(house.ended(run).await.answer(), Some("fine"));
        }
        // The step whose lease was tried may be called again, by each process that sweeps.
        let calls = house.vendor.calls().len();
        assert!(calls <= RUNS + 2, "{calls} calls, offset {offset}");
        drop(sweeps);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_plan_that_cannot_be_recorded_returns_its_slot() {
    let options = Options { plan_slots: 1, ..Options::default() };
    let Scene { house, faults, clock, .. } = a_scene(options).await;
    house.vendor.otherwise(Answer::text("fine"));
    let contended = house.ask().await;
    *faults.contended.lock().unwrap() = Some(contended);
    let house = house.at_work();
    house.conductor.until_requested(1).await;
    let other = house.ask().await;
    let run = ended_within(&house, clock, other, 45 * SECOND).await;
    assert_eq!(run.answer(), Some("fine"));
}

/// No worker was called for the claim, so its reservation must not wait for the end of a lease.
#[tokio::test]
async fn a_claim_with_two_lost_answers_is_released() {
    let options = Options { run_cache_runs_max: 0, ..Options::default() };
    let Scene { house, faults, clock, .. } = a_scene(options.clone()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let mut planner = house.at_work_as(Roles::PLANNER);
    let run = planner.ask().await;
    planner.until(run, |run| run.task(STEP).is_some()).await;
    planner.kill().await;
    faults.answers_lost.store(1, Ordering::SeqCst);
    faults.loads_fail_after_lost.store(1, Ordering::SeqCst);
    let executor = planner.beside(options, 9, |_| ()).at_work_as(Roles::EXECUTOR);
    let run = ended_within(&executor, clock, run, 10 * SECOND).await;
    let attempts = &run.task(STEP).unwrap().attempts;
    assert_eq!(attempts[0].outcome, AttemptOutcome::HandedBack, "{attempts:#?}");
    assert_eq!(run.answer(), Some("fine"));
}

#[tokio::test]
async fn waiting_clients_outlast_an_outage_of_the_store() {
    let Scene { house, faults, clock, .. } = a_scene(Options::default()).await;
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let house = house.at_work();
    let run = house.ask().await;
    let mut updates = house.engine.watch(run, 0).await.unwrap();
    let answer = house.engine.answer(run).await.unwrap();
    let mut ending = house.engine.ending(run);
    // It has read the run, and waits.
    assert_eq!(ending.run().now_or_never().map(|run| run.is_ok()), None);
    house.vendor.until_called(1).await;
    let clients = async {
        let mut seen = Vec::new();
        while let Some(update) = updates.next().await {
            if let Update::Event(event) = update.unwrap() {
                seen.push(event.sequence);
            }
        }
        let parts: Vec<_> = answer.map(Result::unwrap).collect().await;
        (seen, parts.len(), ending.run().await.unwrap())
    };
    let outage = async {
        // The worker answers during the outage; its answer can be stored only afterwards.
        faults.set_down(true);
        gate.open();
        clock.sleep(20 * SECOND).await;
        faults.set_down(false);
    };
    let ((seen, parts, ended), ()) = tokio::join!(clients, outage);
    assert_eq!(ended.answer(), Some("fine"));
    assert_eq!(seen, (1..=ended.version()).collect::<Vec<_>>());
    assert!(parts >= 1);
}

#[tokio::test]
async fn a_longer_outage_of_the_store_fails_waiting_clients() {
    let Scene { house, faults, clock, .. } = a_scene(Options::default()).await;
    house.vendor.otherwise(Answer::hang());
    let house = house.at_work();
    let run = house.ask().await;
    let updates = house.engine.watch(run, 0).await.unwrap();
    let mut ending = house.engine.ending(run);
    assert_eq!(ending.run().now_or_never().map(|run| run.is_ok()), None);
    house.vendor.until_called(1).await;
    faults.set_down(true);
    let began = clock.now();
    // One that has not begun to wait fails at once.
    house.engine.watch(run, 0).await.map(|_| ()).unwrap_err();
    assert_eq!(clock.now(), began);
    let updates: Vec<_> = updates.collect().await;
    assert!(matches!(updates.last(), Some(Err(StoreError::Unavailable(_)))), "{:?}", updates.last());
    ending.run().await.unwrap_err();
    let took = clock.now().since(began);
    assert!(took >= 60 * SECOND && took < 200 * SECOND, "{took:?}");
}
