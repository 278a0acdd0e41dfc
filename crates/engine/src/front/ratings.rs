//! What those who asked think of the answers, and what that says about workers.

use std::time::Duration;

use podium_domain::ids::{RunId, StepIndex, TenantId, WorkerId};
use podium_domain::money::Cost;
use podium_domain::policy::Tier;
use podium_domain::rating::Rating;
use podium_domain::run::{AttemptOutcome, Run, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::store::{RatedRun, StoreError};

use crate::engine::Engine;

/// Why a run is not rated.
#[derive(Debug, thiserror::Error)]
pub enum RateError {
    /// The tenant has no such run.
    #[error("there is no such run")]
    UnknownRun,
    /// It goes on: there is nothing to rate yet.
    #[error("the run has not ended")]
    NotEnded,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How one worker did at one question, by the word of the one who asked.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedOutcome {
    /// The run.
    pub run: RunId,
    /// What was asked.
    pub question: String,
    /// Who answered.
    pub worker: WorkerId,
    /// What is thought of it.
    pub rating: Rating,
    /// Since when.
    pub rated_at: Timestamp,
    /// What the run cost.
    pub cost: Cost,
    /// From the run's acceptance to its end.
    pub latency: Duration,
}

/// A part of a list of outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomePage {
    /// The outcomes, by the age of their runs, the oldest first.
    pub outcomes: Vec<RatedOutcome>,
    /// After which run the next part begins; none: this is the last one.
    pub next: Option<RunId>,
}

impl Engine {
    /// Keeps what a tenant thinks of a run of its own that has ended, in place of what it thought before.
    pub async fn rate(&self, tenant: &TenantId, id: RunId, rating: &Rating) -> Result<(), RateError> {
        let run = self.run(id).await?.filter(|run| run.spec().tenant == *tenant);
        if !run.ok_or(RateError::UnknownRun)?.is_ended() {
            return Err(RateError::NotEnded);
        }
        let is_kept = self.parts().store.rate(tenant, id, rating, self.now()).await?;
        // It may have been removed meanwhile.
        if is_kept { Ok(()) } else { Err(RateError::UnknownRun) }
    }

    /// What a tenant's ratings say about single workers: of its rated runs after `after` that were accepted from `from` on and
    /// before `until`, at most `limit`, those in which one worker answered alone.
    pub async fn outcomes(
        &self,
        tenant: &TenantId,
        (from, until): (Timestamp, Timestamp),
        after: Option<RunId>,
        limit: u32,
    ) -> Result<OutcomePage, StoreError> {
        let store = &self.parts().store;
        // No run has the least id that its time could give.
        let after = after.max(Some(RunId::least_at(from)));
        let rated = store.rated(tenant, after, RunId::least_at(until), limit).await?;
        let is_full = rated.len() >= limit as usize;
        let next = rated.last().map(|last| last.run).filter(|_| is_full);
        let ids: Vec<_> = rated.iter().map(|line| line.run).collect();
        let (runs, _damaged) = self.unreadable().load(&ids).await?;
        let of_run = |line: RatedRun| {
            let run = runs.iter().find(|run| run.id() == line.run)?;
            outcome(run, line)
        };
        Ok(OutcomePage { outcomes: rated.into_iter().filter_map(of_run).collect(), next })
    }
}

/// What the rating of a run says about a worker. Nothing where several had a part in the answer, or none gave one.
fn outcome(run: &Run, line: RatedRun) -> Option<RatedOutcome> {
    let spec = run.spec();
    let [round] = run.rounds() else { return None };
    if spec.policy.tier != Tier::Mini || round.steps.len() != 1 {
        return None;
    }
    run.answer()?;
    let step = run.task(TaskRef::Step { round: 0, step: StepIndex::new(0) })?;
    let answered = step.attempts.iter().find(|attempt| attempt.outcome == AttemptOutcome::Accepted)?;
    Some(RatedOutcome {
        run: run.id(),
        question: spec.conversation.question(),
        worker: answered.worker.clone()?,
        rating: line.rating,
        rated_at: line.rated_at,
        cost: run.cost(),
        latency: run.ended_at()?.since(spec.accepted_at),
    })
}
