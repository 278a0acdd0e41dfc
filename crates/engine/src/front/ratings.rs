//! Tenants' ratings of answers, and the workers' outcomes that follow from them.

use std::ops::Range;
use std::time::Duration;

use podium_domain::ids::{RunId, StepIndex, TenantId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::rating::Rating;
use podium_domain::run::{AttemptOutcome, Run, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::store::{RatedRun, StoreError};

use crate::context::Context;

/// A run was not rated.
#[derive(Debug, thiserror::Error)]
pub enum RateError {
    /// The tenant has no such run.
    #[error("the run does not exist")]
    UnknownRun,
    /// The run has no answer to rate yet.
    #[error("the run has not ended")]
    NotEnded,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rating of one worker's answer to one question.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedOutcome {
    /// The run.
    pub run: RunId,
    /// The question.
    pub question: String,
    /// The worker that answered.
    pub worker: WorkerId,
    /// The tenant's rating.
    pub rating: Rating,
    /// The time of the rating.
    pub rated_at: Timestamp,
    /// The cost of the run.
    pub cost: Cost,
    /// The time from the run's acceptance to its end.
    pub latency: Duration,
}

/// A page of outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomePage {
    /// The outcomes, those of the oldest runs first.
    pub outcomes: Vec<RatedOutcome>,
    /// The run after which the next page begins; `None` on the last page.
    pub next: Option<RunId>,
}

/// Stores a tenant's rating of its own ended run, in place of an earlier one.
pub(crate) async fn rate(
    context: &Context,
    tenant: &TenantId,
    id: RunId,
    rating: &Rating,
) -> Result<(), RateError> {
    let run = context.run_for_client(id).await?.filter(|run| run.spec().tenant == *tenant);
    if !run.ok_or(RateError::UnknownRun)?.is_ended() {
        return Err(RateError::NotEnded);
    }
    let is_kept = context.parts().store.rate(tenant, id, rating, context.now()).await?;
    // The run may have been removed meanwhile.
    if is_kept { Ok(()) } else { Err(RateError::UnknownRun) }
}

/// The outcomes of a tenant's rated runs after `after` that were accepted in a span of time. It reads at most `limit` runs and returns
/// those that one worker answered alone.
pub(crate) async fn outcomes(
    context: &Context,
    tenant: &TenantId,
    accepted: Range<Timestamp>,
    after: Option<RunId>,
    limit: u32,
) -> Result<OutcomePage, StoreError> {
    // No run has the lowest id of a time.
    let after = after.max(Some(RunId::least_at(accepted.start)));
    let rated = context.parts().store.rated(tenant, after, RunId::least_at(accepted.end), limit).await?;
    let is_full = rated.len() >= limit as usize;
    let next = rated.last().map(|last| last.run).filter(|_| is_full);
    let ids: Vec<_> = rated.iter().map(|line| line.run).collect();
    let (runs, _damaged) = context.unreadable().load(&ids).await?;
    let of_run = |line: RatedRun| outcome(runs.iter().find(|run| run.id() == line.run)?, line);
    Ok(OutcomePage { outcomes: rated.into_iter().filter_map(of_run).collect(), next })
}

/// The outcome of a rated run; `None` unless exactly one worker produced the answer.
fn outcome(run: &Run, line: RatedRun) -> Option<RatedOutcome> {
    let spec = run.spec();
    let [round] = run.rounds() else { return None };
    if spec.request.policy.tier != Tier::Mini || round.steps.len() != 1 {
        return None;
    }
    run.answer()?;
    let step = run.task(TaskRef::Step { round: 0, step: StepIndex::new(0) })?;
    let answered = step.attempts.iter().find(|attempt| attempt.outcome == AttemptOutcome::Accepted)?;
    Some(RatedOutcome {
        run: run.id(),
        question: spec.request.conversation.question(),
        worker: answered.worker.clone()?,
        rating: line.rating,
        rated_at: line.rated_at,
        cost: run.cost(),
        latency: run.ended_at()?.since(spec.accepted_at),
    })
}
