//! The limiter: the concurrent calls of each worker from all nodes, and the pauses that its vendor requests.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::WorkerId;
use podium_ports::limiter::{
    CallRequest, Grant, Limiter, LimiterError, Outcome, Permit, RefusalReason, Settlement,
};

use crate::checker::Invariant;
use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Core, Link, Service};

/// Longest time until the limiter knows a requested pause.
const HEARD_AFTER_MS: u64 = 1_000;

/// The limiter's state, and the true state.
#[derive(Default)]
pub(crate) struct LimitsState {
    /// Most concurrent calls of a worker; `None` means no limit.
    calls_max: Option<usize>,
    permits: BTreeMap<WorkerId, usize>,
    calls: BTreeMap<WorkerId, usize>,
    /// The ends of the pauses that the limiter knows.
    paused_until: BTreeMap<WorkerId, u64>,
    /// The begin and end of the pause that the vendor requested.
    pauses: BTreeMap<WorkerId, (u64, u64)>,
}

impl LimitsState {
    pub(crate) fn new(calls_max: Option<usize>) -> Self {
        Self { calls_max, ..Self::default() }
    }
}

impl Core {
    /// A call begins at the vendor.
    pub(crate) fn call_began(&mut self, worker: &WorkerId) {
        self.calls_under_way += 1;
        let calls = self.limits.calls.entry(worker.clone()).or_default();
        *calls += 1;
        let (calls, most) = (*calls, self.limits.calls_max);
        if let Some(most) = most.filter(|most| calls > *most) {
            let what = format!("worker {worker} has {calls} concurrent calls, the limit is {most}");
            self.checker.violated(Invariant::Limit, what);
        }
    }

    pub(crate) fn call_ended(&mut self, worker: &WorkerId) {
        self.calls_under_way -= 1;
        if let Some(calls) = self.limits.calls.get_mut(worker) {
            *calls -= 1;
        }
    }

    /// A vendor has rejected a call and requests a pause.
    pub(crate) fn requested_pause(&mut self, worker: &WorkerId, pause: Duration) {
        let until = self.now_ms + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.limits.pauses.insert(worker.clone(), (self.now_ms, until));
    }

    fn settled(&mut self, worker: &WorkerId, settlement: &Settlement) {
        if let Outcome::Limited { retry_after: Some(pause) } = settlement.outcome {
            let until = self.now_ms + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            let paused_until = self.limits.paused_until.entry(worker.clone()).or_default();
            *paused_until = until.max(*paused_until);
        }
    }

    /// The time until the worker may take a call, in milliseconds, and the reason; none if it takes one now.
    fn refusal(&mut self, worker: &WorkerId) -> Option<(u64, RefusalReason)> {
        let refuses = self.rates.limiter_refuses;
        if self.dice.chance(refuses) {
            self.count("limited");
            let why = if self.dice.chance(300) { RefusalReason::Broken } else { RefusalReason::Rate };
            return Some((self.dice.between(1, 2_000), why));
        }
        let paused_until = self.limits.paused_until.get(worker).copied().unwrap_or_default();
        if self.now_ms < paused_until && !self.is_mutated(Mutation::ForgetPause) {
            self.count("paused by its vendor");
            return Some((paused_until - self.now_ms, RefusalReason::Rate));
        }
        let permits = self.limits.permits.get(worker).copied().unwrap_or_default();
        let is_full = self.limits.calls_max.is_some_and(|most| permits >= most);
        if is_full && !self.is_mutated(Mutation::ForgetLimit) {
            self.count("no capacity for a call");
            return Some((self.dice.between(20, 800), RefusalReason::Busy));
        }
        None
    }

    fn permit(&mut self, worker: &WorkerId) {
        if let Some((since, until)) = self.limits.pauses.get(worker).copied()
            && since + HEARD_AFTER_MS < self.now_ms
            && self.now_ms < until
        {
            let what =
                format!("a call of worker {worker} is permitted during its vendor's pause until {until} ms");
            self.checker.violated(Invariant::Limit, what);
        }
        self.permits += 1;
        *self.limits.permits.entry(worker.clone()).or_default() += 1;
    }

    fn give_back(&mut self, worker: &WorkerId) {
        self.permits -= 1;
        if let Some(permits) = self.limits.permits.get_mut(worker) {
            *permits -= 1;
        }
    }
}

/// A node's limiter.
pub(crate) struct SimLimiter(pub(crate) Link);

#[async_trait]
impl Limiter for SimLimiter {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        let (mut core, worker) = (self.0.world.lock(), &request.worker.id);
        let is_cut = core.is_away(Service::Limiter) || core.is_cut(self.0.node, Service::Limiter);
        let refuses = core.rates.limiter_refuses / 5;
        if is_cut || core.dice.chance(refuses) {
            core.count("limiter did not answer");
            return Err(LimiterError("the limiter is unreachable".into()));
        }
        if let Some((after_ms, why)) = core.refusal(worker) {
            note!(core, "node {}: no call of {worker} for {after_ms} ms: {why:?}", self.0.node);
            return Ok(Grant::AskAgain { after: Duration::from_millis(after_ms), why });
        }
        core.permit(worker);
        let permit = SimPermit { link: self.0.clone(), worker: worker.clone(), is_settled: false };
        Ok(Grant::Permit(Box::new(permit)))
    }
}

struct SimPermit {
    link: Link,
    worker: WorkerId,
    is_settled: bool,
}

impl Permit for SimPermit {
    fn settle(mut self: Box<Self>, settlement: Settlement) {
        self.is_settled = true;
        self.link.world.lock().settled(&self.worker, &settlement);
    }
}

impl Drop for SimPermit {
    fn drop(&mut self) {
        let mut core = self.link.world.lock();
        core.give_back(&self.worker);
        if !self.is_settled {
            // Its process died or lost the call, so the limiter never learns of a pause.
            core.limits.pauses.remove(&self.worker);
        }
    }
}
