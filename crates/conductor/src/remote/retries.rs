//! Decides when a failed call is retried.
//!
//! Only a call without any output is retried: it cost nothing, and no client has seen a part of it. Retries are bounded per plan,
//! by the plan's remaining time, and as a share of all calls, so that a failing endpoint does not receive a multiple of its load.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::retry::{Backoff, RetryBudget, RetryLimits};
use podium_domain::split_mix::split_mix;
use podium_domain::time::Timestamp;
use podium_ports::vendor::{VendorError, Wait};
use tokio::time::Instant;

use super::call::Broken;

/// Most retries of one plan.
pub(super) const RETRIES_MAX: u32 = 3;
/// Its pauses.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(8) };
/// Retries as a share of all calls, and per second.
const LIMITS: RetryLimits = RetryLimits { share_max: 0.1, per_second_min: 1.0 };

/// The retry budget of an endpoint.
#[derive(Debug)]
pub(super) struct EndpointBudget {
    started: Instant,
    budget: Mutex<RetryBudget>,
}

impl EndpointBudget {
    /// A full budget.
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), budget: Mutex::new(RetryBudget::new(LIMITS)) }
    }

    /// Adds the share that a call earns.
    pub(super) fn called(&self) {
        let now = self.now();
        self.lock().called(now);
    }

    /// Takes a retry from the budget; false if it is empty.
    pub(super) fn take(&self) -> bool {
        let now = self.now();
        self.lock().take(now)
    }

    /// The time since the start, which never goes back.
    fn now(&self) -> Timestamp {
        Timestamp::default().after(self.started.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a retry may help soon. A call that timed out while waiting for output is not retried.
pub(super) fn is_worth_a_retry(broken: &Broken) -> bool {
    let timed_out =
        matches!(broken.error, VendorError::Timeout { wait: Wait::FirstByte | Wait::Idle | Wait::Call, .. });
    !broken.has_text && broken.error.is_retryable() && !timed_out
}

/// The pause before a retry (numbered from 1). The jitter comes from `seed`, which differs for each planning attempt.
pub(super) fn pause(number: u32, seed: u64, error: &VendorError) -> Duration {
    let random = u32::try_from(split_mix(seed, number.into()) >> 32).unwrap_or(u32::MAX);
    BACKOFF.pause(number, random, error.retry_after().unwrap_or_default())
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
        let budget = EndpointBudget::new();
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
