//! Tests of a meter: what it grants, refuses and learns.

use std::time::Duration;

use super::*;

mod vendors;

const NOW: f64 = 1e12;
const SECOND: f64 = 1_000.0;

fn terms(calls_max: f64, requests: f64, tokens: f64) -> Terms {
    let (per_minute, account_per_minute) = ([requests, tokens, 0.0, 0.0], [0.0; AMOUNTS]);
    Terms { calls_max, per_minute, account_per_minute, share: 1.0 }
}

fn takes(input: f64, output: f64) -> Drawn {
    Drawn { input, output }
}

fn ask(meter: &mut Meter, now: f64, terms: Terms, who: &str, takes: Drawn) -> Result<bool, Refusal> {
    let ask = Ask { who, tier: Tier::Ultra, tenant: "acme", takes, ask_again_ms_max: 2.0 * SECOND };
    Meter::ask(now, &mut [(meter, terms)], &ask).map(|granted| granted.probes)
}

fn why(asked: Result<bool, Refusal>) -> Option<RefusalReason> {
    asked.err().map(|refusal| refusal.why)
}

/// Ends the call that was granted last.
fn settle(meter: &mut Meter, now: f64, terms: Terms, settlement: Settlement) {
    let number = meter.granted();
    settle_number(meter, now, terms, number, settlement);
}

fn settle_number(meter: &mut Meter, now: f64, terms: Terms, number: u64, settlement: Settlement) {
    let settled = Settled {
        reserved: Some(Drawn::default()),
        estimate: TokenEstimate::default(),
        granted: Some(Granted { probes: meter.health.open_until > 0.0, number }),
        settlement,
    };
    meter.settle_worker(now, &terms, &settled);
}

/// Grants `calls` concurrent calls, and returns their numbers.
fn grant(meter: &mut Meter, now: f64, terms: Terms, calls: u64) -> std::ops::RangeInclusive<u64> {
    let first = meter.granted() + 1;
    for number in 0..calls {
        assert_eq!(why(ask(meter, now, terms, &number.to_string(), Drawn::default())), None, "{number}");
    }
    first..=first + calls - 1
}

fn refused() -> Settlement {
    Settlement::of(Outcome::Limited { retry_after: None })
}

/// The milliseconds for which no call is granted.
fn blocked(meter: &Meter, now: f64) -> f64 {
    meter.health.look(now).map_or_else(|(_, wait)| wait, |()| 0.0)
}

/// Grants one call and ends it with `outcome`.
fn call(meter: &mut Meter, now: f64, terms: Terms, outcome: Outcome) {
    assert_eq!(why(ask(meter, now, terms, "w", Drawn::default())), None);
    settle(meter, now, terms, Settlement::of(outcome));
}

#[test]
fn a_new_limit_has_capacity_for_one_call() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 600.0, 60_000.0));
    assert_eq!(ask(&mut meter, NOW, terms, "w", takes(500.0, 400.0)), Ok(false));
    let refusal = ask(&mut meter, NOW, terms, "w", takes(1.0, 0.0)).unwrap_err();
    assert_eq!(refusal.why, RefusalReason::Rate);
    assert!(refusal.after > 90.0 && refusal.after < 110.0, "{refusal:?}");
    assert_eq!(ask(&mut meter, NOW + refusal.after, terms, "w", takes(1.0, 0.0)), Ok(false));
}

#[test]
fn a_used_up_meter_grants_nothing_at_first() {
    let (mut meter, terms) = (Meter::used_up(), terms(10.0, 600.0, 0.0));
    let refusal = ask(&mut meter, NOW, terms, "w", Drawn::default()).unwrap_err();
    assert!(refusal.after > 90.0 && refusal.after < 110.0, "{refusal:?}");
}

#[test]
fn an_absurd_usage_stops_a_worker_for_a_minute_at_most() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 100_000.0));
    let usage = Usage { prompt_tokens: 10, completion_tokens: 1_000_000_000_000_000, ..Usage::default() };
    for _ in 0..3 {
        meter.settle_worker(
            NOW,
            &terms,
            &Settled {
                reserved: Some(takes(10.0, 100.0)),
                estimate: TokenEstimate { input: 10, output_max: 100 },
                granted: None,
                settlement: Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) },
            },
        );
    }
    let call = meter.expects(TokenEstimate { input: 10, output_max: 4_096 });
    assert!(call.output <= 300.0, "a completion above the limit is not learned: {call:?}");
    assert_eq!(why(ask(&mut meter, NOW + 59.0 * SECOND, terms, "w", call)), Some(RefusalReason::Rate));
    assert_eq!(ask(&mut meter, NOW + 61.0 * SECOND, terms, "w", call), Ok(false));
}

#[test]
fn equal_shares_are_exactly_the_limit() {
    for (calls, of) in [(1.0, 3), (10.0, 3), (64.0, 4), (5.0, 7)] {
        let whole = terms(calls, 600.0, 0.0);
        let shares: Vec<_> = (0..of).map(|rank| whole.share(Share::Equal { rank, of })).collect();
        let sum = |each: fn(&Terms) -> f64| shares.iter().map(each).sum::<f64>();
        assert!((sum(|terms| terms.calls_max) - calls).abs() < 1e-9, "{calls} calls in {of} shares");
        assert!((sum(|terms| terms.per_minute[0]) - 600.0).abs() < 1e-9);
    }
    assert!((terms(3.0, 0.0, 0.0).share(Share::Fixed(1.0 / 3.0)).calls_max - 1.0).abs() < 1e-9);
}

#[test]
fn no_period_of_sixty_seconds_exceeds_the_limit() {
    for limit in [1.0, 2.0, 7.0, 60.0, 600.0, 5_000.0] {
        let (mut meter, terms) = (Meter::default(), terms(1e6, limit, 0.0));
        let mut granted = Vec::new();
        // Idle long enough to have the whole burst.
        let _ = ask(&mut meter, NOW - 600.0 * SECOND, terms, "w", Drawn::default());
        let mut now = NOW;
        while now < NOW + 200.0 * SECOND {
            if ask(&mut meter, now, terms, "w", Drawn::default()).is_ok() {
                granted.push(now);
            } else {
                now += 5.0;
            }
        }
        let most = granted
            .iter()
            .map(|first| granted.iter().filter(|at| (0.0..60.0 * SECOND).contains(&(**at - first))).count());
        let most = most.max().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        let share = most as f64 / limit;
        assert!(share <= 1.0 && (share >= 0.95 || limit < 20.0), "{most} of {limit}");
    }
}

#[test]
fn unused_tokens_are_returned_and_extra_tokens_charged() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 60_000.0));
    let later = NOW + 10.0 * SECOND;
    let _ = ask(&mut meter, NOW, terms, "w", takes(1.0, 0.0));
    assert_eq!(ask(&mut meter, later, terms, "w", takes(100.0, 800.0)), Ok(false));
    assert_eq!(why(ask(&mut meter, later, terms, "w", takes(400.0, 400.0))), Some(RefusalReason::Rate));
    let usage = |prompt_tokens, completion_tokens| {
        Some(Usage { prompt_tokens, completion_tokens, ..Usage::default() })
    };
    let settled = |used, reserved| Settled {
        reserved: Some(reserved),
        estimate: TokenEstimate::default(),
        granted: None,
        settlement: Settlement { usage: used, ..Settlement::of(Outcome::Answered) },
    };
    meter.settle_worker(later, &terms, &settled(usage(50, 50), takes(100.0, 800.0)));
    assert_eq!(ask(&mut meter, later, terms, "w", takes(400.0, 400.0)), Ok(false));
    meter.settle_worker(later, &terms, &settled(usage(400, 5_000), takes(400.0, 400.0)));
    let after = |seconds: f64| later + seconds * SECOND;
    assert_eq!(why(ask(&mut meter, after(4.0), terms, "w", takes(1.0, 0.0))), Some(RefusalReason::Rate));
    assert_eq!(ask(&mut meter, after(5.0), terms, "w", takes(1.0, 0.0)), Ok(false));
}

#[test]
fn a_call_takes_capacity_in_both_scopes_or_in_none() {
    let (mut worker, mut account) = (Meter::default(), Meter::default());
    let (of_worker, of_account) = (terms(10.0, 0.0, 0.0), terms(1.0, 0.0, 0.0));
    let mut ask = || {
        let ask =
            Ask { who: "w", tier: Tier::Mini, tenant: "t", takes: Drawn::default(), ask_again_ms_max: 1.0 };
        let asked = Meter::ask(NOW, &mut [(&mut worker, of_worker), (&mut account, of_account)], &ask);
        (asked.is_ok(), worker.in_flight, account.in_flight)
    };
    assert_eq!(ask(), (true, 1.0, 1.0));
    assert_eq!(ask(), (false, 1.0, 1.0));
}

#[test]
fn a_retry_after_of_any_length_is_obeyed() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    let hours = Duration::from_hours(2);
    call(&mut meter, NOW, terms, Outcome::Limited { retry_after: Some(hours) });
    let refused = ask(&mut meter, NOW + 7_199.0 * SECOND, terms, "w", Drawn::default());
    assert_eq!(why(refused), Some(RefusalReason::Blocked));
    assert_eq!(ask(&mut meter, NOW + 7_200.0 * SECOND, terms, "w", Drawn::default()), Ok(false));
}

#[test]
fn each_episode_of_429s_in_a_row_doubles_the_pause() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    let mut now = NOW;
    for pause in [1.0, 2.0, 4.0] {
        call(&mut meter, now, terms, Outcome::Limited { retry_after: None });
        assert!((blocked(&meter, now) - pause * SECOND).abs() < 1e-9);
        now += pause * SECOND;
    }
    call(&mut meter, now, terms, Outcome::Answered);
    call(&mut meter, now, terms, Outcome::Limited { retry_after: None });
    assert!((blocked(&meter, now) - SECOND).abs() < 1e-9, "an answer ends the series");
}

#[test]
fn refusals_of_one_burst_make_one_pause() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    for number in grant(&mut meter, NOW, terms, 8) {
        settle_number(&mut meter, NOW + 10.0, terms, number, refused());
    }
    assert!((blocked(&meter, NOW + 10.0) - SECOND).abs() < 1e-9, "{:?}", meter.health);
}

#[test]
fn an_older_calls_refusal_does_not_lengthen_the_pause() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    let [first, late, later] = [1, 2, 3];
    grant(&mut meter, NOW, terms, 3);
    settle_number(&mut meter, NOW, terms, first, refused());
    settle_number(&mut meter, NOW + 900.0, terms, late, refused());
    assert!((blocked(&meter, NOW) - SECOND).abs() < 1e-9);
    settle_number(&mut meter, NOW + 5_000.0, terms, later, refused());
    assert!(blocked(&meter, NOW + 5_000.0) <= 0.0, "not even when the pause is over");
}

#[test]
fn an_answer_after_the_refusals_of_its_burst_shortens_the_pause() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    call(&mut meter, NOW, terms, Outcome::Limited { retry_after: None });
    let now = NOW + SECOND;
    let burst = grant(&mut meter, now, terms, 4);
    settle_number(&mut meter, now, terms, *burst.end(), refused());
    assert!((blocked(&meter, now) - 2.0 * SECOND).abs() < 1e-9);
    settle_number(&mut meter, now + 500.0, terms, *burst.start(), Settlement::of(Outcome::Answered));
    assert!((blocked(&meter, now) - SECOND).abs() < 1e-9, "{:?}", meter.health);
}

#[test]
fn failures_open_the_breaker_and_one_probe_closes_it() {
    let (mut meter, terms) = (Meter::default(), terms(10.0, 0.0, 0.0));
    for _ in 0..4 {
        call(&mut meter, NOW, terms, Outcome::Failed);
    }
    assert!(blocked(&meter, NOW) <= 0.0);
    let late = grant(&mut meter, NOW, terms, 5);
    call(&mut meter, NOW, terms, Outcome::Failed);
    assert!(blocked(&meter, NOW) <= 0.0, "five of ten may still go well");
    settle_number(&mut meter, NOW, terms, *late.start(), Settlement::of(Outcome::Failed));
    assert_eq!(why(ask(&mut meter, NOW + 999.0, terms, "w", Drawn::default())), Some(RefusalReason::Broken));
    let mut now = NOW + SECOND;
    assert_eq!(ask(&mut meter, now, terms, "w", Drawn::default()), Ok(true), "it is a probe");
    assert_eq!(
        why(ask(&mut meter, now, terms, "w", Drawn::default())),
        Some(RefusalReason::Broken),
        "one at a time"
    );
    settle(&mut meter, now, terms, Settlement::of(Outcome::Failed));
    assert_eq!(
        why(ask(&mut meter, now + 1_999.0, terms, "w", Drawn::default())),
        Some(RefusalReason::Broken)
    );
    now += 2.0 * SECOND;
    call(&mut meter, now, terms, Outcome::Answered);
    for number in late.skip(1) {
        settle_number(&mut meter, now, terms, number, Settlement::of(Outcome::Failed));
    }
    assert_eq!(ask(&mut meter, now, terms, "w", Drawn::default()), Ok(false), "old failures do not count");
}

#[test]
fn a_vendor_that_fails_slowly_opens_the_breaker_too() {
    let (mut meter, terms) = (Meter::default(), terms(2.0, 0.0, 0.0));
    let mut now = NOW;
    for _ in 0..5 {
        assert!(blocked(&meter, now) <= 0.0);
        grant(&mut meter, now, terms, 1);
        now += 120.0 * SECOND;
        settle(&mut meter, now, terms, Settlement::of(Outcome::Overloaded));
    }
    assert!(blocked(&meter, now) > 0.0, "{:?}", meter.health);
}

#[test]
fn overload_reduces_concurrency_and_success_restores_it() {
    let (mut meter, terms) = (Meter::default(), terms(100.0, 0.0, 0.0));
    for number in 0..20 {
        assert_eq!(ask(&mut meter, NOW, terms, &number.to_string(), Drawn::default()), Ok(false));
    }
    settle(&mut meter, NOW, terms, Settlement::of(Outcome::Overloaded));
    settle(&mut meter, NOW, terms, Settlement::of(Outcome::Overloaded));
    assert!((meter.health.bears - 14.0).abs() < 1e-9, "twice at once counts once: {:?}", meter.health);
    assert_eq!(why(ask(&mut meter, NOW, terms, "w", Drawn::default())), Some(RefusalReason::Busy));
    let mut now = NOW;
    for _ in 0..5_000 {
        now += 10.0;
        settle(&mut meter, now, terms, Settlement::of(Outcome::Answered));
        while ask(&mut meter, now, terms, "w", Drawn::default()).is_ok() {}
    }
    assert!(meter.health.bears <= 0.0 && meter.in_flight >= 99.0, "{:?}", meter.health);
}

#[test]
fn slowness_reduces_concurrency_by_half_at_most() {
    let (mut meter, terms) = (Meter::default(), terms(40.0, 0.0, 0.0));
    let answered =
        |ms| Settlement { first_token: Some(Duration::from_millis(ms)), ..Settlement::of(Outcome::Answered) };
    let (mut now, mut lowest) = (NOW, 40.0_f64);
    for ms in [vec![200; 50], vec![5_000; 60]].concat() {
        while ask(&mut meter, now, terms, "w", Drawn::default()).is_ok() {}
        now += SECOND;
        settle(&mut meter, now, terms, answered(ms));
        lowest = lowest.min(meter.health.calls_max(40.0));
    }
    assert!((20.0..30.0).contains(&lowest), "{lowest}");
}

#[test]
fn a_lower_reported_limit_and_its_remainder_are_kept() {
    let (mut meter, terms) = (Meter::default(), terms(1e6, 6_000.0, 0.0));
    let _ = ask(&mut meter, NOW, terms, "w", Drawn::default());
    let now = NOW + 60.0 * SECOND;
    let granted = |meter: &mut Meter, now| {
        (0..200).filter(|_| ask(meter, now, terms, "w", Drawn::default()).is_ok()).count()
    };
    let said = |limit, remaining| {
        let requests = Allowance { limit, remaining };
        Settlement { quota: Quota { requests, ..Quota::default() }, ..Settlement::of(Outcome::Answered) }
    };
    let mut other = meter.clone();
    assert_eq!(granted(&mut other, now), 100);
    settle(&mut meter, now, terms, said(None, Some(3)));
    assert_eq!(granted(&mut meter, now), 3);
    settle(&mut meter, now, terms, said(Some(600), None));
    let later = now + 60.0 * SECOND;
    assert_eq!(granted(&mut meter, later), 10);
    settle(&mut meter, later, terms, said(Some(60_000), None));
    assert_eq!(granted(&mut meter, later + 60.0 * SECOND), 100, "a higher one does not");
}

#[test]
fn a_reported_limit_sets_the_pace_if_none_is_configured() {
    let (mut meter, terms) = (Meter::default(), terms(1e6, 0.0, 0.0));
    let requests = Allowance { limit: Some(600), remaining: Some(590) };
    let said =
        Settlement { quota: Quota { requests, ..Quota::default() }, ..Settlement::of(Outcome::Answered) };
    let burst = grant(&mut meter, NOW, terms, 60);
    settle_number(&mut meter, NOW, terms, *burst.start(), said);
    let granted = |meter: &mut Meter, from: f64| {
        (0..6_000u32)
            .filter(|step| {
                let now = from + f64::from(*step) * 10.0;
                ask(meter, now, terms, "w", Drawn::default()).is_ok()
            })
            .count()
    };
    let first_minute = granted(&mut meter, NOW);
    assert!((500..=540).contains(&first_minute), "with the 60 before at most 600: {first_minute}");
    let second_minute = granted(&mut meter, NOW + 60.0 * SECOND);
    assert!((580..=600).contains(&second_minute), "{second_minute}");
    grant(&mut meter, NOW + 601.0 * SECOND, terms, 1_000);
}

#[test]
fn the_length_of_completions_is_learned() {
    let mut meter = Meter::default();
    let estimate = TokenEstimate { input: 100, output_max: 4_096 };
    assert_eq!(meter.expects(estimate), takes(100.0, 4_096.0));
    let terms = terms(10.0, 0.0, 0.0);
    for _ in 0..100 {
        let usage = Usage { prompt_tokens: 150, completion_tokens: 80, ..Usage::default() };
        let settlement = Settlement { usage: Some(usage), ..Settlement::of(Outcome::Answered) };
        meter.settle_worker(NOW, &terms, &Settled { reserved: None, estimate, granted: None, settlement });
    }
    let expected = meter.expects(estimate);
    assert!(
        (149.0..152.0).contains(&expected.input) && (80.0..90.0).contains(&expected.output),
        "{expected:?}"
    );
    let expected = meter.expects(TokenEstimate { output_max: 50, ..estimate }).output;
    assert!((expected - 50.0).abs() < 1e-9, "never more than asked for, not {expected}");
}

#[test]
fn tags_of_tenants_are_bounded() {
    let (mut meter, terms) = (Meter::default(), terms(1e9, 0.0, 0.0));
    for number in 0..2_000 {
        let tenant = number.to_string();
        let ask = Ask {
            who: &tenant,
            tier: Tier::Ultra,
            tenant: &tenant,
            takes: Drawn::default(),
            ask_again_ms_max: 1.0,
        };
        assert!(Meter::ask(NOW, &mut [(&mut meter, terms)], &ask).is_ok());
    }
    assert!(meter.turns.groups.len() <= GROUPS_MAX, "{}", meter.turns.groups.len());
}

#[test]
fn the_oldest_call_of_a_tenant_goes_first() {
    let (mut meter, terms) = (Meter::default(), terms(1.0, 0.0, 0.0));
    let asks = |meter: &mut Meter, who| ask(meter, NOW, terms, who, Drawn::default()).is_ok();
    assert!(asks(&mut meter, "0"));
    for who in ["3", "1", "2"] {
        assert!(!asks(&mut meter, who), "there is no capacity");
    }
    for (oldest, others) in [("1", ["3", "2"]), ("2", ["3", "3"])] {
        settle(&mut meter, NOW, terms, Settlement::of(Outcome::Answered));
        assert!(others.iter().all(|who| !asks(&mut meter, who)), "{oldest} goes before them");
        assert!(asks(&mut meter, oldest));
        assert!(!asks(&mut meter, "2") && !asks(&mut meter, "3"), "there is no capacity");
    }
}

#[test]
fn a_caller_that_leaves_neither_blocks_nor_overtakes_others() {
    let (mut meter, terms) = (Meter::default(), terms(1.0, 0.0, 0.0));
    let asks = |meter: &mut Meter, who| ask(meter, NOW, terms, who, Drawn::default()).is_ok();
    let gone = "";
    assert!(asks(&mut meter, "0") && !asks(&mut meter, gone));
    settle(&mut meter, NOW, terms, Settlement::of(Outcome::Answered));
    assert!(asks(&mut meter, "1"), "its place is not kept");
    assert!(!asks(&mut meter, "2"), "there is no capacity");
    settle(&mut meter, NOW, terms, Settlement::of(Outcome::Answered));
    assert!(!asks(&mut meter, gone), "the waiting caller has the turn");
    assert!(asks(&mut meter, "2"));
}

#[test]
fn a_reported_limit_of_the_account_sets_no_second_pace() {
    let grants = |account: f64| {
        let terms = Terms { account_per_minute: [account, 0.0, 0.0, 0.0], ..terms(1e6, 0.0, 0.0) };
        let mut meter = Meter::default();
        let requests = Allowance { limit: Some(600), remaining: Some(599) };
        let said =
            Settlement { quota: Quota { requests, ..Quota::default() }, ..Settlement::of(Outcome::Answered) };
        let number = *grant(&mut meter, NOW, terms, 1).start();
        settle_number(&mut meter, NOW, terms, number, said);
        let asks = (0..100).filter(|_| ask(&mut meter, NOW, terms, "w", Drawn::default()).is_ok());
        asks.count()
    };
    assert_eq!(grants(600.0), 100, "the account keeps it");
    assert_eq!(grants(500.0), 100, "the account keeps a lower one");
    assert!(grants(6_000.0) < 100, "it is lower than what is configured");
    assert!(grants(0.0) < 100, "nothing is configured");
}
