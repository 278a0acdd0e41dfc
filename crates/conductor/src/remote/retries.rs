//! Decides when a failed call is retried.
//!
//! Only a call without any output is retried: it cost nothing, and no client has seen a part of it. Retries are bounded per plan,
//! by the plan's remaining time, and as a share of all calls, so that a failing endpoint does not receive a multiple of its load.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podium_ports::vendor::{VendorError, Wait};
use tokio::time::Instant;

use super::call::Broken;

/// Most retries of one plan.
pub(super) const RETRIES_MAX: u32 = 3;
/// Upper bound of the pause before the first retry; doubled for each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// Upper bound of any pause, unless the vendor asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Retries earned per call and per second: a tenth of the calls, as in "Site Reliability Engineering" (Google, 2016, chapter
/// 21), plus a small rate for endpoints with few calls.
const EARNED_PER_CALL: f64 = 0.1;
const EARNED_PER_SECOND: f64 = 1.0;
/// Most unused retries that are kept.
const KEPT_MAX: f64 = 10.0;

/// The retry budget of an endpoint.
#[derive(Debug)]
pub(super) struct RetryBudget(Mutex<(f64, Option<Instant>)>);

impl Default for RetryBudget {
    /// Starts full.
    fn default() -> Self {
        Self(Mutex::new((KEPT_MAX, None)))
    }
}

impl RetryBudget {
    /// Adds the share that a call earns.
    pub(super) fn called(&self) {
        self.with(|left| *left = (*left + EARNED_PER_CALL).min(KEPT_MAX));
    }

    /// Takes a retry from the budget; false if it is empty.
    pub(super) fn take(&self) -> bool {
        self.with(|left| {
            let may = *left >= 1.0;
            if may {
                *left -= 1.0;
            }
            may
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut f64) -> T) -> T {
        let now = Instant::now();
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = &mut *budget;
        let since = at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        *left = (*left + since.as_secs_f64() * EARNED_PER_SECOND).min(KEPT_MAX);
        change(left)
    }
}

/// Whether a retry may help soon. A call that timed out while waiting for output is not retried.
pub(super) fn is_worth_a_retry(broken: &Broken) -> bool {
    let timed_out =
        matches!(broken.error, VendorError::Timeout { wait: Wait::FirstByte | Wait::Idle | Wait::Call, .. });
    !broken.has_text && broken.error.is_retryable() && !timed_out
}

/// The pause before a retry (numbered from 1): exponential with full jitter, but at least what the vendor asked for. The
/// jitter comes from `seed`, which differs for each planning attempt.
///
/// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
pub(super) fn pause(number: u32, seed: u64, error: &VendorError) -> Duration {
    let ceiling = PAUSE.saturating_mul(1 << number.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let share = f64::from(u32::try_from(mixed(seed, number) >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    ceiling.mul_f64(share).max(error.retry_after().unwrap_or_default())
}

/// 64 pseudo-random bits from a seed and a number: the finalizer of `SplitMix64`, Steele and others, OOPSLA 2014.
pub(super) fn mixed(seed: u64, number: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(retry_after: Option<Duration>) -> VendorError {
        VendorError::Throttled { vendor: "v".to_owned(), retry_after }
    }

    #[test]
    fn pauses_double_with_jitter_and_respect_retry_after() {
        for (number, ceiling) in [(1, 500), (2, 1_000), (5, 8_000), (60, 8_000)] {
            let pauses: Vec<_> = (0..1_000).map(|seed| pause(number, seed, &throttled(None))).collect();
            let ceiling = Duration::from_millis(ceiling);
            let of = |share: f64| ceiling.mul_f64(share);
            assert!(pauses.iter().all(|pause| *pause <= ceiling), "{number}");
            let low = pauses.iter().filter(|pause| **pause < of(0.5)).count();
            assert!((400..600).contains(&low), "{low} of 1000 pauses are short");
            assert!(pauses.iter().any(|pause| *pause < of(0.05)) && pauses.iter().any(|p| *p > of(0.95)));
        }
        let asked = Duration::from_secs(20);
        assert_eq!(pause(1, 7, &throttled(Some(asked))), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_share_of_the_calls_and_a_small_rate() {
        let budget = RetryBudget::default();
        let taken = || std::iter::from_fn(|| budget.take().then_some(())).count();
        assert_eq!((taken(), taken()), (10, 0));
        (0..35).for_each(|_| budget.called());
        assert_eq!(taken(), 3);
        tokio::time::advance(Duration::from_millis(2_600)).await;
        assert_eq!(taken(), 3, "0.5 were left, and 2.6 were earned in 2.6 seconds");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(taken(), 10, "unused retries are kept up to a limit");
    }

    #[test]
    fn only_calls_that_cost_nothing_and_may_succeed_are_retried() {
        let timeout = |wait| VendorError::Timeout { vendor: "v".to_owned(), wait, limit: Duration::ZERO };
        for (error, has_text, expected) in [
            (throttled(None), false, true),
            (throttled(None), true, false),
            (timeout(Wait::Connect), false, true),
            (timeout(Wait::FirstByte), false, false),
            (
                VendorError::Rejected { vendor: "v".to_owned(), status: 400, message: String::new() },
                false,
                false,
            ),
        ] {
            let broken = Broken { error, has_text };
            assert_eq!(is_worth_a_retry(&broken), expected, "{broken:?}");
        }
    }
}
