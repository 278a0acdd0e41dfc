//! Hedges: a second call that an attempt makes because the first one is silent.
//!
//! Both calls are one attempt: under one claim, which reserves what both may cost. So nothing has to be committed before the second
//! one, and who dies with both under way loses them as it would lose one. What came of it is said in the commit that ends the
//! attempt.

use serde::{Deserialize, Serialize};

use super::{Attempt, Decision, Run, RunEvent, TaskRef};
use crate::ids::{ClaimId, WorkerId};
use crate::money::Cost;
use crate::usage::Usage;

/// A second call and what came of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hedge {
    /// Whom the second call was of.
    pub worker: WorkerId,
    /// Which of the two began to answer first.
    pub winner: Winner,
    /// What the other one consumed; where neither won, the second: what the first consumed is the attempt's.
    pub usage: Usage,
    /// What that cost.
    pub cost: Cost,
}

/// Which of two calls began to answer first. The other one is broken off: text of two calls is never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Winner {
    /// The first call after all.
    First,
    /// The second.
    Second,
    /// Neither had begun when both were over.
    Neither,
}

impl Hedge {
    /// Whether its call is of this worker and began to answer first: then the attempt went by it.
    pub fn is_answer_of(&self, worker: &WorkerId) -> bool {
        self.winner == Winner::Second && self.worker == *worker
    }
}

impl Attempt {
    /// What it consumed, hedge included.
    pub fn total_usage(&self) -> Usage {
        self.usage + self.hedge.as_ref().map_or(Usage::NONE, |hedge| hedge.usage)
    }

    /// What that cost.
    pub fn total_cost(&self) -> Cost {
        self.cost + self.hedge.as_ref().map_or(Cost::ZERO, |hedge| hedge.cost)
    }

    /// Whose call gave the output, if it gave one: the hedge's where that began to answer first.
    pub fn answered_by(&self) -> Option<&WorkerId> {
        let hedge = self.hedge.as_ref().filter(|hedge| hedge.winner == Winner::Second);
        hedge.map(|hedge| &hedge.worker).or(self.worker.as_ref())
    }
}

impl Run {
    /// Whether an attempt at the task that is claimed now may be hedged: the first one at a step, where the policy has it so.
    pub fn may_hedge(&self, task: TaskRef) -> bool {
        let is_first = self.task(task).is_some_and(|found| found.attempts.is_empty());
        matches!(task, TaskRef::Step { .. }) && is_first && self.spec.policy.may_hedge()
    }

    /// How many attempts were hedged.
    pub fn hedges(&self) -> u32 {
        let hedged = self.attempts().filter(|attempt| attempt.hedge.is_some()).count();
        u32::try_from(hedged).unwrap_or(u32::MAX)
    }
}

/// What a call consumed and cost, with what its hedge did.
pub(super) fn with_hedge((usage, cost): (Usage, Cost), hedge: Option<&Hedge>) -> (Usage, Cost) {
    hedge.map_or((usage, cost), |hedge| (usage + hedge.usage, cost + hedge.cost))
}

impl Decision {
    /// Says beside the end of an attempt how it was hedged. What ends too late is waste as a whole, and not told apart.
    pub(super) fn hedged(mut self, task: TaskRef, attempt: ClaimId, hedge: Option<&Hedge>) -> Self {
        let ends_attempt = match self.events.first() {
            Some(RunEvent::StepDone { claim, .. } | RunEvent::AttemptFailed { claim, .. }) => {
                *claim == attempt
            }
            Some(RunEvent::TaskFailed { claim, .. }) => *claim == Some(attempt),
            _ => false,
        };
        if let (true, TaskRef::Step { round, step }, Some(hedge)) = (ends_attempt, task, hedge) {
            self.events.insert(0, RunEvent::Hedged { round, step, claim: attempt, hedge: hedge.clone() });
        }
        self
    }
}
