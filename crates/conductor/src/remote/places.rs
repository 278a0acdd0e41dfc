//! How many plans are asked for at the same time, and how many may wait for that.

use podium_ports::conductor::ConductorError;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The places of a conductor: so many calls at the same time, and so many plans that wait for one.
#[derive(Debug)]
pub(super) struct Places {
    calls: Semaphore,
    plans: Semaphore,
    waiting_max: usize,
}

impl Places {
    /// At least one call.
    pub(super) fn new(calls_max: usize, waiting_max: usize) -> Self {
        let calls_max = calls_max.clamp(1, Semaphore::MAX_PERMITS);
        let plans_max = calls_max.saturating_add(waiting_max).min(Semaphore::MAX_PERMITS);
        Self { calls: Semaphore::new(calls_max), plans: Semaphore::new(plans_max), waiting_max }
    }

    /// A place for a plan, held until it is written; refused at once where too many wait already.
    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, ConductorError> {
        let full = |_| ConductorError::Overloaded { waiting_max: self.waiting_max };
        self.plans.try_acquire().map_err(full)
    }

    /// The right to make one call, as soon as another one has ended. First come, first served. A plan that pauses holds none.
    pub(super) async fn call(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.calls.acquire().await.ok()
    }
}
