//! Three minutes of many callers against a vendor that counts every window of sixty seconds. Time is virtual: a test takes
//! milliseconds and is deterministic.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{RunId, TenantId};
use podium_domain::limits::MINI_WEIGHT;
use podium_domain::policy::Tier;
use podium_domain::pool::{Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_memory::MemoryLimiter;
use podium_ports::clock::Clock;
use podium_ports::limiter::{Grant, Limiter, Outcome, Settlement};
use podium_testkit::limiter::Caller;
use podium_testkit::{TestClock, a_pool};
use tokio::task::{JoinSet, LocalSet};
use uuid::Uuid;

const MINUTES: u64 = 3;
const REQUESTS: u64 = 600;
const TOKENS: u64 = 100_000;

/// The vendor's view of the last sixty seconds, and how often its limit was exceeded.
#[derive(Default)]
struct Vendor {
    seen: VecDeque<(u64, u64)>,
    requests: u64,
    tokens: u64,
    limited: u64,
    by_caller: std::collections::BTreeMap<&'static str, u64>,
    longest_wait_ms: std::collections::BTreeMap<&'static str, u64>,
}

impl Vendor {
    /// Records a call with `tokens`, some of which it will write later.
    fn call(&mut self, now_ms: u64, who: &'static str, tokens: u64) {
        self.seen.retain(|(at, _)| now_ms - at < 60_000);
        let used: u64 = self.seen.iter().map(|(_, tokens)| tokens).sum();
        if self.seen.len() as u64 >= REQUESTS || used + tokens > TOKENS {
            self.limited += 1;
        }
        self.seen.push_back((now_ms, tokens));
        self.requests += 1;
        self.tokens += tokens;
        *self.by_caller.entry(who).or_default() += 1;
    }

    /// Records that a caller waited this long, granted or not.
    fn waited(&mut self, who: &'static str, ms: u64) {
        let longest = self.longest_wait_ms.entry(who).or_default();
        *longest = ms.max(*longest);
    }
}

struct Load {
    name: &'static str,
    tenant: &'static str,
    tier: Tier,
    callers: u64,
    tokens: u64,
}

fn scramble(seed: u64) -> u64 {
    let z = (seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

async fn three_minutes(loads: &[Load]) -> Vendor {
    minutes(MINUTES, loads).await
}

async fn minutes(minutes: u64, loads: &[Load]) -> Vendor {
    let clock = Arc::new(TestClock::new());
    let limiter = MemoryLimiter::new(clock.clone());
    let worker = a_pool().workers()[0].clone();
    let rates =
        Rates { requests_per_minute: Some(REQUESTS), tokens_per_minute: Some(TOKENS), ..Rates::default() };
    let worker = Worker { limits: Limits { in_flight_max: 1_000, rates, ..worker.limits }, ..worker };
    let vendor = Rc::new(RefCell::new(Vendor::default()));
    let end = clock.now().after(Duration::from_secs(60 * minutes));
    let tasks = LocalSet::new();
    let mut calls = JoinSet::new();
    let mut number: u64 = 0;
    for load in loads {
        for _ in 0..load.callers {
            number += 1;
            let (limiter, worker, clock, vendor) =
                (limiter.clone(), worker.clone(), clock.clone(), Rc::clone(&vendor));
            let (name, mean) = (load.name, load.tokens);
            let caller = Caller {
                tenant: TenantId::new(load.tenant).expect("it is a name"),
                tier: load.tier,
                ..Caller::new(number.into())
            };
            calls.spawn_local_on(
                async move {
                    let mut dice = number << 32;
                    while clock.now() < end {
                        dice += 1;
                        let began = clock.now();
                        let waited =
                            || u64::try_from(clock.now().since(began).as_millis()).unwrap_or(u64::MAX);
                        // Half to one and a half of the mean; half of it is written, and four times that is reserved.
                        let tokens = mean / 2 + scramble(dice) % mean;
                        // Each call belongs to a run of its own, and ids of runs increase with the time of their acceptance.
                        let run = RunId::new(Uuid::from_u128(
                            (u128::from(began.unix_ms()) << 64) | u128::from(number),
                        ));
                        let caller = Caller { run, ..caller.clone() }.taking(tokens / 2, tokens * 2);
                        let permit = loop {
                            match limiter.acquire(&caller.request(&worker)).await.expect("it answers") {
                                Grant::Permit(permit) => break permit,
                                Grant::AskAgain { after, .. } => clock.sleep(after).await,
                            }
                            if clock.now() >= end {
                                vendor.borrow_mut().waited(name, waited());
                                return;
                            }
                        };
                        vendor.borrow_mut().waited(name, waited());
                        vendor.borrow_mut().call(clock.now().unix_ms(), name, tokens);
                        clock.sleep(Duration::from_millis(200 + scramble(dice ^ 0x77) % 600)).await;
                        let usage = Usage {
                            prompt_tokens: tokens / 2,
                            completion_tokens: tokens - tokens / 2,
                            ..Usage::default()
                        };
                        permit.settle(Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) });
                    }
                },
                &tasks,
            );
        }
    }
    tasks.run_until(async { while calls.join_next().await.is_some() {} }).await;
    drop(tasks);
    Rc::into_inner(vendor).expect("all callers are gone").into_inner()
}

fn shares(vendor: &Vendor) -> (u64, u64) {
    (vendor.requests * 100 / (REQUESTS * MINUTES), vendor.tokens * 100 / (TOKENS * MINUTES))
}

const fn many(tokens: u64) -> [Load; 1] {
    [Load { name: "all", tenant: "acme", tier: Tier::Ultra, callers: 128, tokens }]
}

#[tokio::test(start_paused = true)]
async fn scarce_requests_are_nearly_all_used_and_never_exceeded() {
    let vendor = three_minutes(&many(100)).await;
    let (requests, _) = shares(&vendor);
    assert!(requests >= 95 && vendor.limited == 0, "{requests} %, {} too much", vendor.limited);
}

#[tokio::test(start_paused = true)]
async fn scarce_tokens_are_nearly_all_used_and_hardly_exceeded() {
    let vendor = three_minutes(&many(400)).await;
    let (_, tokens) = shares(&vendor);
    assert!(
        tokens >= 95 && vendor.limited * 100 < vendor.requests,
        "{tokens} %, {} too much",
        vendor.limited
    );
}

#[tokio::test(start_paused = true)]
async fn a_few_callers_use_nearly_all_too() {
    let vendor = three_minutes(&[Load { callers: 8, ..many(150).into_iter().next().unwrap() }]).await;
    let (requests, _) = shares(&vendor);
    assert!(requests >= 95 && vendor.limited == 0, "{requests} %, {} too much", vendor.limited);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_few_callers_gets_its_share() {
    let loud = Load { name: "loud", tenant: "loud", tier: Tier::Ultra, callers: 100, tokens: 100 };
    let quiet = Load { name: "quiet", tenant: "quiet", tier: Tier::Ultra, callers: 12, tokens: 100 };
    let vendor = three_minutes(&[loud, quiet]).await;
    let quiet = vendor.by_caller["quiet"] * 100 / vendor.requests;
    assert!((35..=65).contains(&quiet), "{quiet} % of {:?}", vendor.by_caller);
}

#[tokio::test(start_paused = true)]
async fn mini_goes_first_and_ultra_is_not_starved() {
    let ultra = Load { name: "ultra", tenant: "acme", tier: Tier::Ultra, callers: 60, tokens: 100 };
    let mini = Load { name: "mini", tenant: "acme", tier: Tier::Mini, callers: 60, tokens: 100 };
    let vendor = three_minutes(&[ultra, mini]).await;
    let ultra = vendor.by_caller["ultra"] * 100 / vendor.requests;
    assert!((5..=25).contains(&ultra), "{ultra} % of {:?}", vendor.by_caller);
}

/// Tokens are scarce and every caller asks again at once, so each call is followed by one that waits behind all others of its
/// tier. While `w` calls of mini are granted for each of ultra, one of `n` callers of ultra waits for at most `n (w + 1)` calls.
#[tokio::test(start_paused = true)]
async fn no_caller_waits_longer_than_the_weights_imply() {
    const TOKENS_EACH: u64 = 555;
    let ultra = Load { name: "ultra", tenant: "acme", tier: Tier::Ultra, callers: 96, tokens: TOKENS_EACH };
    let mini = Load { name: "mini", tenant: "acme", tier: Tier::Mini, callers: 32, tokens: TOKENS_EACH };
    let vendor = minutes(20, &[ultra, mini]).await;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a small number")]
    let weight = MINI_WEIGHT as u64;
    let call_ms = 60_000 * TOKENS_EACH / TOKENS;
    let (ultra, mini) = (96 * (weight + 1) * call_ms, 32 * (weight + 1) * call_ms / weight);
    let longest = &vendor.longest_wait_ms;
    // Calls differ in size, and a caller is granted only when it asks: so half as much again, plus three times the longest delay
    // until it asks again.
    let bound = |ms: u64| ms * 3 / 2 + 6_000;
    assert!(
        longest["ultra"] <= bound(ultra) && longest["mini"] <= bound(mini),
        "{longest:?}, {ultra}, {mini}"
    );
    assert!(vendor.limited * 100 < vendor.requests, "{} too much", vendor.limited);
}

/// Each of them takes six times the burst.
#[tokio::test(start_paused = true)]
async fn calls_larger_than_the_burst_are_not_starved() {
    let small = Load { name: "small", tenant: "acme", tier: Tier::Ultra, callers: 60, tokens: 200 };
    let large = Load { name: "large", tenant: "acme", tier: Tier::Ultra, callers: 2, tokens: 10_000 };
    let vendor = three_minutes(&[small, large]).await;
    assert!(vendor.by_caller["large"] >= 6, "{:?}", vendor.by_caller);
    assert!(vendor.by_caller["small"] >= 100, "{:?}", vendor.by_caller);
}
