//! How many plans may be under way and wait.

use podium_ports::conductor::ConductorError;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The places of a conductor: one for each call that its model takes at the same time, and so many more for plans that wait.
/// Who of them calls next is the limiter's affair.
#[derive(Debug)]
pub(super) struct Places {
    plans: Semaphore,
    waiting_max: usize,
}

impl Places {
    /// At least one.
    pub(super) fn new(calls_max: usize, waiting_max: usize) -> Self {
        let plans_max = calls_max.max(1).saturating_add(waiting_max).min(Semaphore::MAX_PERMITS);
        Self { plans: Semaphore::new(plans_max), waiting_max }
    }

    /// A place for a plan, held until it is written; refused at once where too many wait already.
    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, ConductorError> {
        let full = |_| ConductorError::Overloaded { waiting_max: self.waiting_max };
        self.plans.try_acquire().map_err(full)
    }
}
