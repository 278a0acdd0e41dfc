//! A limiter that refuses the workers that a test names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError, RefusalReason};
use tokio::sync::watch;

/// A limiter that grants no permit for some workers.
pub(crate) struct Guarded {
    inner: Arc<dyn Limiter>,
    shut: Mutex<BTreeSet<&'static str>>,
    why: RefusalReason,
    /// The names of the refused callers, in order.
    refusals: watch::Sender<Vec<String>>,
}

/// The vendors' back-off: longer than the deadline of any run here.
const BLOCKED: Duration = Duration::from_hours(2);

impl Guarded {
    pub(crate) fn around(inner: Arc<dyn Limiter>, shut: &[&'static str], why: RefusalReason) -> Arc<Self> {
        let shut = Mutex::new(shut.iter().copied().collect());
        Arc::new(Self { inner, shut, why, refusals: watch::Sender::new(Vec::new()) })
    }

    pub(crate) fn open(&self, worker: &str) {
        self.shut.lock().unwrap_or_else(PoisonError::into_inner).remove(worker);
    }

    pub(crate) async fn until_refused(&self, count: usize) {
        self.refusals.subscribe().wait_for(|refusals| refusals.len() >= count).await.unwrap();
    }

    pub(crate) fn refused(&self) -> Vec<String> {
        self.refusals.borrow().clone()
    }
}

#[async_trait]
impl Limiter for Guarded {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        let is_shut = {
            let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
            shut.contains(request.worker.id.as_str())
        };
        if is_shut {
            self.refusals.send_modify(|refusals| refusals.push(request.who()));
            let after = if self.why == RefusalReason::Blocked { BLOCKED } else { Duration::from_millis(5) };
            return Ok(Grant::AskAgain { after, why: self.why });
        }
        self.inner.acquire(request).await
    }
}
