//! The life of one task: the planning of a round, or a step.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::run::Saved;
use crate::time::Timestamp;
use crate::usage::Usage;

/// Which task of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskRef {
    /// Writing the plan of a round.
    Plan {
        /// Which round, from 0.
        round: u16,
    },
    /// A step of a round's plan.
    Step {
        /// Which round, from 0.
        round: u16,
        /// Which step.
        step: StepIndex,
    },
}

impl TaskRef {
    /// The round that the task belongs to.
    pub const fn round(self) -> u16 {
        match self {
            Self::Plan { round } | Self::Step { round, .. } => round,
        }
    }
}

/// `plan 0` or `step 0.2`: stores and queues use it as a key, indices from 0.
impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan { round } => write!(f, "plan.{round}"),
            Self::Step { round, step } => write!(f, "step.{round}.{}", step.get()),
        }
    }
}

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// Something that it sees is not done yet.
    Waiting,
    /// May be claimed from `not_before` on. This is the message-to-be: whoever finds it overdue publishes it again.
    Ready {
        /// Earliest time to claim it.
        not_before: Timestamp,
    },
    /// Somebody works on it.
    Running {
        /// Under this claim.
        claim: ClaimId,
        /// Until then, unless the lease is extended.
        lease_until: Timestamp,
    },
    /// It has its result.
    Done,
    /// It finally has none.
    Failed,
    /// The run ended without it, or goes on without it.
    Cancelled,
}

impl TaskState {
    /// The name that stores and people use.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready { .. } => "ready",
            Self::Running { .. } => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more can happen to it.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptOutcome {
    /// It has not, as far as is known.
    Running,
    /// Its result became the task's.
    Accepted,
    /// It failed, with this message.
    Failed(String),
    /// Its holder gave the task back through no fault of the task's: it does not count.
    HandedBack,
    /// Its lease ran out or the run ended before it.
    Lost,
    /// Its result came after another's, or after the end of the run: paid for and unused. Without usage and cost, its executor called
    /// nobody, or has never reported and its reservation was released.
    Unused,
}

/// One try at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The claim that it was made under.
    pub claim: ClaimId,
    /// Which executor made it.
    pub executor: String,
    /// Whom it called; none for planning.
    pub worker: Option<WorkerId>,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was recorded.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What it consumed.
    pub usage: Usage,
    /// What that cost.
    pub cost: Cost,
    /// The most that it was expected to cost.
    pub reserved: Cost,
    /// Milliseconds to the first token, if one came.
    pub first_token_ms: Option<u64>,
    /// What a call would have taken, where nobody was called because the output was known.
    pub saved: Option<Saved>,
}

/// A task and every attempt at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Where it stands.
    pub state: TaskState,
    /// Every attempt, in the order of the claims. The policy bounds how many count: see [`Self::attempts_with`].
    pub attempts: Vec<Attempt>,
}

impl Task {
    pub(super) fn waiting() -> Self {
        Self { state: TaskState::Waiting, attempts: Vec::new() }
    }

    pub(super) fn ready(not_before: Timestamp) -> Self {
        Self { state: TaskState::Ready { not_before }, attempts: Vec::new() }
    }

    /// Whether `claim` holds the task now.
    pub fn is_held_by(&self, claim: ClaimId) -> bool {
        matches!(self.state, TaskState::Running { claim: holder, .. } if holder == claim)
    }

    /// The attempt that was made under `claim`.
    pub fn attempt(&self, claim: ClaimId) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.claim == claim)
    }

    /// How many attempts were made with this worker, or at planning. What was handed back does not count.
    pub fn attempts_with(&self, worker: Option<&WorkerId>) -> u32 {
        let counts = |attempt: &&Attempt| {
            attempt.worker.as_ref() == worker && attempt.outcome != AttemptOutcome::HandedBack
        };
        u32::try_from(self.attempts.iter().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// Whether an attempt was made with this worker.
    pub fn has_tried(&self, worker: &WorkerId) -> bool {
        self.attempts.iter().any(|attempt| attempt.worker.as_ref() == Some(worker))
    }

    /// The number of the last attempt, from 1; 0 before the first.
    pub fn attempt_number(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }
}
