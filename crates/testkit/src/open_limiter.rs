//! A limiter that grants every call except for scripted refusals, and records all requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId, WorkerId};
use podium_domain::policy::Tier;
use podium_domain::run::TaskRef;
use podium_ports::limiter::{
    CallRequest, Grant, Limiter, LimiterError, Permit, RefusalReason, Settlement, TokenEstimate,
};

/// A recorded request for a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The worker.
    pub worker: WorkerId,
    /// The tenant.
    pub tenant: TenantId,
    /// The tier.
    pub tier: Tier,
    /// The run and its task.
    pub task: (RunId, TaskRef),
    /// The estimated tokens.
    pub estimate: TokenEstimate,
}

/// Grants every call. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct OpenLimiter(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    answers: VecDeque<Result<(RefusalReason, Duration), String>>,
    requests: Vec<Requested>,
    settlements: Vec<Settlement>,
}

impl OpenLimiter {
    /// Refuses the next requests, one after the other, each with a delay.
    pub fn refuse(&self, refusals: impl IntoIterator<Item = (RefusalReason, Duration)>) {
        self.lock().answers.extend(refusals.into_iter().map(Ok));
    }

    /// Fails the next request without a scripted refusal.
    pub fn fail(&self, why: &str) {
        self.lock().answers.push_back(Err(why.to_owned()));
    }

    /// All requests, including refused ones.
    pub fn requests(&self) -> Vec<Requested> {
        self.lock().requests.clone()
    }

    /// The settlements of granted calls. A dropped permit counts as one with an unknown outcome.
    pub fn settlements(&self) -> Vec<Settlement> {
        self.lock().settlements.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Limiter for OpenLimiter {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        let mut known = self.lock();
        known.requests.push(Requested {
            worker: request.worker.id.clone(),
            tenant: request.tenant.clone(),
            tier: request.tier,
            task: (request.run, request.task),
            estimate: request.estimate,
        });
        match known.answers.pop_front() {
            None => Ok(Grant::Permit(Box::new(OpenPermit {
                known: self.clone(),
                settlement: Settlement::default(),
            }))),
            Some(Ok((why, after))) => Ok(Grant::AskAgain { after, why }),
            Some(Err(error)) => Err(LimiterError(error.into())),
        }
    }
}

struct OpenPermit {
    known: OpenLimiter,
    settlement: Settlement,
}

impl Permit for OpenPermit {
    fn settle(mut self: Box<Self>, settlement: Settlement) {
        self.settlement = settlement;
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.known.lock().settlements.push(self.settlement);
    }
}
