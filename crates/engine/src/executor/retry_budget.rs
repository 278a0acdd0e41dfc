//! The retry budget of each worker.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use podium_domain::ids::WorkerId;
use podium_domain::retry::{RetryBudget, RetryLimits};
use podium_domain::time::Timestamp;

/// The budgets of all workers that were called. Their number is bounded by the pools.
#[derive(Debug, Default)]
pub(crate) struct RetryBudgets {
    limits: RetryLimits,
    budgets: Mutex<BTreeMap<WorkerId, RetryBudget>>,
}

impl RetryBudgets {
    /// Full budgets within `limits`.
    pub(crate) fn new(limits: RetryLimits) -> Self {
        Self { limits, budgets: Mutex::default() }
    }

    /// Adds the share of a retry that a call earns.
    pub(crate) fn called(&self, worker: &WorkerId, now: Timestamp) {
        self.with(worker, |budget| budget.called(now));
    }

    /// Takes a retry; false if none is left.
    pub(crate) fn take(&self, worker: &WorkerId, now: Timestamp) -> bool {
        self.with(worker, |budget| budget.take(now))
    }

    fn with<T>(&self, worker: &WorkerId, change: impl FnOnce(&mut RetryBudget) -> T) -> T {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        change(budgets.entry(worker.clone()).or_insert_with(|| RetryBudget::new(self.limits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_its_own_budget() {
        let budgets = RetryBudgets::new(RetryLimits { share_max: 0.1, per_second_min: 0.0 });
        let (one, other) = (WorkerId::new("one").unwrap(), WorkerId::new("other").unwrap());
        let now = Timestamp::from_unix_ms(1_000_000);
        assert!(budgets.take(&one, now) && !budgets.take(&one, now));
        assert!(budgets.take(&other, now));
        for _ in 0..11 {
            budgets.called(&one, now);
        }
        assert!(budgets.take(&one, now));
    }
}
