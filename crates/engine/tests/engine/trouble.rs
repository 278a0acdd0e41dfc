//! Lost and repeated messages, killed and frozen processes do not change the outcome, and cause no avoidable second paid call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use podium_domain::run::{AttemptOutcome, RunState};
use podium_engine::Options;
use podium_testkit::{Answer, Gate, a_plan, plan_of};

use crate::faults::{FaultyQueue, FaultyStore, Held, StoreFaults};
use crate::house::{House, a_queue, quick, within};

#[tokio::test]
async fn lost_messages_are_found_in_the_store() {
    let house = House::idle(quick(), |store| store).await;
    let queue = FaultyQueue::around(Arc::clone(&house.parts.queue));
    queue.lost.store(3, Ordering::SeqCst);
    let house = house.with_queue(queue.clone(), quick()).at_work();
    house.conductor.otherwise(a_plan());
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(queue.lost.load(Ordering::SeqCst), 0, "three messages were lost");
}

#[tokio::test]
async fn a_hundred_copies_of_a_message_cause_one_call() {
    let house = House::idle(quick(), |store| store).await;
    let queue = FaultyQueue::around(Arc::clone(&house.parts.queue));
    queue.copies.store(100, Ordering::SeqCst);
    let house = house.with_queue(queue, quick()).at_work();
    house.conductor.otherwise(a_plan());
    house.vendor.otherwise(Answer::text("fine"));
    house.ended(house.ask().await).await;
    assert_eq!(house.vendor.calls().len(), 3);
    assert_eq!(house.conductor.requests().len(), 1);
}

#[tokio::test]
async fn a_result_is_not_lost_while_the_store_is_unreachable() {
    let faults = Arc::new(StoreFaults::default());
    let house = House::idle(quick(), |store| FaultyStore::around(store, &faults)).await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    faults.commits_refused.store(1, Ordering::SeqCst);
    faults.answers_lost.store(1, Ordering::SeqCst);
    gate.open();
    let run = house.ended(id).await;
    assert_eq!(run.answer(), Some("fine"));
    assert_eq!(house.vendor.calls().len(), 1);
    assert_eq!(faults.answers_lost.load(Ordering::SeqCst), 0, "both faults happened");
}

#[tokio::test]
async fn a_claim_with_a_lost_answer_holds_its_task_for_its_executor() {
    let faults = Arc::new(StoreFaults::default());
    let house = House::idle(quick(), |store| FaultyStore::around(store, &faults)).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));
    faults.answers_lost.store(1, Ordering::SeqCst);
    let house = house.at_work();
    let run = house.ended(house.ask().await).await;
    assert_eq!(faults.answers_lost.load(Ordering::SeqCst), 0, "the first claim's answer was lost");
    let attempts: Vec<_> = run.tasks().map(|(_, task)| task.attempts.len()).collect();
    assert_eq!(attempts, [1, 1], "no lease expired");
}

#[tokio::test]
async fn a_damaged_run_delays_no_other() {
    let faults = Arc::new(StoreFaults::default());
    // The run cache is disabled: a cached run would hide the damage.
    let options = Options { run_cache_runs_max: 0, ..quick() };
    let house = House::idle(options.clone(), |store| FaultyStore::around(store, &faults)).await;
    let queue = FaultyQueue::around(Arc::clone(&house.parts.queue));
    queue.lost.store(2, Ordering::SeqCst);
    let house = house.with_queue(queue, options).at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));
    let damaged = house.ask().await;
    *faults.damaged.lock().unwrap() = Some(damaged);
    // Both messages are lost, so the sweeper finds the two runs together.
    let sound = house.ask().await;
    assert_eq!(house.ended(sound).await.answer(), Some("fine"));
    let error = house.engine.cancel(damaged).await.unwrap_err();
    assert_eq!(error.to_string(), "the run cannot be read");
}

#[tokio::test]
async fn a_slow_commit_delays_its_own_run_only() {
    let faults = Arc::new(StoreFaults::default());
    let options = Options { batches_max: 2, ..quick() };
    let house = House::idle(options, |store| FaultyStore::around(store, &faults)).await;
    let (slow, other) = (house.ask().await, house.ask().await);
    let held = Held { run: slow, has_come: Gate::closed(), may_go: Gate::closed() };
    *faults.held.lock().unwrap() = Some(held.clone());
    let first = within(house.engine.cancel(slow));
    let again = async {
        held.has_come.pass().await;
        within(house.engine.cancel(slow)).await
    };
    let beside = async {
        held.has_come.pass().await;
        let run = within(house.engine.cancel(other)).await.unwrap();
        assert_eq!(faults.commits().last().unwrap(), "cancelled", "the other run was written first");
        held.may_go.open();
        run
    };
    let (first, again, beside) = futures::join!(first, again, beside);
    for run in [first.unwrap(), again.unwrap(), beside] {
        assert!(matches!(run.state(), RunState::Cancelled), "{:?}", run.state());
    }
    let cancelled = faults.commits().iter().filter(|events| events.contains("cancelled")).count();
    assert_eq!(cancelled, 2, "one for each run");
}

#[tokio::test]
async fn a_process_takes_over_from_a_killed_one() {
    let mut house = House::with_plan(plan_of(&[("quick", "One.", &[]), ("careful", "Two.", &[0])])).await;
    house.vendor.script("quick", [Answer::text("one")]);
    house.vendor.script("careful", [Answer::hang(), Answer::text("two")]);
    let id = house.ask().await;
    within(house.vendor.until_called(2)).await;
    house.kill().await;
    let after = house.beside(Options { lease: Duration::from_hours(1), ..quick() }, 8, |parts| {
        // A dead process loses its queue.
        parts.queue = a_queue();
    });
    after.engine.take_over().await.unwrap();
    let after = after.at_work();
    let run = after.ended(id).await;
    assert_eq!(run.answer(), Some("two"));
    assert_eq!(after.vendor.calls_of("quick").len(), 1);
    assert_eq!(after.vendor.calls_of("careful").len(), 2, "only the call in flight is repeated");
}

#[tokio::test]
async fn a_graceful_stop_releases_unfinished_tasks() {
    let options = Options { drain: Duration::ZERO, lease: Duration::from_hours(1), ..quick() };
    let mut house = House::idle(options.clone(), |store| store).await.at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    house.stop().await;
    let run = house.engine.run(id).await.unwrap().unwrap();
    assert_eq!(*run.state(), RunState::Active);
    assert!(run.tasks().all(|(_, task)| task.attempts.iter().all(|a| a.outcome != AttemptOutcome::Running)));
    let after = house.beside(options, 8, |_| ()).at_work();
    assert_eq!(after.ended(id).await.answer(), Some("fine"));
}

#[tokio::test]
async fn a_graceful_stop_lets_a_call_finish_within_the_drain_time() {
    let mut house = House::with_plan(plan_of(&[("quick", "Do it.", &[])])).await;
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine"));
    let id = house.ask().await;
    within(house.vendor.until_called(1)).await;
    house.stop.cancel();
    gate.open();
    house.stop().await;
    assert_eq!(house.engine.run(id).await.unwrap().unwrap().answer(), Some("fine"));
}

/// One process does not notice that its lease was not extended, as if it had been frozen. Another one takes its work.
#[tokio::test]
async fn a_late_result_of_a_lost_claim_is_paid_for_and_unused() {
    let faults = Arc::new(StoreFaults::default());
    faults.deaf.store(true, Ordering::SeqCst);
    let heir = House::idle(quick(), |store| store).await;
    let zombie = heir.beside(quick(), 8, |parts| {
        parts.store = FaultyStore::around(parts.store.clone(), &faults);
        parts.queue = a_queue();
    });
    let zombie = zombie.at_work();
    zombie.conductor.otherwise(plan_of(&[("quick", "Do it.", &[]), ("careful", "Then this.", &[0])]));
    let (late, end) = (Gate::closed(), Gate::closed());
    zombie.vendor.script("quick", [Answer::blank().wait(&late).say("late"), Answer::text("in time")]);
    zombie.vendor.script("careful", [Answer::blank().wait(&end).say("done")]);
    let id = zombie.ask().await;
    within(zombie.vendor.until_called(1)).await;
    zombie.stop.cancel();
    let heir = heir.at_work();
    within(heir.vendor.until_called(3)).await;
    late.open();
    let unused = |run: &podium_domain::run::Run| {
        run.tasks().flat_map(|(_, task)| &task.attempts).any(|a| a.outcome == AttemptOutcome::Unused)
    };
    let run = heir.until(id, unused).await;
    assert!(!run.is_ended());
    end.open();
    let run = heir.ended(id).await;
    assert_eq!(run.answer(), Some("done"));
    assert_eq!(run.output(0, podium_domain::ids::StepIndex::new(0)), Some("in time"));
}

#[tokio::test]
async fn two_processes_on_one_store_finish_each_run_once() {
    let first = House::with_plan(a_plan()).await;
    first.vendor.otherwise(Answer::text("fine"));
    let second = first.beside(quick(), 8, |_| ()).at_work();
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(if number % 2 == 0 { first.ask().await } else { second.ask().await });
    }
    for id in ids {
        assert_eq!(first.ended(id).await.answer(), Some("fine"));
    }
    assert_eq!(first.vendor.calls().len(), 120, "three steps per run, none repeated");
}

#[tokio::test]
async fn a_cancellation_in_another_process_aborts_the_call_at_once() {
    let options = Options { lease: Duration::from_hours(1), ..quick() };
    let house = House::idle(options.clone(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.script("quick", [Answer::hang()]);
    let works = house.at_work();
    let id = works.ask().await;
    within(works.vendor.until_called(1)).await;
    // The second engine has its own claims and run cache, like another process.
    let other = works.beside(options, 8, |_| {});
    other.engine.cancel(id).await.unwrap();
    within(async {
        while works.vendor.aborted() == 0 {
            works.parts.clock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
