//! Retries of failed calls: the pause before a retry, and a budget of retries. Workers and the models of conductors have the same
//! policy with separate limits.
//!
//! A failing worker gets its failed calls again from all runs, and each retry adds to its load. So retries are at most a
//! share of the calls: a tenth, as in "Site Reliability Engineering" (Google, 2016, chapter 21, "Client-Side Throttling" and
//! "Deciding to Retry"). A small rate is always allowed, so that a worker with few calls is retried at all, as in `RetryBudget` of
//! Twitter's Finagle.

use std::time::Duration;

use crate::time::Timestamp;

/// How long unused retries are kept.
const KEPT: Duration = Duration::from_secs(10);

/// The pauses before retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first pause; doubled for each later one.
    pub first: Duration,
    /// Upper bound of any pause, unless the vendor asks for a longer one.
    pub max: Duration,
}

impl Backoff {
    /// The pause after `failed` failed attempts: exponential with full jitter, but at least the pause that the vendor asked for.
    /// `random` is uniformly distributed over all its values.
    ///
    /// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    pub fn pause(self, failed: u32, random: u32, asked: Duration) -> Duration {
        let doubled = self.first.saturating_mul(1 << failed.saturating_sub(1).min(16));
        let jittered = doubled.min(self.max).mul_f64(f64::from(random) / f64::from(u32::MAX));
        jittered.max(asked)
    }
}

/// How many retries are allowed, for each worker and process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Retries for each call, 0 to 1.
    pub share_max: f64,
    /// Retries per second that are allowed in addition.
    pub per_second_min: f64,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { share_max: 0.1, per_second_min: 10.0 }
    }
}

/// The retries that are left for one worker.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    limits: RetryLimits,
    left: f64,
    /// The time of the last change; `None` before the first.
    at: Option<Timestamp>,
}

impl RetryBudget {
    /// A full budget.
    pub fn new(limits: RetryLimits) -> Self {
        Self { limits, left: most(limits), at: None }
    }

    /// Adds the share that a call earns.
    pub fn called(&mut self, now: Timestamp) {
        self.advance(now);
        self.left += self.limits.share_max;
    }

    /// Takes a retry; false if none is left.
    pub fn take(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }

    fn advance(&mut self, now: Timestamp) {
        let since = self.at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        let earned = since.as_secs_f64() * self.limits.per_second_min;
        self.left = (self.left + earned).min(most(self.limits));
    }
}

fn most(limits: RetryLimits) -> f64 {
    (limits.per_second_min * KEPT.as_secs_f64()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(8) };

    #[test]
    fn pauses_double_up_to_the_bound_with_full_jitter() {
        for (failed, ceiling_ms) in [(1, 500), (2, 1_000), (5, 8_000), (60, 8_000)] {
            let pause = |random| BACKOFF.pause(failed, random, Duration::ZERO);
            let ceiling = Duration::from_millis(ceiling_ms);
            assert_eq!((pause(0), pause(u32::MAX)), (Duration::ZERO, ceiling), "{failed}");
            let half = pause(u32::MAX / 2);
            assert!(half > ceiling.mul_f64(0.49) && half < ceiling.mul_f64(0.51), "{half:?}");
        }
    }

    #[test]
    fn a_pause_is_at_least_what_the_vendor_asked_for() {
        let asked = Duration::from_secs(7_999);
        assert_eq!(BACKOFF.pause(1, u32::MAX, asked), asked);
        assert_eq!(BACKOFF.pause(1, u32::MAX, Duration::from_millis(1)), BACKOFF.first);
    }

    #[test]
    fn retries_are_a_share_of_the_calls_and_a_small_rate() {
        let mut budget = RetryBudget::new(RetryLimits { share_max: 0.1, per_second_min: 2.0 });
        let start = Timestamp::from_unix_ms(1_000_000);
        let taken = |budget: &mut RetryBudget, now| (0..100).take_while(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, start), 20, "it is full at first");
        assert_eq!(taken(&mut budget, start), 0);
        for _ in 0..105 {
            budget.called(start);
        }
        assert_eq!(taken(&mut budget, start), 10);
        assert_eq!(taken(&mut budget, start.after(Duration::from_secs(3))), 6);
        let later = start.after(Duration::from_hours(1));
        assert_eq!(taken(&mut budget, later), 20, "unused retries are kept up to a bound");
    }

    #[test]
    fn a_budget_without_a_rate_has_one_retry() {
        let mut budget = RetryBudget::new(RetryLimits { share_max: 0.0, per_second_min: 0.0 });
        let now = Timestamp::default();
        assert!(budget.take(now));
        assert!(!budget.take(now.after(Duration::from_hours(1))));
    }
}
