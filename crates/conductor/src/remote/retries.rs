//! When a call that brought nothing is made again.
//!
//! Only a call of which nothing was heard: it cost nothing, and nobody has seen anything of it. How often is bounded three times:
//! for each plan, by the time that the plan has left, and as a share of all calls, so that an endpoint in trouble is not asked
//! several times as much as one that works.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podium_ports::vendor::{VendorError, Wait};
use tokio::time::Instant;

use super::writing::Broken;

/// Calls that are made again for one plan.
pub(super) const RETRIES_MAX: u32 = 3;
/// Longest pause before the first of them; doubled for each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest such pause that is not the vendor's own wish.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// What each call earns of a retry, and each second beside. A tenth of the calls, as "Site Reliability Engineering" (Google,
/// 2016, chapter 21) has it, and a trickle for endpoints with few calls.
const EARNED_PER_CALL: f64 = 0.1;
const EARNED_PER_SECOND: f64 = 1.0;
/// What goes unused is kept up to this.
const KEPT_MAX: f64 = 10.0;

/// The retries that an endpoint has left.
#[derive(Debug)]
pub(super) struct RetryPurse(Mutex<(f64, Option<Instant>)>);

impl Default for RetryPurse {
    /// A full one.
    fn default() -> Self {
        Self(Mutex::new((KEPT_MAX, None)))
    }
}

impl RetryPurse {
    /// A call is made.
    pub(super) fn called(&self) {
        self.with(|left| *left = (*left + EARNED_PER_CALL).min(KEPT_MAX));
    }

    /// Takes a retry, if there is one.
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
        let mut purse = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = &mut *purse;
        let since = at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        *left = (*left + since.as_secs_f64() * EARNED_PER_SECOND).min(KEPT_MAX);
        change(left)
    }
}

/// Whether the call may go better if it is made again soon. Who was waited for in vain gets no other call now.
pub(super) fn may_be_repeated(broken: &Broken) -> bool {
    let waited_in_vain =
        matches!(broken.error, VendorError::Timeout { wait: Wait::FirstByte | Wait::Idle | Wait::Call, .. });
    !broken.was_heard && broken.error.is_retryable() && !waited_in_vain
}

/// The pause before the retry of that number, from 1: exponential with full jitter, but never less than what the vendor asked
/// for. The jitter comes from `seed`, which is another one for each attempt at a plan.
///
/// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
pub(super) fn pause(number: u32, seed: u64, error: &VendorError) -> Duration {
    let ceiling = PAUSE.saturating_mul(1 << number.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let share = f64::from(u32::try_from(mixed(seed, number) >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    ceiling.mul_f64(share).max(error.retry_after().unwrap_or_default())
}

/// Sixty-four bits that look random, from a seed and a number: the finalizer of `SplitMix64`, Steele and others, OOPSLA 2014.
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
    fn pauses_are_spread_below_a_ceiling_that_doubles_and_obey_the_vendor() {
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
    async fn retries_are_a_share_of_the_calls_and_a_trickle() {
        let purse = RetryPurse::default();
        let taken = || std::iter::from_fn(|| purse.take().then_some(())).count();
        assert_eq!((taken(), taken()), (10, 0));
        (0..35).for_each(|_| purse.called());
        assert_eq!(taken(), 3);
        tokio::time::advance(Duration::from_millis(2_600)).await;
        assert_eq!(taken(), 3, "half a one was left, and 2.6 came in 2.6 seconds");
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(taken(), 10, "what is unused is not kept for ever");
    }

    #[test]
    fn only_what_cost_nothing_and_may_go_better_is_asked_again() {
        let timeout = |wait| VendorError::Timeout { vendor: "v".to_owned(), wait, limit: Duration::ZERO };
        for (error, was_heard, expected) in [
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
            let broken = Broken { error, was_heard };
            assert_eq!(may_be_repeated(&broken), expected, "{broken:?}");
        }
    }
}
