//! The workers that may replace a step's own worker.

use podium_domain::content::Attachment;
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
    let reads = unread(worker, request).is_none();
    let calls = !uses_tools(request) || worker.takes(Feature::Tools);
    fits(worker, request) && takes_form && ends && reads && calls
}

/// The kind of image or PDF of the request that the worker does not read, if there is one.
fn unread(worker: &Worker, request: &ChatRequest) -> Option<Feature> {
    let attachments = request.messages.iter().flat_map(Message::attachments);
    attachments.map(Attachment::feature).find(|feature| !worker.takes(*feature))
}

/// Whether the worker must be able to call tools, or to read earlier calls.
fn uses_tools(request: &ChatRequest) -> bool {
    request.tools.is_some() || request.messages.iter().any(|message| message.calls().next().is_some())
}

/// Whether the prompt fits the worker's context, by an estimate of its tokens.
fn fits(worker: &Worker, request: &ChatRequest) -> bool {
    prompt_tokens(request) < u64::from(worker.context_tokens)
}

/// Why the step's own worker cannot take the prompt, if it cannot: the outputs that it sees are too long, or a result of its tool
/// calls has an image or a PDF. Its worker was chosen before.
pub(super) fn obstacle(call: &StepCall) -> Option<String> {
    let id = &call.worker.id;
    if !fits(&call.worker, &call.request) {
        let (tokens, tokens_max) = (prompt_tokens(&call.request), call.worker.context_tokens);
        return Some(format!(
            "{CONTEXT_EXCEEDED}: the prompt has about {tokens} tokens, and the context of worker `{id}` has {tokens_max}"
        ));
    }
    let feature = unread(&call.worker, &call.request)?;
    Some(format!("worker `{id}` does not take {}, which the prompt has", feature.as_str()))
}
