//! Many callers of one worker, in virtual time, against vendors that limit, refuse and fail.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// How a vendor answers a call, and after how many milliseconds.
struct Reply {
    settlement: Settlement,
    after_ms: u64,
}

impl Reply {
    fn of(outcome: Outcome, after_ms: u64) -> Self {
        Self { settlement: Settlement::of(outcome), after_ms }
    }
}

/// The outcomes of a simulation's calls, by the second in which each ended.
#[derive(Debug, Default)]
struct Seen {
    answered: Vec<u64>,
    limited: Vec<u64>,
}

impl Seen {
    fn share_limited_after(&self, second: u64) -> f64 {
        let count = |ends: &[u64]| u32::try_from(ends.iter().filter(|end| **end >= second).count()).unwrap();
        let (answered, limited) = (f64::from(count(&self.answered)), f64::from(count(&self.limited)));
        limited / (answered + limited)
    }
}

enum Event {
    Ask(u64),
    End { caller: u64, granted: Granted, settlement: Box<Settlement> },
}

/// Runs callers that each make one call after the other for `seconds`. A caller asks again at once after an answer, and 20 ms
/// after a failed call.
fn simulate(terms: Terms, callers: u64, seconds: u64, mut vendor: impl FnMut(u64) -> Reply) -> Seen {
    let (mut meter, mut seen) = (Meter::default(), Seen::default());
    let mut events = BinaryHeap::new();
    let mut stored = Vec::new();
    let push = |events: &mut BinaryHeap<_>, stored: &mut Vec<Option<Event>>, at: u64, event: Event| {
        events.push(Reverse((at, stored.len())));
        stored.push(Some(event));
    };
    for caller in 0..callers {
        push(&mut events, &mut stored, 0, Event::Ask(caller));
    }
    while let Some(Reverse((at, index))) = events.pop() {
        if at >= seconds * 1_000 {
            break;
        }
        let now = NOW + f64::from(u32::try_from(at).unwrap());
        match stored[index].take().unwrap() {
            Event::Ask(caller) => {
                let who = format!("{caller:04}");
                let takes = Drawn::default();
                let ask = Ask { who: &who, tier: Tier::Ultra, tenant: "t", takes, ask_again_ms_max: 2_000.0 };
                match Meter::ask(now, &mut [(&mut meter, terms)], &ask) {
                    Ok(granted) => {
                        let Reply { settlement, after_ms } = vendor(at);
                        let end = Event::End { caller, granted, settlement: Box::new(settlement) };
                        push(&mut events, &mut stored, at + after_ms.max(1), end);
                    }
                    Err(refusal) => {
                        let after = u64::try_from(scatter(refusal, index as u64).as_millis()).unwrap();
                        push(&mut events, &mut stored, at + after.max(1), Event::Ask(caller));
                    }
                }
            }
            Event::End { caller, granted, settlement } => {
                let (reserved, estimate) = (Some(Drawn::default()), TokenEstimate::default());
                let settled = Settled { reserved, estimate, granted: Some(granted), settlement: *settlement };
                meter.settle_worker(now, &terms, &settled);
                let ends = match settlement.outcome {
                    Outcome::Answered => Some(&mut seen.answered),
                    Outcome::Limited { .. } => Some(&mut seen.limited),
                    _ => None,
                };
                if let Some(ends) = ends {
                    ends.push(at / 1_000);
                }
                let pause = if settlement.outcome == Outcome::Answered { 0 } else { 20 };
                push(&mut events, &mut stored, at + pause, Event::Ask(caller));
            }
        }
    }
    seen
}

fn unlimited() -> Terms {
    terms(1_000.0, 0.0, 0.0)
}

/// A vendor that allows `limit` requests in any sixty seconds; it reports the limit in its headers if `says`.
fn sliding(limit: u64, says: bool, retry_after: Option<Duration>, ms: u64) -> impl FnMut(u64) -> Reply {
    let mut calls = VecDeque::new();
    move |at| {
        while calls.front().is_some_and(|first| first + 60_000 <= at) {
            calls.pop_front();
        }
        let fits = (calls.len() as u64) < limit;
        if fits {
            calls.push_back(at);
        }
        let requests = Allowance { limit: Some(limit), remaining: Some(limit - calls.len() as u64) };
        let quota = if says { Quota { requests, ..Quota::default() } } else { Quota::default() };
        let outcome = if fits { Outcome::Answered } else { Outcome::Limited { retry_after } };
        Reply {
            settlement: Settlement { quota, ..Settlement::of(outcome) },
            after_ms: if fits { ms } else { 5 },
        }
    }
}

/// A vendor with a bucket of a tenth of a minute's requests, which reports no limit.
fn bucket(limit: u64, ms: u64) -> impl FnMut(u64) -> Reply {
    let (mut left, mut since) = (limit * 6_000, 0);
    move |at| {
        // In units of a 60,000th of a request.
        left = (left + (at - since) * limit).min(limit * 6_000);
        since = at;
        if left < 60_000 {
            return Reply::of(Outcome::Limited { retry_after: None }, 5);
        }
        left -= 60_000;
        Reply::of(Outcome::Answered, ms)
    }
}

#[test]
fn a_reported_limit_leaves_nearly_no_429s() {
    for (ms, retry_after) in [(50, Some(1)), (1_000, Some(1)), (1_000, None), (8_000, Some(1))] {
        let retry_after = retry_after.map(Duration::from_secs);
        let seen = simulate(unlimited(), 144, 180, sliding(600, true, retry_after, ms));
        let (share, answered) = (seen.share_limited_after(5), seen.answered.len());
        assert!(share < 0.01, "{share} of the calls were answered 429 with answers of {ms} ms");
        assert!(answered > 1_600, "{answered} of 1,800");
    }
}

#[test]
fn a_vendor_that_reports_no_limit_is_used_well() {
    for ms in [50, 1_000, 5_000] {
        let seen = simulate(unlimited(), 48, 45, bucket(600, ms));
        assert!(seen.answered.len() > 360, "{} of 510 with answers of {ms} ms", seen.answered.len());
    }
}

#[test]
fn quick_errors_do_not_open_the_breaker_of_a_working_vendor() {
    let answered = |errors_of_20: u64| {
        let mut calls = 0_u64;
        let seen = simulate(unlimited(), 64, 30, |_| {
            calls += 1;
            // Neither regular nor random: multiples of a number coprime to 20.
            if calls * 7 % 20 < errors_of_20 {
                Reply::of(Outcome::Failed, 2)
            } else {
                Reply::of(Outcome::Answered, 1_000)
            }
        });
        seen.answered.len()
    };
    let all = answered(0);
    for errors in [1, 2, 4] {
        let some = answered(errors);
        assert!(some * 10 > all * 9, "{some} of {all} with {errors} errors of 20 calls");
    }
}

#[test]
fn a_failing_vendor_gets_few_calls_and_recovers_soon() {
    let mut calls = 0;
    let seen = simulate(unlimited(), 4, 40, |at| {
        calls += u32::from(at < 20_000);
        if at < 20_000 { Reply::of(Outcome::Failed, 2) } else { Reply::of(Outcome::Answered, 100) }
    });
    assert!(calls <= 16, "{calls} calls in 20 s");
    assert!(seen.answered[0] < 32, "{:?}", &seen.answered[..3]);
}

#[test]
fn chance_refusals_do_not_stop_a_vendor() {
    let mut calls = 0_u64;
    let seen = simulate(unlimited(), 16, 60, |_| {
        calls += 1;
        let limited = Outcome::Limited { retry_after: None };
        if calls.is_multiple_of(3) { Reply::of(limited, 5) } else { Reply::of(Outcome::Answered, 500) }
    });
    // A pause of a second after each third call.
    assert!(seen.answered.len() > 100, "{}", seen.answered.len());
}

/// Uniformly distributed numbers: a linear congruential generator (Knuth, "MMIX").
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// The seconds of a simulated trouble: of the calls in that time, a third is answered 429 and a third 500.
const TROUBLE: std::ops::Range<u64> = 10..16;

/// A vendor whose answers take 1 to 3 s, with the trouble.
fn troubled(seed: u64) -> impl FnMut(u64) -> Reply {
    let mut dice = dice(seed);
    move |at| {
        let is_troubled = TROUBLE.contains(&(at / 1_000));
        let retry_after = Some(Duration::from_secs(1));
        match dice(6) {
            0 if is_troubled => Reply::of(Outcome::Limited { retry_after: None }, 5),
            1 if is_troubled => Reply::of(Outcome::Limited { retry_after }, 5),
            2 | 3 if is_troubled => Reply::of(Outcome::Failed, 5),
            _ => Reply::of(Outcome::Answered, 1_000 + dice(2_000)),
        }
    }
}

/// Seconds from the end of the trouble until answers come at three quarters of the earlier rate.
fn recovered_after(vendor: impl FnMut(u64) -> Reply) -> u64 {
    let seen = simulate(terms(128.0, 0.0, 0.0), 64, 60, vendor);
    let ends = |from: u64, to: u64| seen.answered.iter().filter(|end| (from..to).contains(end)).count();
    let before = ends(4, TROUBLE.start) / 6;
    let second = (TROUBLE.end..58).find(|second| ends(*second, second + 2) >= before * 2 * 3 / 4);
    second.map_or(u64::MAX, |second| second - TROUBLE.end)
}

/// The episodes of 429s are short, so by chance most calls of one are refused.
#[test]
fn a_worker_is_used_fully_soon_after_its_vendor_refused_and_failed_calls() {
    let slowest = (0..100).map(|seed| recovered_after(troubled(seed))).max().unwrap();
    assert!(slowest <= 6, "{slowest} s");
}

#[test]
fn a_worker_is_used_fully_soon_after_its_vendor_was_overloaded() {
    let overloaded = |seed| {
        let mut answers = troubled(seed);
        move |at| {
            let answer = answers(at);
            let is_troubled = TROUBLE.contains(&(at / 1_000));
            if is_troubled { Reply::of(Outcome::Overloaded, 50) } else { answer }
        }
    };
    let slowest = (0..20).map(|seed| recovered_after(overloaded(seed))).max().unwrap();
    assert!(slowest <= 12, "{slowest} s");
}

/// A vendor that answers at most `most` calls at a time, and others with `outcome`.
fn narrow(most: usize, ms: u64, outcome: Outcome) -> impl FnMut(u64) -> Reply {
    let mut ends = Vec::new();
    move |at| {
        ends.retain(|end| *end > at);
        if ends.len() >= most {
            return Reply::of(outcome, 5);
        }
        ends.push(at + ms);
        Reply::of(Outcome::Answered, ms)
    }
}

/// The lowest share of the possible answers, and the highest share of refused calls, over vendors with few places.
fn use_of_narrow_vendors(outcome: Outcome) -> (f64, f64) {
    let (mut least_used, mut most_refused) = (1.0_f64, 0.0_f64);
    for (most, ms) in [(4, 500), (16, 500), (16, 2_000), (48, 1_000), (16, 8_000)] {
        let (mut vendor, mut asked) = (narrow(most, ms, outcome), 0);
        let seen = simulate(terms(128.0, 0.0, 0.0), 64, 180, |at| {
            asked += u32::from(at >= 30_000);
            vendor(at)
        });
        let answered = seen.answered.iter().filter(|end| **end >= 30).count();
        let [answered, possible] = [answered, most * 150_000 / usize::try_from(ms).unwrap()]
            .map(|n| f64::from(u32::try_from(n).unwrap()));
        least_used = least_used.min(answered / possible);
        most_refused = most_refused.max(1.0 - answered / f64::from(asked));
    }
    (least_used, most_refused)
}

#[test]
fn vendors_with_few_places_are_used_and_seldom_asked_for_more() {
    let (used, refused) = use_of_narrow_vendors(Outcome::Overloaded);
    assert!(used > 0.8 && refused < 0.3, "{used}, {refused}");
    // A 429 pauses the worker for a second, which is long for calls of half a second.
    let (used, refused) = use_of_narrow_vendors(Outcome::Limited { retry_after: None });
    assert!(used > 0.5 && refused < 0.4, "{used}, {refused}");
}
