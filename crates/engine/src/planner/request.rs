//! Requests to conductors, and the amounts that plans reserve of the budgets.

use podium_domain::conversation::Conversation;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::money::Cost;
use podium_domain::policy::Policy;
use podium_domain::prompt::{self, Earlier};
use podium_domain::run::{PlanResult, Run, Task, TaskRef};
use podium_domain::time::Timestamp;
use podium_domain::tools::ToolUse;
use podium_ports::conductor::{Asker, Conductor, PlanRequest};

use crate::context::Context;
use crate::cost_bounds::Question;

/// The request for the first round of a question that is not a run yet.
pub(crate) fn first_request(context: &Context, conversation: &Conversation, policy: Policy) -> PlanRequest {
    let id = context.parts().ids.claim_id();
    PlanRequest {
        asker: Asker::nobody(RunId::new(*id.as_uuid())),
        question: conversation.question(),
        policy,
        earlier: None,
        seed: seed(id),
        asked_at: context.now(),
        time_max: context.options().plan_time_max,
    }
}

/// The longest request for a follow-up round: it shows as much of the round before as it may.
pub(crate) fn follow_up_request(
    context: &Context,
    conversation: &Conversation,
    policy: Policy,
) -> PlanRequest {
    let text = "x".repeat(prompt::EARLIER_BYTES_MAX);
    let earlier = Some(Earlier { text, gave_answer: true });
    PlanRequest { earlier, ..first_request(context, conversation, policy) }
}

/// The request for a round of a run. A first round needs no `conductor`.
pub(crate) fn plan_request(
    context: &Context,
    run: &Run,
    task: TaskRef,
    claim: ClaimId,
    conductor: Option<&dyn Conductor>,
) -> PlanRequest {
    let (spec, round) = (run.spec(), task.round());
    // A conductor that cannot judge an earlier round plans again, without the workers that failed.
    let plans_again = run.is_corrective(round) && conductor.is_some_and(|c| c.abilities().rounds_max == 1);
    let pool = conductor.and_then(|conductor| conductor.pool_in_text());
    let earlier = if plans_again { None } else { Earlier::before(run, round, pool) };
    let policy = if plans_again {
        let all = context.pool().workers().iter().map(|worker| &worker.id);
        spec.request.policy.without(&run.workers_without_output(round - 1), all)
    } else {
        spec.request.policy.clone()
    };
    PlanRequest {
        asker: Asker { tenant: spec.tenant.clone(), run: run.id(), round },
        question: spec.request.conversation.question(),
        policy,
        earlier,
        seed: spec.request.sampling.seed.map_or_else(|| seed(claim), |chosen| seed_of(run, task, chosen)),
        asked_at: context.now(),
        time_max: plan_until(context, run, task).since(context.now()),
    }
}

/// The time limit of a plan. All attempts together take at most `plan_time_max`, and at most half of the time that the run had left
/// when the first of them began: the other half is for the steps, or for the one worker that gets the question.
pub(super) fn plan_until(context: &Context, run: &Run, task: TaskRef) -> Timestamp {
    let first = run.task(task).and_then(|task| task.attempts.first());
    let began = first.map_or_else(|| context.now(), |attempt| attempt.started_at);
    began.after(context.options().plan_time_max.min(run.deadline_at().since(began) / 2))
}

/// The most that a plan reserves of the budgets of its run: for its steps, and for planning the round after it.
pub(crate) fn reserve_for(context: &Context, run: &Run, result: &PlanResult) -> Cost {
    let (spec, parts) = (run.spec(), context.parts());
    let request = &spec.request;
    let PlanResult::Plan(planned) = result else { return Cost::ZERO };
    if spec.budgets.is_empty() {
        return Cost::ZERO;
    }
    let question = Question {
        conversation: &request.conversation,
        policy: &request.policy,
        answer_tokens_max: request.answer_tokens_max,
        tools_bytes: request.tools.as_ref().map_or(0, ToolUse::bytes),
        at: context.now(),
    };
    let steps = question.plan_max(&parts.pool, &planned.plan);
    if run.current_round() + 1 >= request.policy.rounds_max {
        return steps;
    }
    // A conductor that this process does not know adds no cost: the round will be abandoned.
    let next = parts.conductor(&spec.conductor).map_or(Cost::ZERO, |conductor| {
        conductor.plan_cost_max(&follow_up_request(context, &request.conversation, request.policy.clone()))
    });
    steps + next
}

/// A seed from a random id.
fn seed(claim: ClaimId) -> u64 {
    claim.as_uuid().as_u64_pair().1
}

/// The seed of an attempt at a plan if the client chose one. It is the same for the same attempt at the same question, and different
/// for the next attempt.
fn seed_of(run: &Run, task: TaskRef, chosen: u32) -> u64 {
    let attempt = run.task(task).map_or(0, Task::attempt_number);
    u64::from(chosen) | (u64::from(task.round()) << 32) | (u64::from(attempt) << 48)
}
