//! The call of a step: its worker and its request.

use std::sync::Arc;

use podium_domain::answer::AnswerForm;
use podium_domain::conversation::with_own_ids;
use podium_domain::ids::ClaimId;
use podium_domain::money::Cost;
use podium_domain::pool::{Feature, Worker};
use podium_domain::prices::PriceList;
use podium_domain::prompt;
use podium_domain::run::{Run, StepRef, TaskRef};
use podium_domain::sampling::Sampling;
use podium_domain::time::Timestamp;
use podium_domain::tools::{CallsAtOnce, ToolUse};
use podium_domain::trace::TraceParent;
use podium_ports::limiter::{Outcome, Permit, Settlement};
use podium_ports::run_traces::RunTraces;
use podium_ports::vendor::{ChatRequest, ReasoningText};

use crate::claims::claim::Claimed;
use crate::lanes::slots::Slot;
use crate::token_estimates::prompt_tokens;

/// A step with the worker to call and the request for it.
pub(super) struct StepCall {
    /// The run that the request is built from.
    pub(super) run: Arc<Run>,
    pub(super) step: StepRef,
    pub(super) worker: Worker,
    pub(super) request: ChatRequest,
}

impl StepCall {
    /// The call of `worker` for a step; `None` if an output that the step sees is missing.
    pub(super) fn new(run: &Arc<Run>, step: StepRef, worker: &Worker) -> Option<Self> {
        let request = request(run, step, worker)?;
        Some(Self { run: Arc::clone(run), step, worker: worker.clone(), request })
    }

    /// The call with the span of its attempt, for a worker that continues the trace. Without spans of its own, this process passes the
    /// client's span on.
    pub(super) fn traced(mut self, claim: ClaimId, traces: Option<&dyn RunTraces>) -> Self {
        if self.worker.trace {
            self.request.trace = match traces {
                Some(traces) => Some(TraceParent {
                    trace: self.run.trace_id(),
                    span: claim.into(),
                    is_sampled: traces.is_sampled(&self.run),
                }),
                None => self.run.spec().request.trace,
            };
        }
        self
    }

    pub(super) fn task(&self) -> TaskRef {
        self.step.into()
    }

    /// The most that the call is expected to cost if it begins at `at`: a generous count of its prompt, and every token that it may
    /// write.
    pub(super) fn cost_max(&self, at: Timestamp) -> Cost {
        let prompt_tokens = prompt_tokens(&self.request).saturating_mul(2);
        self.worker.prices.at(at).most_cost(prompt_tokens, self.request.output_tokens_max.into())
    }

    /// The prices of an attempt: those that are valid when it begins.
    pub(super) fn prices(&self, claim: ClaimId) -> &PriceList {
        let attempt = self.run.task(self.task()).and_then(|task| task.attempt(claim));
        attempt.map_or(self.worker.prices.latest(), |attempt| self.worker.prices.at(attempt.started_at))
    }
}

/// A call with its permit.
pub(super) struct Permitted {
    pub(super) call: StepCall,
    pub(super) permit: Box<dyn Permit>,
}

/// A claimed step with a permit for its call, in a slot.
pub(crate) struct Taken {
    pub(super) claimed: Claimed,
    pub(super) step: StepRef,
    pub(super) worker: Worker,
    pub(super) permit: Box<dyn Permit>,
    pub(super) slot: Slot,
}

/// Returns a permit whose call was not made.
pub(super) fn return_permit(permit: Box<dyn Permit>) {
    permit.settle(Settlement::of(Outcome::NotSent));
}

fn request(run: &Run, step: StepRef, worker: &Worker) -> Option<ChatRequest> {
    let asked = &run.spec().request;
    let may_be_answer = run.may_be_answer(step);
    let answer_tokens_max = run.answer_tokens_max_of(step).unwrap_or(u32::MAX);
    let answer = if may_be_answer { asked.answer.clone() } else { AnswerForm::Text };
    let stops = if may_be_answer { asked.stops.as_slice() } else { &[] };
    let messages = with_own_ids(prompt::for_worker(run, step.round, step.step)?, &worker.id);
    let Sampling { temperature, top_p, seed } = asked.sampling.for_step(step).for_worker(worker);
    let tools = run.tools_of(step).map(|tools| tools_for(&tools, worker));
    // The call of a tool is a requirement, the effort is not.
    let may_reason = worker.api.forces_tools_while_reasoning()
        || !tools.as_ref().is_some_and(|tools| tools.choice.is_forced());
    Some(ChatRequest {
        temperature,
        top_p,
        seed,
        stops: stops.to_vec(),
        answer,
        effort: (worker.takes_effort() && may_reason).then_some(asked.policy.effort),
        tools,
        reasoning: if run.shows_reasoning_of(step) { ReasoningText::Shown } else { ReasoningText::Hidden },
        ..ChatRequest::new(messages, worker.output_tokens_max.min(answer_tokens_max))
    })
}

/// The tools as the worker can be asked. Only the first call counts of a worker that cannot be told to make one at a time.
fn tools_for(tools: &ToolUse, worker: &Worker) -> ToolUse {
    let at_once = if worker.takes(Feature::OneToolCall) { tools.at_once } else { CallsAtOnce::Several };
    ToolUse { at_once, ..tools.clone() }
}
