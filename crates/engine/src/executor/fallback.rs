//! The workers that may replace a step's own worker.

use podium_domain::conversation::Message;
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Feature, Pool, Worker};
use podium_domain::run::CONTEXT_EXCEEDED;
use podium_ports::vendor::ChatRequest;

use super::step_call::StepCall;
use crate::token_estimates::prompt_tokens;

/// The first [candidate](candidates).
pub(super) fn next(pool: &Pool, call: &StepCall) -> Option<WorkerId> {
    candidates(pool, call).next().map(|other| other.id.clone())
}

/// The pool's fallbacks of the worker that the policy allows, that the step has not tried, and that can take the request; the best
/// first.
pub(super) fn candidates<'p>(pool: &'p Pool, call: &'p StepCall) -> impl Iterator<Item = &'p Worker> {
    let tried = call.run.task(call.task());
    let may = move |other: &&Worker| {
        call.run.spec().request.policy.allows(&other.id)
            && tried.is_some_and(|tried| !tried.has_tried(&other.id))
            && can_take(other, &call.request)
    };
    pool.fallbacks_of(&call.worker).into_iter().filter(may)
}

/// Whether the prompt fits the worker's context, and the worker supports its images and PDFs, the response format, the stop
/// sequences and the tools.
pub(super) fn can_take(worker: &Worker, request: &ChatRequest) -> bool {
    let takes_form = request.answer.feature().is_none_or(|feature| worker.takes(feature));
    let ends = request.stops.is_empty() || worker.takes(Feature::Stop);
    let mut attachments = request.messages.iter().flat_map(Message::attachments);
    let reads = attachments.all(|attachment| worker.takes(attachment.feature()));
    let calls = !uses_tools(request) || worker.takes(Feature::Tools);
    fits(worker, request) && takes_form && ends && reads && calls
}

/// Whether the worker must be able to call tools, or to read earlier calls.
fn uses_tools(request: &ChatRequest) -> bool {
    request.tools.is_some() || request.messages.iter().any(|message| message.calls().next().is_some())
}

/// Whether the prompt fits the worker's context, by an estimate of its tokens.
pub(super) fn fits(worker: &Worker, request: &ChatRequest) -> bool {
    prompt_tokens(request) < u64::from(worker.context_tokens)
}

/// The error of a step whose prompt fits none of the workers that it may go to.
pub(super) fn too_long(call: &StepCall) -> String {
    let (id, tokens) = (&call.worker.id, prompt_tokens(&call.request));
    let tokens_max = call.worker.context_tokens;
    format!(
        "{CONTEXT_EXCEEDED}: the prompt has about {tokens} tokens, and the context of worker `{id}` has {tokens_max}; \
         no other worker that the policy allows takes it"
    )
}
