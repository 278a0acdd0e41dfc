//! Limits per minute, and limits that vendors report, apply to all handles.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::pool::{AccountLimits, Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_ports::limiter::{Allowance, Limiter, Outcome, Permit, Quota, RefusalReason, Settlement};

use super::{Caller, LimiterFixture, PATIENCE, a_worker};

fn limited_to(rates: Rates) -> Worker {
    let worker = a_worker(0, 1_000);
    Worker { limits: Limits { rates, ..worker.limits }, ..worker }
}

impl LimiterFixture {
    fn handle(&self, number: u32) -> &Arc<dyn Limiter> {
        if number.is_multiple_of(2) { &self.first } else { &self.second }
    }

    /// Asks until the refusal has this reason; permits are settled at once, as calls that were not sent.
    async fn until_refused_for(&self, worker: &Worker, wanted: RefusalReason) {
        self.until_refused_after(worker, wanted, Outcome::NotSent).await;
    }

    /// The same, with calls that end with `outcome`.
    async fn until_refused_after(&self, worker: &Worker, wanted: RefusalReason, outcome: Outcome) {
        let begun = self.clock.now();
        loop {
            match self.ask(&self.second, worker).await {
                Ok(permit) => permit.settle(Settlement::of(outcome)),
                Err((why, _)) if why == wanted => return,
                Err(_) => {}
            }
            assert!(self.clock.now().since(begun) < PATIENCE, "never refused for {wanted:?}");
            self.clock.sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) async fn a_new_limit_has_capacity_for_one_call(limiter: &LimiterFixture) {
    let worker = limited_to(Rates { requests_per_minute: Some(60), ..Rates::default() });
    let _first = limiter.must_grant(&worker).await;
    let refused = limiter.ask(&limiter.second, &worker).await.err();
    assert_eq!(refused.map(|(why, _)| why), Some(RefusalReason::Rate));
    limiter.wait_for_grant(&limiter.second, &worker).await;
}

pub(crate) async fn requests_come_at_the_pace_of_their_limit(limiter: &LimiterFixture) {
    // Ten milliseconds per request.
    let worker = limited_to(Rates { requests_per_minute: Some(6_000), ..Rates::default() });
    let begun = limiter.clock.now();
    for number in 0..41 {
        limiter.wait_for_grant(limiter.handle(number), &worker).await;
    }
    let took = limiter.clock.now().since(begun);
    assert!(took >= Duration::from_millis(390), "{took:?}");
}

pub(crate) async fn tokens_come_at_the_pace_of_their_limit(limiter: &LimiterFixture) {
    // A hundred milliseconds per call, half of it for the limit of completions.
    let rates = Rates { output_tokens_per_minute: Some(60_000), ..Rates::default() };
    let (worker, caller) = (limited_to(rates), Caller::new(0).taking(1_000, 100));
    let begun = limiter.clock.now();
    for number in 0..7 {
        limiter.wait_for_grant_as(&caller, limiter.handle(number), &worker).await;
    }
    let took = limiter.clock.now().since(begun);
    assert!(took >= Duration::from_millis(580), "{took:?}");
}

pub(crate) async fn unused_tokens_are_returned(limiter: &LimiterFixture) {
    // The reservation is so large that the next call would have to wait for a minute.
    let rates = Rates { tokens_per_minute: Some(600), ..Rates::default() };
    let (worker, caller) = (limited_to(rates), Caller::new(0).taking(0, 600));
    let permit = limiter.wait_for_grant_as(&caller, &limiter.first, &worker).await;
    assert!(limiter.ask_as(&caller, &limiter.second, &worker).await.is_err());
    let usage = Usage { completion_tokens: 1, ..Usage::default() };
    permit.settle(Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) });
    limiter.wait_for_grant_as(&caller, &limiter.second, &worker).await;
}

pub(crate) async fn an_account_bounds_its_workers_together(limiter: &LimiterFixture) {
    let account = AccountLimits { in_flight_max: Some(2), ..AccountLimits::default() };
    let [careful, checker] = [1, 2].map(|index| {
        let worker = a_worker(index, 5);
        Worker { limits: Limits { account, ..worker.limits }, ..worker }
    });
    let mut held: Vec<Box<dyn Permit>> = vec![limiter.must_grant(&careful).await];
    held.push(limiter.ask(&limiter.second, &checker).await.expect("there is capacity for another"));
    limiter.must_refuse(&careful).await;
    limiter.must_refuse(&checker).await;
    let _elsewhere = limiter.must_grant(&a_worker(0, 1)).await;
    held.remove(0);
    limiter.wait_for_grant(&limiter.second, &checker).await;
}

pub(crate) async fn a_reported_limit_sets_the_pace_if_none_is_configured(limiter: &LimiterFixture) {
    let worker = a_worker(0, 1_000);
    // Few enough that even a busy machine asks more often.
    let requests = Allowance { limit: Some(600), remaining: Some(599) };
    let quota = Quota { requests, ..Quota::default() };
    let permit = limiter.must_grant(&worker).await;
    permit.settle(Settlement { quota, ..Settlement::of(Outcome::Answered) });
    // A call that was not sent would return its request, perhaps before the next one asks.
    limiter.until_refused_after(&worker, RefusalReason::Rate, Outcome::Answered).await;
    let begun = limiter.clock.now();
    for number in 0..20 {
        limiter.wait_for_grant(limiter.handle(number), &worker).await;
    }
    let took = limiter.clock.now().since(begun);
    assert!(took >= Duration::from_millis(1_900), "{took:?}");
}

pub(crate) async fn a_reported_limit_lets_no_newer_call_overtake(limiter: &LimiterFixture) {
    let rates = Rates { requests_per_minute: Some(300), ..Rates::default() };
    let account = AccountLimits { in_flight_max: None, rates };
    let [steps, plans] = [1, 2].map(|index| {
        let worker = a_worker(index, 1_000);
        Worker { vendor: a_worker(1, 1).vendor, limits: Limits { account, ..worker.limits }, ..worker }
    });
    // The vendor reports the account's limit to the worker of the steps.
    let requests = Allowance { limit: Some(300), remaining: Some(299) };
    let quota = Quota { requests, ..Quota::default() };
    let permit = limiter.must_grant(&steps).await;
    permit.settle(Settlement { quota, ..Settlement::of(Outcome::Answered) });
    for number in 1..4 {
        let (older, newer) = (Caller::new(number), Caller::new(number + 1_000));
        let mut waits = limiter.ask_as(&older, &limiter.first, &steps).await.is_err();
        while waits {
            limiter.clock.sleep(Duration::from_millis(5)).await;
            let overtook = limiter.ask_as(&newer, &limiter.second, &plans).await.is_ok();
            assert!(!overtook, "a newer call went before call {number}");
            waits = limiter.ask_as(&older, &limiter.first, &steps).await.is_err();
        }
    }
}

pub(crate) async fn retry_after_blocks_all_handles(limiter: &LimiterFixture) {
    let worker = a_worker(0, 5);
    let permit = limiter.must_grant(&worker).await;
    let retry_after = Some(Duration::from_hours(1));
    permit.settle(Settlement::of(Outcome::Limited { retry_after }));
    limiter.until_refused_for(&worker, RefusalReason::Blocked).await;
    let _elsewhere = limiter.must_grant(&a_worker(1, 1)).await;
}

/// One pause takes a second. If each refusal doubled it, it would take a minute, and the test would fail.
pub(crate) async fn refusals_of_one_burst_make_one_pause(limiter: &LimiterFixture) {
    let worker = a_worker(0, 8);
    let mut burst = Vec::new();
    for _ in 0..8 {
        burst.push(limiter.must_grant(&worker).await);
    }
    for permit in burst {
        permit.settle(Settlement::of(Outcome::Limited { retry_after: None }));
    }
    limiter.until_refused_for(&worker, RefusalReason::Blocked).await;
    for number in 0..4 {
        limiter.wait_for_grant(limiter.handle(number), &worker).await;
    }
}

pub(crate) async fn failed_calls_open_the_breaker_for_all(limiter: &LimiterFixture) {
    let worker = a_worker(0, 50);
    for _ in 0..5 {
        limiter.must_grant(&worker).await.settle(Settlement::of(Outcome::Failed));
    }
    limiter.until_refused_for(&worker, RefusalReason::Broken).await;
    let probe = limiter.wait_for_grant(&limiter.first, &worker).await;
    assert!(
        matches!(limiter.ask(&limiter.second, &worker).await, Err((RefusalReason::Broken, _))),
        "one at a time"
    );
    probe.settle(Settlement::of(Outcome::Answered));
    let mut held = vec![limiter.wait_for_grant(&limiter.second, &worker).await];
    held.push(limiter.must_grant(&worker).await);
}

pub(crate) async fn quick_errors_do_not_open_the_breaker_of_a_busy_vendor(limiter: &LimiterFixture) {
    let worker = a_worker(0, 30);
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(limiter.must_grant(&worker).await);
    }
    for permit in held.drain(20..) {
        permit.settle(Settlement::of(Outcome::Failed));
    }
    let begun = limiter.clock.now();
    // Their capacity returns as they are settled.
    while held.len() < 30 {
        match limiter.ask(&limiter.second, &worker).await {
            Ok(permit) => held.push(permit),
            Err((why, after)) => {
                assert_eq!(
                    why,
                    RefusalReason::Busy,
                    "ten of thirty calls failed, and the others may still go well"
                );
                limiter.clock.sleep(after).await;
            }
        }
        assert!(limiter.clock.now().since(begun) < PATIENCE, "the capacity did not come back");
    }
}
