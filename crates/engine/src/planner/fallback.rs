//! One attempt at a plan. If the conductor gives no usable plan, one safe worker gets the whole question.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::plan::PlanDraft;
use podium_domain::prompt;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::time::Timestamp;
use podium_domain::usage::Usage;
use podium_ports::conductor::{Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::parts::Parts;

/// The time that a conductor has after its time limit to report its usage.
const OVERTIME: Duration = Duration::from_secs(1);

/// Whether failed planning may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayRetry {
    /// Yes, if the retry begins before this time.
    Before(Timestamp),
    No,
}

impl MayRetry {
    fn allows(self, error: &ConductorError, now: Timestamp) -> bool {
        match self {
            Self::Before(end) => {
                error.is_retryable() && now.after(error.retry_after().unwrap_or_default()) < end
            }
            Self::No => false,
        }
    }
}

/// A conductor and its request.
pub(crate) struct Planning<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) conductor: &'a Arc<dyn Conductor>,
    pub(crate) request: &'a PlanRequest,
    /// Whether the plan is for a tenant, which must not see the vendor's message.
    pub(crate) is_of_tenant: bool,
}

/// The failure for readers of the run. The log has the details.
pub(super) fn reason(error: &ConductorError, is_of_tenant: bool) -> String {
    if is_of_tenant { error.message_for_tenant() } else { error.full_message() }
}

impl Planning<'_> {
    /// The conductor's plan. Without one, and if a retry cannot help or is not allowed, the fallback plan gives the whole question to
    /// one safe worker and records the reason. A follow-up round has no fallback: the earlier answer stands, or the run fails with the
    /// failure that the round was to correct.
    pub(crate) async fn plan_or_fall_back(
        self,
        text: TextSink<'_>,
        stop: &CancellationToken,
        may_retry: MayRetry,
    ) -> Result<PlanOutcome, ConductorError> {
        match self.plan(text, stop).await {
            Err(error)
                if !matches!(error.cause(), ConductorError::Stopped)
                    && !may_retry.allows(&error, self.parts.clock.now())
                    && !self.request.is_further() =>
            {
                self.single_worker(error)
            }
            planned => planned,
        }
    }

    /// The conductor's plan within its time limit.
    async fn plan(
        &self,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let (request, limit) = (self.request, self.request.time_max);
        if limit.is_zero() {
            return Err(ConductorError::Timeout { limit });
        }
        let outcome = tokio::select! {
            biased;
            planned = self.conductor.plan(request, text, stop) => planned?,
            () = self.parts.clock.sleep(limit.saturating_add(OVERTIME)) => {
                return Err(ConductorError::Timeout { limit });
            }
        };
        if matches!(outcome.result, PlanResult::KeepAnswer) && !request.may_keep_answer() {
            let (message, usage, cost) =
                ("it keeps an answer, but the run has none".to_owned(), outcome.usage, outcome.cost);
            return Err(ConductorError::NoPlan { tries: 1, message, usage, cost });
        }
        Ok(outcome)
    }

    /// A plan of one step: the safest worker gets the whole question.
    fn single_worker(&self, error: ConductorError) -> Result<PlanOutcome, ConductorError> {
        let (pool, request) = (&self.parts.pool, self.request);
        let Some(worker) = pool.safest(&request.policy) else { return Err(error) };
        let subtask = prompt::whole_question_subtask(&request.question);
        let Ok(plan) = PlanDraft::single(&worker.id, subtask).check(pool, &request.policy) else {
            return Err(error);
        };
        let (usage, cost) = error.consumed();
        let (source, worker) = (&error as &dyn std::error::Error, &worker.id);
        // A workflow that does not fit the policy, such as several steps in a mini run, fails in the same way for each such run.
        if matches!(error.cause(), ConductorError::NoPlan { .. }) && usage == Usage::default() {
            debug!(error = source, %worker, "no plan: one worker gets the question");
        } else {
            warn!(error = source, %worker, "no plan: one worker gets the question");
        }
        let fallback = Some(reason(&error, self.is_of_tenant));
        let planned = Planned { plan, reasoning: String::new(), fallback };
        Ok(PlanOutcome { result: PlanResult::Plan(planned), usage, cost })
    }
}
