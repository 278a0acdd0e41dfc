//! The states of one task: the planning of a round, or a step.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, ProcessId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::run::Saved;
use crate::time::Timestamp;
use crate::usage::Usage;

/// Identifies a task of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskRef {
    /// Planning a round.
    Plan {
        /// The round, from 0.
        round: u16,
    },
    /// A step of a round's plan.
    Step {
        /// The round, from 0.
        round: u16,
        /// The step.
        step: StepIndex,
    },
}

/// Identifies a step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRef {
    /// The round, from 0.
    pub round: u16,
    /// The step.
    pub step: StepIndex,
}

impl From<StepRef> for TaskRef {
    fn from(StepRef { round, step }: StepRef) -> Self {
        Self::Step { round, step }
    }
}

impl TaskRef {
    /// The step, unless the task is the planning of a round.
    pub const fn step(self) -> Option<StepRef> {
        match self {
            Self::Plan { .. } => None,
            Self::Step { round, step } => Some(StepRef { round, step }),
        }
    }

    /// The round that the task belongs to.
    pub const fn round(self) -> u16 {
        match self {
            Self::Plan { round } | Self::Step { round, .. } => round,
        }
    }
}

/// `plan 0` or `step 0.2`, with indices from 0; stores and queues use it as a key.
impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan { round } => write!(f, "plan.{round}"),
            Self::Step { round, step } => write!(f, "step.{round}.{}", step.get()),
        }
    }
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// An output that it needs is missing.
    Waiting,
    /// It may be claimed from `not_before` on. The sweeper publishes it again if it is overdue.
    Ready {
        /// The earliest time to claim it.
        not_before: Timestamp,
    },
    /// An executor or planner works on it.
    Running {
        /// The claim of the holder.
        claim: ClaimId,
        /// The process whose lease the claim depends on; `None` if a process of an earlier version made the claim.
        process: Option<ProcessId>,
        /// The end of the claim's own lease, unless extended. It counts for processes of earlier versions, and without `process`.
        lease_until: Timestamp,
    },
    /// Its worker has called tools, and the client has not sent the results.
    Calling,
    /// It has its result.
    Done,
    /// It has the output of an earlier step: its condition held, and no worker was called.
    Skipped,
    /// It has failed for good.
    Failed,
    /// The run ended or continued without it.
    Cancelled,
}

impl TaskState {
    /// The name for stores and people.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready { .. } => "ready",
            Self::Running { .. } => "running",
            Self::Calling => "calling",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the state never changes again.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Skipped | Self::Failed | Self::Cancelled)
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptOutcome {
    /// It has not ended, as far as is known.
    Running,
    /// Its result became the task's.
    Accepted,
    /// It failed, with this message.
    Failed(String),
    /// Its holder released the task for reasons that do not concern it; the attempt does not count.
    HandedBack,
    /// Its lease expired, or the run ended first.
    Lost,
    /// Its result came after another's, or after the end of the run: paid for and unused. Without usage and cost, its executor made
    /// no call, or never reported and its reservation was released.
    Unused,
}

/// One try at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its claim.
    pub claim: ClaimId,
    /// The process that made it.
    pub executor: String,
    /// The worker that it called; `None` for planning.
    pub worker: Option<WorkerId>,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was recorded.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The tokens that it used.
    pub usage: Usage,
    /// Their cost.
    pub cost: Cost,
    /// Its highest expected cost.
    pub reserved: Cost,
    /// Milliseconds to the first token, if one arrived.
    pub first_token_ms: Option<u64>,
    /// The usage that the step cache saved, if no worker was called.
    pub saved: Option<Saved>,
}

impl Attempt {
    /// An attempt that begins.
    pub(super) fn new(
        claim: ClaimId,
        executor: &str,
        worker: Option<&WorkerId>,
        reserved: Cost,
        started_at: Timestamp,
    ) -> Self {
        Self {
            claim,
            executor: executor.to_owned(),
            worker: worker.cloned(),
            started_at,
            ended_at: None,
            outcome: AttemptOutcome::Running,
            usage: Usage::default(),
            cost: Cost::ZERO,
            reserved,
            first_token_ms: None,
            saved: None,
        }
    }
}

/// A task and every attempt at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its state.
    pub state: TaskState,
    /// All attempts, in the order of the claims. The policy bounds those that count: see [`Self::attempts_with`].
    pub attempts: Vec<Attempt>,
    /// The number of leading attempts that were made before the run's last tool results came. They belong to earlier turns.
    #[serde(default)]
    pub earlier: usize,
}

impl Task {
    pub(super) fn waiting() -> Self {
        Self { state: TaskState::Waiting, attempts: Vec::new(), earlier: 0 }
    }

    pub(super) fn ready(not_before: Timestamp) -> Self {
        Self { state: TaskState::Ready { not_before }, attempts: Vec::new(), earlier: 0 }
    }

    /// Whether `claim` holds the task now.
    pub fn is_held_by(&self, claim: ClaimId) -> bool {
        matches!(self.state, TaskState::Running { claim: holder, .. } if holder == claim)
    }

    /// The attempt with the claim `claim`.
    pub fn attempt(&self, claim: ClaimId) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.claim == claim)
    }

    /// The attempts since the run's last tool results came.
    pub fn latest_attempts(&self) -> &[Attempt] {
        self.attempts.get(self.earlier..).unwrap_or_default()
    }

    /// Whether the attempt was made before the run's last tool results came.
    pub(super) fn is_earlier(&self, claim: ClaimId) -> bool {
        self.attempts.iter().take(self.earlier).any(|attempt| attempt.claim == claim)
    }

    /// The number of attempts at the current turn with this worker, or at planning. Those that were handed back do not count.
    pub fn attempts_with(&self, worker: Option<&WorkerId>) -> u32 {
        let counts = |attempt: &&Attempt| {
            attempt.worker.as_ref() == worker && attempt.outcome != AttemptOutcome::HandedBack
        };
        u32::try_from(self.latest_attempts().iter().filter(counts).count()).unwrap_or(u32::MAX)
    }

    /// Whether this worker has been tried.
    pub fn has_tried(&self, worker: &WorkerId) -> bool {
        self.attempts.iter().any(|attempt| attempt.worker.as_ref() == Some(worker))
    }

    /// The number of the last attempt, from 1; 0 before the first.
    pub fn attempt_number(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }
}
