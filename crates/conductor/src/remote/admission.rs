//! Bounds the plans in progress.

use podium_ports::conductor::ConductorError;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Admits one plan for each concurrent call of the model and `waiting_max` more. The limiter decides which of them calls next.
#[derive(Debug)]
pub(super) struct Admission {
    plans: Semaphore,
    waiting_max: usize,
}

impl Admission {
    /// `calls_max` counts as at least 1.
    pub(super) fn new(calls_max: usize, waiting_max: usize) -> Self {
        let plans_max = calls_max.max(1).saturating_add(waiting_max).min(Semaphore::MAX_PERMITS);
        Self { plans: Semaphore::new(plans_max), waiting_max }
    }

    /// Admits a plan until the permit is dropped, or rejects it at once if too many wait.
    pub(super) fn admit(&self) -> Result<SemaphorePermit<'_>, ConductorError> {
        let full = |_| ConductorError::Overloaded { waiting_max: self.waiting_max };
        self.plans.try_acquire().map_err(full)
    }
}
