//! When a silent call is hedged: how long the calls of a worker were silent of late in this process, and how many of them may be
//! made twice.
//!
//! Hedging after a high percentile is from Dean and Barroso, "The Tail at Scale" (Communications of the ACM 56(2), 2013): few
//! calls are made twice, and those are the ones that make the tail. That they are bounded as well, whatever the percentile says, is
//! for the day on which a worker gets slow as a whole: then every call passes what was usual, and twice the calls would make it
//! slower.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::pool::{HedgeRule, Worker};
use podium_domain::time::Timestamp;

/// What was seen longer ago says nothing of now.
const RECENT: Duration = Duration::from_mins(10);
/// Most hedges that are saved up: a burst of silent calls comes from one cause.
const SAVED_MAX: f64 = 10.0;

/// What is known of the workers whose calls may be hedged: as many as the pool has.
#[derive(Debug, Default)]
pub(crate) struct Hedging {
    workers: Mutex<BTreeMap<WorkerId, Record>>,
}

/// Of one worker.
#[derive(Debug, Default)]
struct Record {
    /// How long calls were silent, in milliseconds, and when that was seen; the latest last.
    silences: VecDeque<(Timestamp, u64)>,
    /// What was earned by calls and not spent on hedges.
    saved: f64,
}

impl Hedging {
    /// A call of the worker was silent for so long, or longer: of one that was broken off for its silence no more is known. That it
    /// counts as what is known keeps the percentile right: it had passed that already.
    pub(crate) fn note(&self, worker: &Worker, silent_ms: u64, now: Timestamp) {
        if worker.hedge.is_none() {
            return;
        }
        let mut workers = self.lock();
        let silences = &mut workers.entry(worker.id.clone()).or_default().silences;
        if silences.len() >= HedgeRule::SAMPLES_MAX as usize {
            silences.pop_front();
        }
        silences.push_back((now, silent_ms));
    }

    /// A call of the worker is made that may be hedged, which earns a share of a hedge. Tells after how long a silence; none: not.
    pub(crate) fn called(&self, worker: &Worker, now: Timestamp) -> Option<Duration> {
        let rule = worker.hedge?;
        let mut workers = self.lock();
        let record = workers.entry(worker.id.clone()).or_default();
        record.saved = (record.saved + rule.share_max).min(SAVED_MAX);
        while record.silences.front().is_some_and(|(at, _)| now.since(*at) > RECENT) {
            record.silences.pop_front();
        }
        let silences: Vec<_> = record.silences.iter().map(|(_, silent_ms)| *silent_ms).collect();
        drop(workers);
        if silences.len() < rule.samples_min as usize {
            return None;
        }
        let usual_ms = percentile(silences, rule.percentile)?;
        Some(Duration::from_millis(usual_ms.max(rule.after_ms_min)))
    }

    /// Takes a hedge from what the worker's calls have earned, if there is a whole one.
    pub(crate) fn take(&self, worker: &WorkerId) -> bool {
        let mut workers = self.lock();
        let record = workers.get_mut(worker).filter(|record| record.saved >= 1.0);
        record.map(|record| record.saved -= 1.0).is_some()
    }

    /// A hedge that was taken could not be made.
    pub(crate) fn give_back(&self, worker: &WorkerId) {
        if let Some(record) = self.lock().get_mut(worker) {
            record.saved = (record.saved + 1.0).min(SAVED_MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Record>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least of the values that so many of a hundred do not exceed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most 512 values"
)]
fn percentile(mut values: Vec<u64>, percent: f64) -> Option<u64> {
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    let index = rank.clamp(1, values.len().max(1)) - 1;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable(index).1)
}

#[cfg(test)]
mod tests {
    use podium_testkit::a_pool;

    use super::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_000_000);
    const RULE: HedgeRule =
        HedgeRule { percentile: 95.0, after_ms_min: 20, samples_min: 50, share_max: 0.05 };

    fn hedged(rule: HedgeRule) -> Worker {
        Worker { hedge: Some(rule), ..a_pool().workers()[0].clone() }
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let hundred = || (1..=100).rev().collect::<Vec<_>>();
        assert_eq!(percentile(hundred(), 95.0), Some(95));
        assert_eq!(percentile(hundred(), 99.5), Some(100));
        assert_eq!(percentile(vec![7], 50.0), Some(7));
        assert_eq!(percentile(Vec::new(), 95.0), None);
    }

    #[test]
    fn nothing_is_hedged_before_enough_is_known_of_late() {
        let (hedging, worker) = (Hedging::default(), hedged(RULE));
        for silent_ms in 1..RULE.samples_min.into() {
            hedging.note(&worker, silent_ms, START);
        }
        assert_eq!(hedging.called(&worker, START), None, "one is missing");
        hedging.note(&worker, 1_000, START);
        assert_eq!(hedging.called(&worker, START), Some(Duration::from_millis(48)));
        let later = START.after(RECENT + Duration::from_millis(1));
        assert_eq!(hedging.called(&worker, later), None, "all of it is old");
        let unhedged = Worker { hedge: None, ..worker };
        hedging.note(&unhedged, 1, later);
        assert_eq!(hedging.called(&unhedged, START), None);
    }

    #[test]
    fn the_floor_holds_where_a_worker_is_quick() {
        let (hedging, worker) = (Hedging::default(), hedged(RULE));
        (0..60).for_each(|_| hedging.note(&worker, 1, START));
        assert_eq!(hedging.called(&worker, START), Some(Duration::from_millis(20)));
    }

    #[test]
    fn hedges_are_a_share_of_the_calls_and_what_is_saved_is_bounded() {
        let (hedging, worker) = (Hedging::default(), hedged(RULE));
        assert!(!hedging.take(&worker.id), "nothing is earned yet");
        let taken = || std::iter::from_fn(|| hedging.take(&worker.id).then_some(())).count();
        (0..101).for_each(|_| assert_eq!(hedging.called(&worker, START), None));
        assert_eq!(taken(), 5);
        (0..10_000).for_each(|_| assert_eq!(hedging.called(&worker, START), None));
        hedging.give_back(&worker.id);
        assert_eq!(taken(), 10);
        hedging.give_back(&worker.id);
        assert_eq!(taken(), 1);
    }

    /// Numbers that look random, the same every time: Knuth's MMIX.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }

        /// The silence of a call: about a tenth of a second, but one in `rare` takes seconds.
        fn silence(&mut self, rare: u64) -> u64 {
            if self.below(rare) == 0 { 4_000 + self.below(2_000) } else { 60 + self.below(80) }
        }
    }

    /// The silences of so many calls as clients see them, in order of length, and how many were hedged.
    fn silences(calls: u64, rare: u64, rule: Option<HedgeRule>) -> (Vec<u64>, u64) {
        let worker = Worker { hedge: rule, ..hedged(RULE) };
        let (hedging, mut numbers, mut hedges) = (Hedging::default(), Numbers(7), 0);
        let mut seen: Vec<_> = (0..calls)
            .map(|_| {
                let first = numbers.silence(rare);
                let after =
                    hedging.called(&worker, START).map(|after| u64::try_from(after.as_millis()).unwrap());
                let after = after.filter(|after| first > *after && hedging.take(&worker.id));
                let Some(after) = after else {
                    hedging.note(&worker, first, START);
                    return first;
                };
                hedges += 1;
                let second = after + numbers.silence(rare);
                // Of the loser nothing more is known.
                hedging.note(&worker, first.min(second), START);
                first.min(second)
            })
            .collect();
        seen.sort_unstable();
        (seen, hedges)
    }

    #[test]
    fn hedging_cuts_the_tail_for_a_twentieth_more_calls() {
        let (plain, _) = silences(20_000, 40, None);
        let (cut, hedges) = silences(20_000, 40, Some(RULE));
        let p99 = |silences: &[u64]| silences[silences.len() * 99 / 100];
        assert!(p99(&plain) >= 4_000, "without hedges the tail is long: {}", p99(&plain));
        assert!(p99(&cut) < 300, "with them it is not: {}", p99(&cut));
        assert!((500..=1_000).contains(&hedges), "{hedges} hedges");
    }

    #[test]
    fn a_worker_that_is_slow_as_a_whole_is_not_asked_twice_as_often() {
        let (_, hedges) = silences(20_000, 2, Some(HedgeRule { percentile: 50.0, ..RULE }));
        assert!(hedges <= 1_000, "{hedges} hedges of 20,000 calls");
    }
}
