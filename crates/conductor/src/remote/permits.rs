//! Acquires permits within the limits of the model and its vendor's account, which workers share.

use std::time::Duration;

use podium_domain::run::TaskRef;
use podium_domain::token_estimate::text_tokens;
use podium_ports::conductor::{Asker, ConductorError};
use podium_ports::limiter::{CallRequest, Grant, Patience, Permit, RefusalReason, TokenEstimate};
use podium_ports::vendor::ChatRequest;
use tokio::time::Instant;

use super::usage_account::prompt_bytes;
use super::{Asking, RemoteConductor, wait};

/// Pause before the next request to a limiter that failed.
const LIMITER_PAUSE: Duration = Duration::from_millis(500);

impl RemoteConductor {
    /// Waits for a permit as long as the plan has time. Fails at once if the model's circuit breaker is open: the caller has
    /// a fallback.
    pub(super) async fn permit_for(
        &self,
        asking: &Asking<'_>,
        request: &ChatRequest,
    ) -> Result<Box<dyn Permit>, ConductorError> {
        let Asker { tenant, run, round } = &asking.request.asker;
        let call = CallRequest {
            worker: &self.model,
            tenant,
            tier: asking.request.policy.tier,
            run: *run,
            task: TaskRef::Plan { round: *round },
            estimate: TokenEstimate {
                input: text_tokens(prompt_bytes(request)),
                output_max: request.output_tokens_max.into(),
            },
            patience: Patience::Waits,
        };
        let began = Instant::now();
        loop {
            let (why, after) = match self.limiter.acquire(&call).await {
                Ok(Grant::Permit(permit)) => {
                    self.metrics.count_request(Ok(()));
                    self.metrics.waited(began.elapsed());
                    return Ok(permit);
                }
                Ok(Grant::AskAgain { why, after }) => {
                    self.metrics.count_request(Err(Some(why)));
                    (why, after)
                }
                Err(error) => {
                    self.metrics.count_request(Err(None));
                    tracing::warn!(
                        conductor = self.id,
                        error = &error as &dyn std::error::Error,
                        "the limiter failed"
                    );
                    (RefusalReason::Unreachable, LIMITER_PAUSE)
                }
            };
            if why == RefusalReason::Broken || !asking.has_time_for(after) {
                return Err(ConductorError::NoCapacity { why, after });
            }
            wait(after).await;
        }
    }
}
