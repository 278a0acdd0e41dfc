//! The time until runs end again as often as before a fault.

use std::time::{Duration, Instant};

use crate::load::Life;

/// The span over which the rate of ends is measured, before a fault and after it.
const BEFORE: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(2);
/// The share of the earlier rate that counts as recovered. It is below 1, because the rate varies from second to second.
const BACK: f64 = 0.75;

/// Times from the end of a fault: a killed process runs again, an unreachable server is reachable, an answer was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recovery {
    /// Until the first end of a run that was under way.
    pub(crate) first_end: Option<Duration>,
    /// Until runs end as often as before.
    pub(crate) rate_back: Option<Duration>,
    /// Until all runs that were under way have ended.
    pub(crate) all_ended: Option<Duration>,
}

impl Recovery {
    /// The recovery by the ends of runs.
    pub(crate) fn of(lives: &[Life], began: Instant, ended: Instant) -> Self {
        let under_way = lives
            .iter()
            .filter(|life| life.asked_at <= ended && life.answered_at > ended)
            .map(|life| life.answered_at);
        let since = |at: Instant| at - ended;
        Self {
            first_end: under_way.clone().min().map(since),
            rate_back: rate_back(lives, began, ended),
            all_ended: under_way.max().map(since),
        }
    }
}

fn rate_back(lives: &[Life], began: Instant, ended: Instant) -> Option<Duration> {
    let ends = |from: Instant, span: Duration| {
        let ends = lives.iter().filter(|life| (from..from + span).contains(&life.answered_at));
        u32::try_from(ends.count()).unwrap_or(u32::MAX)
    };
    let just_before = f64::from(ends(began.checked_sub(BEFORE)?, BEFORE)) / BEFORE.as_secs_f64();
    // Runs that an earlier fault delayed end together after it, so their rate is no baseline.
    let first = lives.first()?.answered_at;
    let so_far = began.saturating_duration_since(first);
    let before = just_before.min(f64::from(ends(first, so_far)) / so_far.as_secs_f64().max(1.0));
    let enough = before * AFTER.as_secs_f64() * BACK;
    let last = lives.last()?.answered_at;
    let starts = [ended].into_iter().chain(lives.iter().map(|life| life.answered_at));
    // A span that is not over has no rate.
    let mut starts = starts.filter(|start| *start >= ended && *start + AFTER <= last);
    starts.find(|start| enough > 0.0 && f64::from(ends(*start, AFTER)) >= enough).map(|start| start - ended)
}

/// Ends at these tenths of a second, each of a run of one second.
fn lives(start: Instant, ends: impl Iterator<Item = u64>) -> Vec<Life> {
    let at = |tenths: u64| start + Duration::from_millis(tenths * 100);
    ends.map(|end| Life { asked_at: at(end.saturating_sub(10)), answered_at: at(end) }).collect()
}

#[test]
fn the_rate_recovers_when_runs_end_as_often_as_before() {
    let start = Instant::now();
    let at = |tenths: u64| start + Duration::from_millis(tenths * 100);
    // Ten a second until 6 s; nothing for 3 s; two a second for 2 s; then ten a second again.
    let ends = (0..60).chain((90..110).step_by(5)).chain(110..200);
    let recovery = Recovery::of(&lives(start, ends), at(60), at(80));
    let seconds = |span: Option<Duration>| span.unwrap().as_secs_f64();
    assert!((seconds(recovery.first_end) - 1.0).abs() < 0.01, "{recovery:?}");
    assert!((2.4..3.1).contains(&seconds(recovery.rate_back)), "{recovery:?}");
    assert!(
        (seconds(recovery.all_ended) - 1.0).abs() < 0.01,
        "those that were asked for by 8 s: {recovery:?}"
    );
}

#[test]
fn a_burst_before_a_fault_is_not_the_baseline() {
    let start = Instant::now();
    let at = |tenths: u64| start + Duration::from_millis(tenths * 100);
    // Two a second, with a burst just before the trouble.
    let ends = (0..300).step_by(5).chain(std::iter::repeat_n(299, 100)).chain((310..400).step_by(5));
    let rate_back = Recovery::of(&lives(start, ends), at(300), at(310)).rate_back;
    assert!(rate_back.is_none(), "the baseline is two a second, not the burst: {rate_back:?}");
    let ends = (0..300).step_by(5).chain(std::iter::repeat_n(299, 10)).chain((310..400).step_by(5));
    assert_eq!(Recovery::of(&lives(start, ends), at(300), at(310)).rate_back, Some(Duration::ZERO));
}

#[test]
fn a_rate_that_stays_low_has_not_recovered() {
    let start = Instant::now();
    let at = |tenths: u64| start + Duration::from_millis(tenths * 100);
    let recovery = Recovery::of(&lives(start, (0..60).chain([190])), at(60), at(80));
    assert_eq!(recovery, Recovery::default());
}
