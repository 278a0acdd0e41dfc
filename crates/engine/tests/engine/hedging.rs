//! A silent call of a mini run has a second one made beside it, as far as pool, policy, budget and limits have it so.

use std::sync::Arc;

use podium_domain::ids::{RunId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::{Effort, Policy, PoolRule, Tier};
use podium_domain::pool::{HedgeRule, Pool, Worker};
use podium_domain::run::{Attempt, AttemptOutcome, Hedge, Run, Winner};
use podium_domain::usage::Usage;
use podium_engine::Roles;
use podium_ports::limiter::{Limiter, Why};
use podium_testkit::{Answer, Fault, Gate, a_pool, plan_of};

use crate::guarded::Guarded;
use crate::house::{House, a_queue, quick, request};

/// As soon as anything is known, and at once; nearly.
const AT_ONCE: HedgeRule = HedgeRule { percentile: 50.0, after_ms_min: 1, samples_min: 1, share_max: 1.0 };

fn hedged_pool() -> Pool {
    let hedged = |worker: &Worker| Worker { hedge: Some(AT_ONCE), ..worker.clone() };
    let workers = a_pool().workers().iter().map(hedged).collect();
    a_pool().with_workers(workers)
}

fn mini() -> Policy {
    Policy::new(Tier::Mini, Effort::Medium)
}

async fn idle() -> House {
    let mut house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.parts.pool = Arc::new(hedged_pool());
    house
}

/// Begins work, and lets `quick` answer once: only then is anything known of it.
async fn warmed(house: House) -> House {
    let queue = Arc::clone(&house.parts.queue);
    let house = house.with_queue(queue, quick()).at_work();
    house.vendor.script("quick", [Answer::text("warm")]);
    let run = house.ended(house.ask_under(mini()).await).await;
    assert_eq!((run.answer(), run.hedges()), (Some("warm"), 0));
    house
}

async fn a_house() -> House {
    warmed(idle().await).await
}

fn attempts(run: &Run) -> &[Attempt] {
    &run.rounds()[0].steps[0].task.attempts
}

fn hedge(run: &Run) -> &Hedge {
    attempts(run)[0].hedge.as_ref().expect("it was hedged")
}

async fn names(house: &House, run: RunId) -> Vec<&'static str> {
    let events = house.parts.store.events(run, 0, 99).await.unwrap();
    events.iter().map(|event| event.event.name()).collect()
}

/// What the prompt of the last call costs that `worker` was sent.
fn prompt_cost(house: &House, worker: &str) -> Cost {
    let calls = house.vendor.calls_of(worker);
    let bytes: usize = calls.last().unwrap().messages.iter().map(|message| message.text.len()).sum();
    let usage = Usage { prompt_tokens: bytes.div_ceil(4) as u64, ..Usage::NONE };
    let pool = a_pool();
    let worker = pool.workers().iter().find(|known| known.id.as_str() == worker).unwrap();
    worker.prices.latest().cost(&usage)
}

#[tokio::test]
async fn a_silent_call_is_overtaken_by_the_second_and_broken_off() {
    let house = a_house().await;
    house.vendor.script("quick", [Answer::hang()]);
    house.vendor.script("checker", [Answer::parts(["ha", "llo"])]);
    let id = house.ask_under(mini()).await;
    let (texts, run) = house.answer(id).await;
    assert_eq!((texts.concat().as_str(), run.answer()), ("hallo", Some("hallo")));
    house.vendor.until_aborted(1).await;
    let lost = prompt_cost(&house, "quick");
    assert!(lost > Cost::ZERO);
    assert_eq!(
        (hedge(&run).worker.as_str(), hedge(&run).winner, hedge(&run).cost),
        ("checker", Winner::Second, lost)
    );
    let [attempt] = attempts(&run) else { panic!("{:?}", attempts(&run)) };
    let paid = a_pool().workers()[2].prices.latest().cost(&Answer::USAGE);
    assert_eq!((&attempt.outcome, attempt.cost), (&AttemptOutcome::Accepted, paid));
    assert_eq!((run.cost(), run.wasted_cost(), run.hedges(), run.fallbacks()), (paid + lost, lost, 1, 0));
    assert!(attempt.reserved >= run.cost(), "the claim reserved what both could cost");
    let expected = ["hedged", "step_done", "succeeded"];
    assert!(names(&house, id).await.ends_with(&expected), "{:?}", names(&house, id).await);
}

#[tokio::test]
async fn the_first_call_wins_if_it_begins_to_answer_after_all() {
    let (house, gate) = (a_house().await, Gate::closed());
    house.vendor.script("quick", [Answer::blank().wait(&gate).say("late ").say("but first")]);
    house.vendor.script("checker", [Answer::hang()]);
    let id = house.ask_under(mini()).await;
    house.vendor.until_called(3).await;
    gate.open();
    let (texts, run) = house.answer(id).await;
    assert_eq!(texts.concat(), "late but first");
    assert_eq!((hedge(&run).worker.as_str(), hedge(&run).winner), ("checker", Winner::First));
    house.vendor.until_aborted(1).await;
    assert_eq!(run.wasted_cost(), prompt_cost(&house, "checker"));
}

#[tokio::test]
async fn where_one_of_the_calls_fails_the_other_is_the_attempt() {
    for (first, second) in [("quick", "checker"), ("checker", "quick")] {
        let (house, failing, answering) = (a_house().await, Gate::closed(), Gate::closed());
        house.vendor.script(first, [Answer::blank().wait(&failing).fail(Fault::Failed)]);
        house.vendor.script(second, [Answer::blank().wait(&answering).say("saved")]);
        let id = house.ask_under(mini()).await;
        house.vendor.until_called(3).await;
        failing.open();
        answering.open();
        let run = house.ended(id).await;
        assert_eq!((run.answer(), attempts(&run).len()), (Some("saved"), 1));
        let winner = if second == "checker" { Winner::Second } else { Winner::First };
        assert_eq!(hedge(&run).winner, winner);
    }
}

#[tokio::test]
async fn an_attempt_both_of_whose_calls_fail_is_one_failed_attempt() {
    let (house, gate) = (a_house().await, Gate::closed());
    let failing = || Answer::blank().wait(&gate).fail(Fault::Failed);
    house.vendor.script("quick", [failing(), Answer::text("again")]);
    house.vendor.script("checker", [failing()]);
    let id = house.ask_under(mini()).await;
    house.vendor.until_called(3).await;
    gate.open();
    let run = house.ended(id).await;
    assert_eq!((run.answer(), attempts(&run).len(), run.fallbacks()), (Some("again"), 2, 0));
    assert_eq!((hedge(&run).winner, run.wasted_cost()), (Winner::Neither, Cost::ZERO));
    let AttemptOutcome::Failed(message) = &attempts(&run)[0].outcome else { panic!("{:?}", attempts(&run)) };
    assert!(message.starts_with("vendor `north` failed"), "the step was for `quick`: {message}");
    assert!(attempts(&run)[1].hedge.is_none());
}

#[tokio::test]
async fn of_two_calls_the_one_whose_answer_broke_off_is_not_made_again() {
    for (again, finally) in [(Answer::text("after all"), "quick"), (Answer::refuse(Fault::Unpaid), "careful")]
    {
        let house = a_house().await;
        house.vendor.script("quick", [Answer::hang(), again]);
        house.vendor.script("checker", [Answer::text("ha").fail(Fault::Unreachable)]);
        house.vendor.otherwise(Answer::text("after all"));
        let run = house.ended(house.ask_under(mini()).await).await;
        assert_eq!((hedge(&run).worker.as_str(), hedge(&run).winner), ("checker", Winner::Second));
        assert_eq!(house.vendor.calls_of("checker").len(), 1);
        let last = attempts(&run).last().and_then(|attempt| attempt.worker.as_ref());
        assert_eq!((run.answer(), last.map(WorkerId::as_str)), (Some("after all"), Some(finally)));
    }
    // Nor where the same worker was asked beside itself.
    let house = a_house().await;
    house.vendor.script("quick", [Answer::hang(), Answer::text("ha").fail(Fault::Unreachable)]);
    let alone = Policy { fallback: PoolRule::None, ..mini() };
    let run = house.ended(house.ask_under(alone).await).await;
    let [attempt] = attempts(&run) else { panic!("{:?}", attempts(&run)) };
    let AttemptOutcome::Failed(message) = &attempt.outcome else { panic!("{attempt:?}") };
    assert!(message.ends_with("; not tried again: its answer had begun"), "{message}");
}

#[tokio::test]
async fn a_worker_that_nobody_stands_in_for_is_asked_twice_itself() {
    let house = a_house().await;
    house.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    let policy = Policy { fallback: PoolRule::None, ..mini() };
    let run = house.ended(house.ask_under(policy).await).await;
    assert_eq!((run.answer(), hedge(&run).worker.as_str()), (Some("fine"), "quick"));
}

#[tokio::test]
async fn a_hedge_takes_a_permit_or_is_not_made() {
    let mut house = idle().await;
    let guarded = Guarded::around(Arc::clone(&house.parts.limiter), &["checker"], Why::Busy);
    house.parts.limiter = Arc::clone(&guarded) as Arc<dyn Limiter>;
    let (house, gate) = (warmed(house).await, Gate::closed());
    house.vendor.script("quick", [Answer::blank().wait(&gate).say("alone")]);
    let id = house.ask_under(mini()).await;
    guarded.until_refused(1).await;
    assert_eq!(guarded.refused(), [""], "it keeps no place");
    gate.open();
    let run = house.ended(id).await;
    assert_eq!((run.answer(), run.hedges(), run.wasted_cost()), (Some("alone"), 0, Cost::ZERO));
    assert!(house.vendor.calls_of("checker").is_empty());
}

#[tokio::test]
async fn only_what_may_be_hedged_reserves_a_second_call() {
    let house = a_house().await;
    house.vendor.otherwise(Answer::text("fine"));
    let mut reserved = Vec::new();
    for policy in
        [mini(), Policy { hedging: PoolRule::None, ..mini() }, Policy { tier: Tier::Ultra, ..mini() }]
    {
        let run = house.ended(house.ask_under(policy).await).await;
        reserved.push(attempts(&run)[0].reserved);
    }
    // `checker` is five times as dear, and both are given the same.
    let expected = Cost::from_nano_usd(reserved[1].nano_usd() * 6);
    assert_eq!((reserved[0], reserved[2]), (expected, reserved[1]));
    // What budgets reserve before is no less: it goes by the dearest who may stand in.
    let least = async |policy| house.engine.estimate(&request(policy)).await.unwrap().cost_min;
    assert!(least(mini()).await >= reserved[0]);
    assert!(least(Policy { hedging: PoolRule::None, ..mini() }).await < reserved[0]);
}

#[tokio::test]
async fn who_dies_with_both_calls_under_way_loses_them_as_one_attempt() {
    let mut house = a_house().await;
    house.vendor.script("quick", [Answer::hang(), Answer::text("after all")]);
    house.vendor.script("checker", [Answer::hang()]);
    let id = house.ask_under(mini()).await;
    house.vendor.until_called(3).await;
    house.kill().await;
    house.vendor.until_aborted(2).await;
    let successor = house.beside(quick(), 8, |parts| parts.queue = a_queue()).at_work_as(Roles::ALL);
    let run = successor.ended(id).await;
    assert_eq!((run.answer(), run.hedges()), (Some("after all"), 0));
    let outcomes: Vec<_> = attempts(&run).iter().map(|attempt| &attempt.outcome).collect();
    assert_eq!(outcomes, [&AttemptOutcome::Lost, &AttemptOutcome::Accepted]);
    assert!(
        attempts(&run)[0].reserved > attempts(&run)[1].reserved,
        "its budget holds what both may have cost"
    );
}
