//! How many retries a worker is asked for. A worker in trouble gets all its calls again from everybody, and each retry makes the
//! trouble worse: so retries are at most a share of the calls, whatever each run for itself would do.
//!
//! The share of a tenth is that of "Site Reliability Engineering" (Google, 2016, chapter 21, "Client-Side Throttling" and
//! "Deciding to Retry"); that some a second are always allowed, so that a worker with few calls is tried again at all, is
//! `RetryBudget` of Twitter's Finagle.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::WorkerId;
use podium_domain::time::Timestamp;

/// What goes unused is kept for so long.
const KEPT: Duration = Duration::from_secs(10);

/// How many retries are allowed, for each worker and process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Retries for each call, 0 to 1.
    pub share_max: f64,
    /// Retries a second that are allowed beside.
    pub per_second_min: f64,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { share_max: 0.1, per_second_min: 10.0 }
    }
}

/// The budgets of all workers that were called: as many as pools have.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    limits: RetryLimits,
    purses: Mutex<BTreeMap<WorkerId, Purse>>,
}

/// What one worker has left.
#[derive(Clone, Copy, Debug)]
struct Purse {
    retries: f64,
    /// When it was last looked into.
    at: Timestamp,
}

impl RetryBudget {
    /// Budgets within `limits`, all of them full.
    pub(crate) fn new(limits: RetryLimits) -> Self {
        Self { limits, purses: Mutex::default() }
    }

    /// A call is made: it earns a share of a retry.
    pub(crate) fn called(&self, worker: &WorkerId, now: Timestamp) {
        self.with(worker, now, |purse| purse.retries += self.limits.share_max);
    }

    /// Takes a retry, if there is one.
    pub(crate) fn take(&self, worker: &WorkerId, now: Timestamp) -> bool {
        self.with(worker, now, |purse| {
            let may = purse.retries >= 1.0;
            if may {
                purse.retries -= 1.0;
            }
            may
        })
    }

    fn with<T>(&self, worker: &WorkerId, now: Timestamp, change: impl FnOnce(&mut Purse) -> T) -> T {
        let most = (self.limits.per_second_min * KEPT.as_secs_f64()).max(1.0);
        let mut purses = self.lock();
        let purse = purses.entry(worker.clone()).or_insert(Purse { retries: most, at: now });
        let earned = now.since(purse.at).as_secs_f64() * self.limits.per_second_min;
        purse.retries = (purse.retries + earned).min(most);
        purse.at = now;
        change(purse)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WorkerId, Purse>> {
        self.purses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_calls_and_a_few_a_second() {
        let worker = WorkerId::new("w").unwrap();
        let budget = RetryBudget::new(RetryLimits { share_max: 0.1, per_second_min: 2.0 });
        let start = Timestamp::from_unix_ms(1_000_000);
        let taken = |now| std::iter::from_fn(|| budget.take(&worker, now).then_some(())).count();
        assert_eq!(taken(start), 20, "it is full at first");
        assert_eq!(taken(start), 0);
        for _ in 0..105 {
            budget.called(&worker, start);
        }
        assert_eq!(taken(start), 10);
        assert_eq!(taken(start.after(Duration::from_secs(3))), 6);
        assert_eq!(taken(start.after(Duration::from_hours(1))), 20, "what is unused is not kept for ever");
        let other = WorkerId::new("other").unwrap();
        assert!(budget.take(&other, start), "each worker has its own");
    }
}
