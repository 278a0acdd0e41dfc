//! With whom a step goes on when its worker is not asked again, or not at all.

use std::time::Duration;

use podium_domain::ids::{StepIndex, WorkerId};
use podium_domain::policy::FALLBACKS_MAX;
use podium_domain::pool::{Feature, Pool, Worker};
use podium_domain::run::{CONTEXT_EXCEEDED, Command, Run, StepRef, TaskRef};
use podium_ports::limiter::{Patience, Why};
use podium_ports::vendor::ChatRequest;

use super::call::prompt_tokens;
use super::{Cleared, Executor, NoRoom, request};
use crate::lanes::task::Settle;

/// The first of those whom the pool has for `worker` that the policy allows, that the step has not been with, and that can
/// take what is asked.
pub(super) fn next(
    pool: &Pool,
    run: &Run,
    task: TaskRef,
    asked: (&Worker, &ChatRequest),
) -> Option<WorkerId> {
    candidates(pool, run, task, asked).next().map(|other| other.id.clone())
}

/// All of them, the best first.
pub(super) fn candidates<'p>(
    pool: &'p Pool,
    run: &'p Run,
    task: TaskRef,
    (worker, request): (&Worker, &'p ChatRequest),
) -> impl Iterator<Item = &'p Worker> {
    let tried = run.task(task);
    let may = move |other: &&Worker| {
        run.spec().policy.allows(other)
            && tried.is_some_and(|tried| !tried.has_tried(&other.id))
            && can_take(other, request)
    };
    pool.fallbacks_of(worker).into_iter().filter(may)
}

/// Whether the prompt is something that the worker can read, and fits, and it can answer in the form and end where it is asked to.
pub(super) fn can_take(worker: &Worker, request: &ChatRequest) -> bool {
    let has_image = request.messages.iter().any(|message| message.image_count() > 0);
    let takes_form = request.answer.feature().is_none_or(|feature| worker.takes(feature));
    let ends = request.stops.is_empty() || worker.takes(Feature::Stop);
    fits(worker, request) && takes_form && ends && (!has_image || worker.takes(Feature::Image))
}

/// Whether the prompt fits the worker's context, as far as bytes tell.
pub(super) fn fits(worker: &Worker, request: &ChatRequest) -> bool {
    prompt_tokens(request) < u64::from(worker.context_tokens)
}

/// What a step says whose prompt fits none of the workers that it may go to.
pub(super) fn too_long(worker: &Worker, request: &ChatRequest) -> String {
    let (id, tokens, tokens_max) = (&worker.id, prompt_tokens(request), worker.context_tokens);
    format!(
        "{CONTEXT_EXCEEDED}: the prompt has about {tokens} tokens, and the context of worker `{id}` has {tokens_max}; \
         no other worker that the policy allows takes it"
    )
}

impl Executor {
    /// Asks for a permit of a fallback of a worker that is [shut](Executor::is_shut). If none has capacity now, the step stays with
    /// its worker and all are asked again as soon as the first of them may have some: nothing was committed, and the step keeps
    /// its place until the deadline.
    ///
    /// The step keeps a place at the first fallback only, and only once all others have refused it: calls of others would leave
    /// capacity for it wherever it keeps a place, also after it was let through elsewhere.
    ///
    /// The step changes over only to a worker that grants a permit: to go from one open breaker to another helps nobody. If the
    /// limiter itself is unreachable, no worker is better off than another.
    pub(super) async fn go_round(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        (worker, asked): (&Worker, &ChatRequest),
        shut: Shut,
    ) -> Result<Cleared, Settle> {
        let (task, now) = (TaskRef::Step { round: at.0, step: at.1 }, self.engine.now());
        let mut soonest = shut.after;
        if !run.can_fall_back(task) {
            return Err(Settle::Nak(soonest));
        }
        let others = candidates(self.engine.pool(), run, task, (worker, asked));
        let others: Vec<_> =
            others.filter(|other| other.prices.is_valid_at(now)).take(FALLBACKS_MAX).collect();
        let in_passing = others.iter().filter(|_| others.len() > 1).map(|other| (*other, Patience::Leaves));
        for (other, patience) in in_passing.chain(others.first().map(|first| (*first, Patience::Waits))) {
            let Some(request) = request(run, at, other) else { continue };
            match self.permit(run, at, (other, &request), patience).await {
                Ok(permit) => {
                    let first = Some(Command::FallBack {
                        step: StepRef { round: at.0, step: at.1 },
                        from: worker.id.clone(),
                        worker: other.id.clone(),
                        message: shut.message.clone(),
                    });
                    return Ok(Cleared { first, ..self.cleared(run, at, (other, &request), permit) });
                }
                Err(NoRoom { why: Some(Why::Away) | None, after }) => return Err(Settle::Nak(after)),
                Err(NoRoom { after, .. }) => soonest = soonest.min(after),
            }
        }
        Err(Settle::Nak(soonest))
    }
}

/// Why a step does not wait for its worker.
pub(super) struct Shut {
    /// For people.
    message: String,
    /// When to ask all of them again, if no other worker has capacity sooner.
    after: Duration,
}

impl Shut {
    /// The limiter lets nobody through to the worker.
    pub(super) fn by_limiter(worker: &Worker, why: Why, after: Duration) -> Self {
        let id = &worker.id;
        let message = match why {
            Why::Blocked => {
                format!("the vendor of worker `{id}` asked to be left alone beyond the deadline of the run")
            }
            _ => format!("the circuit breaker of worker `{id}` is open"),
        };
        Self { message, after }
    }

    /// The prompt does not fit the worker.
    pub(super) fn by_context(worker: &Worker, request: &ChatRequest, after: Duration) -> Self {
        Self { message: too_long(worker, request), after }
    }
}
