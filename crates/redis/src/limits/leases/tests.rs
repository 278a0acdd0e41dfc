//! Held and settled leases, and the decisions of a process without Redis.

use std::time::Duration;

use podium_domain::policy::Tier;
use podium_domain::pool::{Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_ports::limiter::{Outcome, RefusalReason};
use podium_testkit::{TestClock, a_pool};

use super::*;

fn leases() -> Arc<Leases> {
    Leases::new(Uuid::from_u128(7), Arc::new(TestClock::new()))
}

fn keys(index: usize, in_flight_max: u32) -> WorkerKeys {
    let worker = a_pool().workers()[index].clone();
    WorkerKeys::of("p", &Worker { limits: Limits { in_flight_max, ..worker.limits }, ..worker })
}

fn a_lease(leases: &Arc<Leases>) -> Lease {
    leases.prepare(keys(0, 10), TokenEstimate::default())
}

fn granted(leases: &Arc<Leases>) -> Box<dyn Permit> {
    let mut lease = a_lease(leases);
    lease.asked();
    lease.hold(Drawn { input: 5.0, output: 7.0 }, Granted { probes: false, number: 1 }, None)
}

const AN_ASK: Ask<'static> = Ask {
    who: "w",
    tier: Tier::Ultra,
    tenant: "t",
    takes: Drawn { input: 0.0, output: 0.0 },
    ask_again_ms_max: 5_000.0,
};

fn here(lease: Lease) -> Result<Box<dyn Permit>, Refusal> {
    lease.hold_here(Share::Fixed(0.2), &AN_ASK)
}

const ALL: usize = usize::MAX;

/// The numbers of the leases that ended, at most `most`.
fn ended(leases: &Leases, most: usize) -> Vec<u64> {
    let batches = leases.take_ended(most);
    batches.iter().flat_map(|batch| batch.leases.iter().map(|ended| ended.number)).collect()
}

/// The numbers of the leases to name, at most `most`.
fn to_name(leases: &Leases, most: usize) -> Vec<u64> {
    leases.to_name(most).into_iter().flat_map(|batch| batch.leases).collect()
}

#[test]
fn a_dropped_permit_is_settled_once() {
    let leases = leases();
    let (first, second) = (granted(&leases), granted(&leases));
    assert!(leases.take_ended(ALL).is_empty());
    drop(first);
    assert_eq!(ended(&leases, ALL), [1]);
    assert!(leases.take_ended(ALL).is_empty());
    assert_eq!(leases.holding().len(), 1);
    drop(second);
    assert!(leases.holding().is_empty());
    assert_eq!(ended(&leases, ALL), [2]);
    assert!(leases.lock().workers.is_empty(), "nothing is left behind");
}

#[test]
fn a_permit_is_settled_with_the_outcome_of_its_call() {
    let leases = leases();
    let usage = Usage { prompt_tokens: 4, completion_tokens: 1, ..Usage::default() };
    let settlement = Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) };
    granted(&leases).settle(settlement);
    drop(granted(&leases));
    let batches = leases.take_ended(ALL);
    let settled: Vec<_> = batches[0].leases.iter().map(|ended| ended.settled).collect();
    assert_eq!(settled[0].settlement, settlement);
    let correction = |settled: Settled| settled.correction().map(|amount| format!("{amount:+}"));
    assert_eq!(correction(settled[0]), ["+0", "-7", "-1", "-6"]);
    assert_eq!(settled[1].settlement.outcome, Outcome::Unknown);
    assert_eq!(correction(settled[1]), ["+0"; 4], "tokens of unknown use stay reserved");
}

#[test]
fn batches_that_redis_did_not_receive_are_sent_later() {
    let leases = leases();
    drop((granted(&leases), granted(&leases), granted(&leases)));
    let batches = leases.take_ended(2);
    assert_eq!(ended(&leases, ALL), [3]);
    leases.put_back(batches);
    assert_eq!(ended(&leases, 1), [1]);
    assert_eq!(ended(&leases, ALL), [2]);
    assert!(leases.lock().workers.is_empty(), "nothing is left behind");
    assert_eq!(leases.lock().ended, 0);
}

#[test]
fn a_lease_is_settled_if_redis_may_know_of_it() {
    let leases = leases();
    drop(a_lease(&leases));
    let mut refused = a_lease(&leases);
    refused.asked();
    refused.refused();
    drop(here(a_lease(&leases)).unwrap());
    assert!(leases.take_ended(ALL).is_empty(), "Redis knows no lease");

    let mut given_up = a_lease(&leases);
    given_up.asked();
    drop(given_up);
    assert_eq!(ended(&leases, ALL), [4]);

    let local = here(a_lease(&leases)).unwrap();
    assert_eq!(to_name(&leases, ALL), [5]);
    drop(local);
    assert_eq!(ended(&leases, ALL), [5]);
}

#[test]
fn only_leases_that_redis_may_not_know_are_named() {
    let leases = leases();
    let _held: Vec<_> = (0..3).map(|_| granted(&leases)).collect();
    assert!(to_name(&leases, ALL).is_empty(), "Redis granted them");
    let _local = here(leases.prepare(keys(1, 5), TokenEstimate::default())).unwrap();
    assert_eq!(to_name(&leases, ALL), [4]);
    assert_eq!(to_name(&leases, ALL), [4], "the first call may have failed");

    let doubted = keys(0, 10);
    leases.doubt(|keys| keys.name() == doubted.name());
    let first = leases.to_name(2);
    leases.named(&first);
    let second = leases.to_name(ALL);
    leases.named(&second);
    let mut named: Vec<u64> = [first, second].into_iter().flatten().flat_map(|batch| batch.leases).collect();
    named.sort_unstable();
    assert_eq!(named, [1, 2, 3, 4], "each once");
    assert!(to_name(&leases, ALL).is_empty());
}

#[test]
fn a_share_counts_all_held_leases() {
    let leases = leases();
    let shared = granted(&leases);
    let local = here(a_lease(&leases)).unwrap();
    assert!(here(a_lease(&leases)).is_err(), "a fifth of ten");
    assert!(here(leases.prepare(keys(1, 1), TokenEstimate::default())).is_ok(), "another worker");
    drop(shared);
    assert!(here(a_lease(&leases)).is_ok());
    drop(local);
}

fn why(asked: Result<Box<dyn Permit>, Refusal>) -> Option<RefusalReason> {
    asked.err().map(|refusal| refusal.why)
}

#[test]
fn retry_after_is_respected_without_redis() {
    let leases = leases();
    let retry_after = Some(Duration::from_hours(1));
    here(a_lease(&leases)).unwrap().settle(Settlement::of(Outcome::Limited { retry_after }));
    assert_eq!(why(here(a_lease(&leases))), Some(RefusalReason::Blocked));
}

#[test]
fn the_breaker_opens_without_redis() {
    let leases = leases();
    for _ in 0..5 {
        here(a_lease(&leases)).unwrap().settle(Settlement::of(Outcome::Failed));
    }
    assert_eq!(why(here(a_lease(&leases))), Some(RefusalReason::Broken));
}

#[test]
fn calls_without_redis_reserve_what_earlier_calls_used() {
    let leases = leases();
    let keys = || {
        let worker = a_pool().workers()[0].clone();
        let rates = Rates { tokens_per_minute: Some(6_000), ..Rates::default() };
        WorkerKeys::of("p", &Worker { limits: Limits { rates, ..worker.limits }, ..worker })
    };
    let estimate = TokenEstimate { input: 10, output_max: 4_096 };
    let usage = Usage { prompt_tokens: 10, completion_tokens: 10, ..Usage::default() };
    let answered = Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) };
    let ask = Ask { takes: Drawn { input: 10.0, output: 4_096.0 }, ..AN_ASK };
    // Granted while Redis was reachable.
    let mut lease = leases.prepare(keys(), estimate);
    lease.asked();
    let granted = Granted { probes: false, number: 1 };
    lease.hold(ask.takes, granted, Some((None, ask))).settle(answered);
    let after = |leases: &Arc<Leases>| {
        leases
            .prepare(keys(), estimate)
            .hold_here(Share::Fixed(0.5), &AN_ASK)
            .err()
            .map(|refusal| refusal.after)
    };
    let wait_ms = after(&leases).unwrap_or_default();
    assert!(wait_ms < 3_000.0, "30 tokens of 3,000 a minute are available soon, not in {wait_ms} ms");
}

#[test]
fn leases_that_wait_to_be_settled_are_bounded() {
    let leases = leases();
    for _ in 0..=ENDED_MAX {
        drop(granted(&leases));
    }
    let waiting: usize = leases.take_ended(ALL).iter().map(|batch| batch.leases.len()).sum();
    assert_eq!(waiting, ENDED_MAX);
}
