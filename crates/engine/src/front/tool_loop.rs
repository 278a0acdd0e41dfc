//! Continues the tool loop of an earlier run. A suspended run gets the results of its calls. Otherwise a new run gets them, whose
//! worker gets its own ids and seals back.

use podium_domain::ids::{RunId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::prompt::whole_question_subtask;
use podium_domain::required_features::takes_results;
use podium_domain::run::{Command, PlanResult, Planned, Run};
use podium_domain::tool_loop::{earlier_run, restored, results_at_end, waiting_worker, worker_of_last_calls};
use podium_domain::usage::Usage;
use podium_ports::conductor::PlanOutcome;
use podium_ports::store::StoreError;
use tracing::debug;

use super::submit::Submit;
use crate::commit::CommandError;
use crate::context::Context;

/// The reasoning of a plan that no conductor wrote.
const REASONING: &str = "The worker continues after the results of its tool calls.";

/// How a request continues the tool loop of an earlier run.
pub(super) enum Continued {
    /// Its results are those that a suspended run waits for, or has received before. They begin this reply.
    SameRun { run: RunId, reply: u16 },
    /// A new run answers the request.
    NewRun {
        submit: Box<Submit>,
        /// The worker that waits for the tool results at the end of the request.
        waiting: Option<WorkerId>,
    },
}

/// Continues the run of the conversation's last tool calls. If that is impossible, restores what the workers of earlier turns expect
/// back. A run that was removed, that another tenant owns or that cannot be read leaves the request as it is: its calls are history
/// like those of another system.
pub(super) async fn continued(context: &Context, mut submit: Box<Submit>) -> Result<Continued, StoreError> {
    let Some(id) = earlier_run(&submit.request.conversation) else {
        return Ok(Continued::NewRun { submit, waiting: None });
    };
    let earlier = match context.run_for_client(id).await {
        Ok(run) => run.filter(|run| run.spec().tenant == submit.tenant),
        Err(error @ StoreError::Inconsistent { .. }) => {
            debug!(run = %id, %error, "the run of earlier tool calls cannot be read");
            None
        }
        Err(error) => return Err(error),
    };
    let Some(earlier) = earlier else {
        let waiting = worker_of_last_calls(&submit.request.conversation).cloned();
        return Ok(Continued::NewRun { submit, waiting });
    };
    if let Some(reply) = resumed(context, &earlier, &submit).await? {
        return Ok(Continued::SameRun { run: id, reply });
    }
    let conversation = &mut submit.request.conversation;
    let waiting = waiting_worker(conversation, &earlier).cloned();
    *conversation = restored(conversation, &earlier);
    Ok(Continued::NewRun { submit, waiting })
}

/// Gives the results of a request to the run that waits for them, or has received the same ones before. Returns the reply that they
/// begin; `None` if the run is not the one to answer: it ended, it has other results, or the client changed the tools.
async fn resumed(context: &Context, run: &Run, submit: &Submit) -> Result<Option<u16>, StoreError> {
    let (spec, request) = (run.spec(), &submit.request);
    let is_same = spec.request.suspends()
        && request.suspends()
        && spec.request.tools == request.tools
        && spec.model == submit.model;
    let Some(results) = results_at_end(&request.conversation).filter(|_| is_same) else { return Ok(None) };
    if let Some(reply) = run.reply_to(results) {
        return Ok(Some(reply));
    }
    // A new run has workers that read the results, or is refused with the reason.
    if let Err(none) = takes_results(run, context.pool(), results) {
        debug!(run = %run.id(), %none, "tool results that no worker of their run reads begin a new run");
        return Ok(None);
    }
    let give = Command::GiveResults { results: results.to_vec() };
    match context.commands().send(run.id(), give).await {
        // The run may have ended instead, because the results came too late or a budget is used up.
        Ok(after) => Ok(after.reply_to(results)),
        Err(CommandError::Refused(refusal)) => {
            debug!(run = %run.id(), %refusal, "tool results begin a new run");
            Ok(None)
        }
        Err(CommandError::UnknownRun | CommandError::Damaged) => Ok(None),
        Err(error) => Err(StoreError::Unavailable(Box::new(error))),
    }
}

/// The plan of a run that continues the loop of `worker`: one step. `None` if the policy does not allow the worker.
pub(super) fn loop_plan(context: &Context, run: &Run, worker: &WorkerId) -> Option<PlanOutcome> {
    let request = &run.spec().request;
    let subtask = whole_question_subtask(&request.conversation.question());
    let plan = PlanDraft::single(worker, subtask).check(context.pool(), &request.policy).ok()?;
    let planned = Planned { plan, reasoning: REASONING.to_owned(), fallback: None };
    Some(PlanOutcome { result: PlanResult::Plan(planned), usage: Usage::NONE, cost: Cost::ZERO })
}
