//! Continues the tool loop of an earlier run: its worker gets the results of its calls, and its own ids and seals back.

use podium_domain::ids::{TenantId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::prompt::whole_question_subtask;
use podium_domain::request::RunRequest;
use podium_domain::run::{PlanResult, Planned, Run};
use podium_domain::tool_loop::{earlier_run, restored, waiting_worker, worker_of_last_calls};
use podium_domain::usage::Usage;
use podium_ports::conductor::PlanOutcome;
use podium_ports::store::StoreError;
use tracing::debug;

use crate::context::Context;

/// The reasoning of a plan that no conductor wrote.
const REASONING: &str = "The worker continues after the results of its tool calls.";

/// A request, and the worker that waits for the tool results at its end.
pub(super) struct Continued {
    pub(super) request: RunRequest,
    pub(super) waiting: Option<WorkerId>,
}

/// Restores what workers of earlier turns expect back. A run that was removed, that another tenant owns or that cannot be read
/// leaves the request as it is: its calls are history like those of another system.
pub(super) async fn continued(
    context: &Context,
    tenant: &TenantId,
    mut request: RunRequest,
) -> Result<Continued, StoreError> {
    let Some(id) = earlier_run(&request.conversation) else {
        return Ok(Continued { request, waiting: None });
    };
    let earlier = match context.run_for_client(id).await {
        Ok(run) => run.filter(|run| run.spec().tenant == *tenant),
        Err(error @ StoreError::Inconsistent { .. }) => {
            debug!(run = %id, %error, "the run of earlier tool calls cannot be read");
            None
        }
        Err(error) => return Err(error),
    };
    let Some(earlier) = earlier else {
        let waiting = worker_of_last_calls(&request.conversation).cloned();
        return Ok(Continued { request, waiting });
    };
    let waiting = waiting_worker(&request.conversation, &earlier).cloned();
    request.conversation = restored(&request.conversation, &earlier);
    Ok(Continued { request, waiting })
}

/// The plan of a run that continues the loop of `worker`: one step. `None` if the policy does not allow the worker.
pub(super) fn loop_plan(context: &Context, run: &Run, worker: &WorkerId) -> Option<PlanOutcome> {
    let request = &run.spec().request;
    let subtask = whole_question_subtask(&request.conversation.question());
    let plan = PlanDraft::single(worker, subtask).check(context.pool(), &request.policy).ok()?;
    let planned = Planned { plan, reasoning: REASONING.to_owned(), fallback: None };
    Some(PlanOutcome { result: PlanResult::Plan(planned), usage: Usage::NONE, cost: Cost::ZERO })
}
