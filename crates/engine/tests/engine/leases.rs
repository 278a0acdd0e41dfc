//! All claims of a process depend on its one lease. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use podium_domain::run::RunState;
use podium_engine::Options;
use podium_memory::{LiveOptions, MemoryLive};
use podium_ports::clock::Clock as _;
use podium_ports::store::RunStore;
use podium_testkit::{Answer, Gate, OpenLimiter, TestClock, TestStore, plan_of};

use crate::duties::{Scene, a_scene};
use crate::faults::{FaultyStore, StoreFaults};
use crate::house::{House, Roles, a_queue, within};

/// More than a heartbeat checks.
const CALLS: usize = 300;
const CHECKED_MAX: usize = 256;
const MILLISECOND: Duration = Duration::from_millis(1);

fn options() -> Options {
    Options { step_slots: CALLS, ..Options::default() }
}

/// Begins calls that do not end.
async fn with_calls(house: House) -> House {
    house.vendor.otherwise(Answer::hang());
    let house =
        house.beside(options(), 8, |parts| parts.limiter = Arc::new(OpenLimiter::default())).at_work();
    for _ in 0..CALLS {
        house.ask().await;
    }
    within(house.vendor.until_called(CALLS)).await;
    house
}

async fn until_aborted(house: &House, calls: usize) -> Duration {
    let began = house.parts.clock.now();
    within(async {
        while house.vendor.aborted() < calls {
            house.parts.clock.sleep(MILLISECOND).await;
        }
    })
    .await;
    house.parts.clock.now().since(began)
}

#[tokio::test]
async fn a_heartbeat_extends_one_lease_and_checks_a_page_of_claims() {
    let Scene { house, faults, clock, .. } = a_scene(options()).await;
    let _house = with_calls(house).await;
    let before = faults.extensions.load(Ordering::SeqCst);
    faults.checked.lock().unwrap().clear();
    clock.sleep(options().lease + 20 * MILLISECOND).await;
    let extended = faults.extensions.load(Ordering::SeqCst) - before;
    assert!((4..=5).contains(&extended), "{extended}");
    let checked = faults.checked.lock().unwrap().clone();
    assert!(checked.iter().all(|page| *page <= CHECKED_MAX), "{checked:?}");
    // Four heartbeats check all claims twice.
    assert!(checked.iter().sum::<usize>() > CALLS, "{checked:?}");
}

#[tokio::test]
async fn a_process_without_claims_has_no_heartbeat() {
    let Scene { house, faults, clock, .. } = a_scene(options()).await;
    let _house = house.at_work();
    clock.sleep(10 * options().lease).await;
    assert_eq!(faults.extensions.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_heartbeat_finds_a_lost_claim_although_the_signal_was_lost() {
    let Scene { house, .. } = a_scene(options()).await;
    house.vendor.script("quick", [Answer::hang()]);
    let house = house.at_work();
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    let other = house.beside(options(), 9, |parts| {
        parts.live = Arc::new(MemoryLive::new(LiveOptions::default()));
    });
    other.engine.cancel(id).await.unwrap();
    let took = until_aborted(&house, 1).await;
    assert!(took <= options().lease / 4 + 2 * MILLISECOND, "{took:?}");
}

/// The store answers other processes meanwhile, and one of them sweeps.
#[tokio::test]
async fn a_process_whose_lease_expired_checks_all_its_claims() {
    let others = House::idle(options(), |_| Arc::new(TestStore::new()) as Arc<dyn RunStore>).await;
    tokio::time::pause();
    others.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let faults = Arc::new(StoreFaults::default());
    let cut_off = others.beside(options(), 7, |parts| {
        parts.store = FaultyStore::around(parts.store.clone(), &faults);
    });
    let cut_off = with_calls(cut_off).await;
    let others = others.at_work_as(Roles::NONE);
    let clock = TestClock::new();
    clock.sleep(options().lease).await;
    faults.writes_fail.store(true, Ordering::SeqCst);
    clock.sleep(2 * options().lease).await;
    assert_eq!(cut_off.vendor.aborted(), 0, "the process has not been notified of anything");
    faults.writes_fail.store(false, Ordering::SeqCst);
    let took = until_aborted(&cut_off, CALLS).await;
    assert!(took <= options().lease / 4 + 2 * MILLISECOND, "{took:?}");
    drop(others);
}

/// The answers of the claim's commit and of the next tries were lost. Another claim keeps the lease of the process alive, so no
/// sweeper releases this one.
#[tokio::test]
async fn a_claim_without_work_is_released_while_its_process_lives() {
    let Scene { house, faults, clock, .. } = a_scene(options()).await;
    house.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    let house = house.at_work();
    house.ask().await;
    within(house.vendor.until_called(1)).await;
    faults.loads_fail_after_lost.store(40, Ordering::SeqCst);
    faults.answers_lost.store(1, Ordering::SeqCst);
    let id = house.ask().await;
    within(async {
        while faults.answers_lost.load(Ordering::SeqCst) + faults.loads_fail.load(Ordering::SeqCst) > 0 {
            clock.sleep(MILLISECOND).await;
        }
    })
    .await;
    let run = house.ended(id).await;
    assert!(matches!(run.state(), RunState::Succeeded { .. }), "{:?}", run.state());
}

/// A newer version wrote to the run while the older one made a call for it. Another call keeps the lease of the older process alive.
#[tokio::test]
async fn a_claim_on_a_run_that_became_unreadable_is_taken_over() {
    let options = Options { run_cache_runs_max: 0, ..options() };
    let newer = House::idle(options.clone(), |_| Arc::new(TestStore::new()) as Arc<dyn RunStore>).await;
    tokio::time::pause();
    newer.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let gate = Gate::closed();
    let answers = [Answer::hang(), Answer::blank().wait(&gate).say("old"), Answer::text("new")];
    newer.vendor.script("quick", answers);
    let faults = Arc::new(StoreFaults::default());
    let older = newer.beside(options.clone(), 8, |parts| {
        parts.store = FaultyStore::around(parts.store.clone(), &faults);
    });
    let older = older.at_work();
    older.ask().await;
    within(older.vendor.until_called(1)).await;
    let run = older.ask().await;
    within(older.vendor.until_called(2)).await;
    faults.unreadable.lock().unwrap().insert(run);
    // The message of the next attempt is for the newer process.
    let newer = newer.with_queue(a_queue(), options.clone()).at_work();
    let clock = Arc::clone(&newer.parts.clock);
    // A process that has just started expires no lease.
    clock.sleep(2 * options.lease).await;
    let finished_at = clock.now();
    gate.open();
    let run = newer.ended(run).await;
    let took = run.ended_at().unwrap().since(finished_at);
    assert_eq!(run.answer(), Some("new"));
    // A heartbeat and a sweep.
    assert!(took <= Duration::from_secs(2), "{took:?}");
    drop(older);
}
