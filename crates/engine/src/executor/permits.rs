//! Acquires permits for calls: for the step's own worker, or for a fallback if that worker is unavailable.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::policy::FALLBACKS_MAX;
use podium_domain::pool::Worker;
use podium_domain::run::{Command, Run, TaskRef, TaskState};
use podium_ports::limiter::{CallRequest, Grant, Limiter, Patience, Permit, RefusalReason};
use tracing::warn;

use super::fallback;
use super::step_call::{Permitted, StepCall};
use crate::context::Context;
use crate::token_estimates::call_tokens;

/// Requests permits from the limiter. Cheap to clone.
#[derive(Clone)]
pub(super) struct Permits {
    context: Context,
    limiter: Arc<dyn Limiter>,
}

/// The limiter grants no permit now.
pub(super) struct NoCapacity {
    /// The reason; `None` if the limiter failed.
    why: Option<RefusalReason>,
    /// When to ask again.
    after: Duration,
}

/// The worker of a step is unavailable.
pub(super) struct Unavailable {
    /// The message for readers of the run.
    message: String,
    /// When to ask again if no fallback has capacity sooner.
    after: Duration,
}

/// The worker and the permit for a step's call.
pub(super) struct Placed {
    pub(super) permitted: Permitted,
    /// The command that the claim follows, if a fallback replaces the step's worker.
    pub(super) first: Option<Command>,
}

/// A step cannot be called now.
pub(super) enum Unplaced {
    /// It may be possible later.
    Later(Duration),
    /// No worker takes the request. The message says why.
    Never(String),
}

impl Permits {
    pub(super) fn new(context: Context, limiter: Arc<dyn Limiter>) -> Self {
        Self { context, limiter }
    }

    /// A permit for one call.
    pub(super) async fn acquire(
        &self,
        call: &StepCall,
        patience: Patience,
    ) -> Result<Box<dyn Permit>, NoCapacity> {
        let (spec, worker) = (call.run.spec(), &call.worker);
        let request = CallRequest {
            worker,
            tenant: &spec.tenant,
            tier: spec.request.policy.tier,
            run: call.run.id(),
            task: call.task(),
            estimate: call_tokens(&call.request),
            patience,
        };
        let permit = match self.limiter.acquire(&request).await {
            Ok(Grant::Permit(permit)) => Ok(permit),
            Ok(Grant::AskAgain { after, why }) => Err(NoCapacity { why: Some(why), after }),
            Err(error) => {
                warn!(worker = %worker.id, error = &error as &dyn std::error::Error, "the limiter failed");
                Err(NoCapacity { why: None, after: self.context.options().retry_pause })
            }
        };
        self.context.metrics().asked(&worker.id, permit.as_ref().map(drop).map_err(|refused| refused.why));
        permit
    }

    /// A permit for the step's worker, or, if that one is unavailable, for the first fallback that grants one.
    pub(super) async fn place(&self, call: StepCall) -> Result<Placed, Unplaced> {
        if let Some(message) = fallback::obstacle(&call) {
            let has_fallback = call.run.can_fall_back(call.task())
                && fallback::candidates(self.context.pool(), &call).next().is_some();
            if !has_fallback {
                let message = format!("{message}; no other worker that the policy allows takes it");
                return Err(Unplaced::Never(message));
            }
            return self
                .place_elsewhere(call, Unavailable { message, after: self.context.options().retry_pause })
                .await;
        }
        match self.acquire(&call, Patience::Waits).await {
            Ok(permit) => Ok(self.placed(Permitted { call, permit }, None)),
            Err(NoCapacity { why, after }) => match why.and_then(|why| self.unavailable(&call, why, after)) {
                Some(unavailable) => self.place_elsewhere(call, unavailable).await,
                None => Err(Unplaced::Later(after)),
            },
        }
    }

    /// Whether waiting for the worker is useless: its calls fail, or its vendor asked to back off beyond the run's deadline.
    fn unavailable(&self, call: &StepCall, why: RefusalReason, after: Duration) -> Option<Unavailable> {
        let id = &call.worker.id;
        let message = match why {
            RefusalReason::Broken => format!("the circuit breaker of worker `{id}` is open"),
            RefusalReason::Blocked if self.context.now().after(after) >= call.run.deadline_at() => {
                format!("the vendor of worker `{id}` asked to back off beyond the deadline of the run")
            }
            RefusalReason::Blocked
            | RefusalReason::Busy
            | RefusalReason::Rate
            | RefusalReason::Unreachable => return None,
        };
        Some(Unavailable { message, after })
    }

    /// Requests a permit for a fallback. If no fallback has capacity now, the step stays with its worker, and all are tried again as
    /// soon as the first of them may have capacity: nothing was committed, and the message waits until the deadline.
    ///
    /// The step waits in line only at the first fallback, and only after all others have refused it. The limiter reserves capacity
    /// for a step in each line where it waits, also after it got a permit elsewhere.
    ///
    /// The step moves only to a worker that grants a permit, because moving from one open breaker to another helps nobody. If the
    /// limiter itself is unreachable, no worker is better than another.
    async fn place_elsewhere(&self, call: StepCall, unavailable: Unavailable) -> Result<Placed, Unplaced> {
        let Unavailable { message, after: mut soonest } = unavailable;
        if !call.run.can_fall_back(call.task()) {
            return Err(Unplaced::Later(soonest));
        }
        let now = self.context.now();
        let others: Vec<&Worker> = fallback::candidates(self.context.pool(), &call)
            .filter(|other| other.prices.is_valid_at(now))
            .take(FALLBACKS_MAX)
            .collect();
        let passing = others.iter().filter(|_| others.len() > 1).map(|other| (*other, Patience::Leaves));
        for (other, patience) in passing.chain(others.first().map(|first| (*first, Patience::Waits))) {
            let Some(other) = StepCall::new(&call.run, call.step, other) else { continue };
            match self.acquire(&other, patience).await {
                Ok(permit) => {
                    let (from, worker) = (call.worker.id.clone(), other.worker.id.clone());
                    let first = Command::FallBack { step: call.step, from, worker, message };
                    return Ok(self.placed(Permitted { call: other, permit }, Some(first)));
                }
                Err(NoCapacity { why: Some(RefusalReason::Unreachable) | None, after }) => {
                    return Err(Unplaced::Later(after));
                }
                Err(NoCapacity { after, .. }) => soonest = soonest.min(after),
            }
        }
        Err(Unplaced::Later(soonest))
    }

    fn placed(&self, permitted: Permitted, first: Option<Command>) -> Placed {
        let StepCall { run, step, .. } = &permitted.call;
        self.note_wait(run, (*step).into());
        Placed { permitted, first }
    }

    /// Measures how long a step was ready before it got its permit.
    fn note_wait(&self, run: &Run, task: TaskRef) {
        if let Some(TaskState::Ready { not_before }) = run.task(task).map(|task| &task.state) {
            self.context
                .metrics()
                .waited(run.spec().request.policy.tier, self.context.now().since(*not_before));
        }
    }
}
