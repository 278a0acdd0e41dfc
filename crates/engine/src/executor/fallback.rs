//! With whom a step goes on when its worker is not asked again.

use podium_domain::content::Part;
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Feature, Pool, Worker};
use podium_domain::run::{Run, TaskRef};
use podium_ports::vendor::ChatRequest;

use super::call::prompt_tokens;

/// The first of those whom the pool has for `worker` that the policy allows, that the step has not been with, and that can
/// take what is asked.
pub(super) fn next(
    pool: &Pool,
    run: &Run,
    task: TaskRef,
    (worker, request): (&Worker, &ChatRequest),
) -> Option<WorkerId> {
    let tried = run.task(task)?;
    let may = |other: &&Worker| {
        run.spec().policy.allows(other) && !tried.has_tried(&other.id) && can_take(other, request)
    };
    pool.fallbacks_of(worker).into_iter().find(may).map(|other| other.id.clone())
}

/// Whether the prompt is something that the worker can read, and fits.
fn can_take(worker: &Worker, request: &ChatRequest) -> bool {
    let has_image =
        request.messages.iter().any(|m| m.parts.iter().any(|part| matches!(part, Part::Image(_))));
    let fits = prompt_tokens(request) < u64::from(worker.context_tokens);
    fits && (!has_image || worker.takes(Feature::Image))
}
