//! Calls under way, counted for each worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::WorkerId;
use podium_domain::pool::Worker;
use podium_ports::limiter::{Grant, Limiter, LimiterError, Permit};

/// When to ask again. Whoever asks holds a claim, so this is a beat, not a back-off.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Grants as many calls at once as each worker's `in_flight_max` says, in this process.
#[derive(Debug, Default)]
pub struct MemoryLimiter {
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct Calls(Mutex<HashMap<WorkerId, u32>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLimiter {
    /// A limiter that has granted nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Limiter for MemoryLimiter {
    async fn acquire(&self, worker: &Worker) -> Result<Grant, LimiterError> {
        let mut calls = self.calls.lock();
        let in_flight = calls.get(&worker.id).copied().unwrap_or_default();
        if in_flight >= worker.limits.in_flight_max {
            return Ok(Grant::AskAgain { after: ASK_AGAIN_AFTER });
        }
        calls.insert(worker.id.clone(), in_flight + 1);
        Ok(Grant::Permit(Box::new(CallPermit { worker: worker.id.clone(), calls: Arc::clone(&self.calls) })))
    }
}

struct CallPermit {
    worker: WorkerId,
    calls: Arc<Calls>,
}

impl Permit for CallPermit {}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut calls = self.calls.lock();
        match calls.get_mut(&self.worker) {
            Some(in_flight) if *in_flight > 1 => *in_flight -= 1,
            _ => {
                calls.remove(&self.worker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::pool::Limits;
    use podium_testkit::a_pool;

    use super::*;

    fn a_worker(index: usize, in_flight_max: u32) -> Worker {
        let worker = a_pool().workers()[index].clone();
        Worker { limits: Limits { in_flight_max, ..worker.limits }, ..worker }
    }

    async fn permit(limiter: &MemoryLimiter, worker: &Worker) -> Option<Box<dyn Permit>> {
        match limiter.acquire(worker).await.unwrap() {
            Grant::Permit(permit) => Some(permit),
            Grant::AskAgain { after } => {
                assert!(after > Duration::ZERO);
                None
            }
        }
    }

    #[tokio::test]
    async fn a_worker_has_no_more_calls_than_it_may() {
        let (limiter, worker) = (MemoryLimiter::new(), a_worker(0, 2));
        let first = permit(&limiter, &worker).await;
        let second = permit(&limiter, &worker).await;
        assert!(first.is_some() && second.is_some());
        assert!(permit(&limiter, &worker).await.is_none());
        assert!(permit(&limiter, &a_worker(1, 1)).await.is_some(), "another worker has room of its own");
        drop(first);
        assert!(permit(&limiter, &worker).await.is_some());
    }

    #[tokio::test]
    async fn permits_that_were_given_back_leave_nothing_behind() {
        let (limiter, worker) = (MemoryLimiter::new(), a_worker(0, 3));
        let permits = [permit(&limiter, &worker).await, permit(&limiter, &worker).await];
        assert_eq!(limiter.calls.lock().get(&worker.id), Some(&2));
        drop(permits);
        assert!(limiter.calls.lock().is_empty());
    }
}
