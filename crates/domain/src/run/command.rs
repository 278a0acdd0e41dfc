//! What may be asked of a run, and what comes of asking.

use serde::{Deserialize, Serialize};

use super::{RunEvent, TaskRef};
use crate::ids::{ClaimId, WorkerId};
use crate::money::Cost;
use crate::plan::{Plan, PlanHead};
use crate::time::Timestamp;
use crate::usage::Usage;

/// A wish to work on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Random; repeating a claim with the same id is the same claim.
    pub id: ClaimId,
    /// Who claims.
    pub executor: String,
    /// Until when, unless extended.
    pub lease_until: Timestamp,
    /// The most that the attempt may cost.
    pub reserve: Cost,
}

/// A plan and how it came about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The checked plan.
    pub plan: Plan,
    /// What the conductor wrote before the lists.
    pub reasoning: String,
    /// Why the plan is a substitute, when the conductor gave none that checks.
    pub fallback: Option<String>,
}

/// What planning came to.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanResult {
    /// A plan to run.
    Plan(Planned),
    /// The previous round's answer is good as it is.
    KeepAnswer,
}

/// A step's result.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// The output; blank ones are refused.
    pub output: String,
    /// What the attempt consumed.
    pub usage: Usage,
    /// What that cost.
    pub cost: Cost,
    /// Why the worker stopped.
    pub finish: FinishReason,
    /// Milliseconds to the first token.
    pub first_token_ms: Option<u64>,
    /// What a call would have taken, where the output came from the step cache and nobody was called.
    pub saved: Option<Saved>,
}

/// What was not spent because an output was known already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// What the call consumed that the output is of.
    pub usage: Usage,
    /// What that costs, by the prices that were valid when the output was used again.
    pub cost: Cost,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The worker was done.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The vendor withheld the rest, or the model declined.
    ContentFilter,
    /// The worker waits for the tools that it called.
    ToolCalls,
}

/// How an attempt went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError {
    /// What went wrong, for people.
    pub message: String,
    /// Earliest time to try again; none when trying again cannot help.
    pub retry_at: Option<Timestamp>,
    /// Whether the vendor asked to slow down: then it does not count as an attempt.
    pub is_rate_limit: bool,
    /// Who could do the step instead, should its worker not be asked again.
    pub fall_back_to: Option<WorkerId>,
    /// What the attempt consumed all the same.
    pub usage: Usage,
    /// What that cost.
    pub cost: Cost,
}

/// Something that is asked of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Work on a task.
    Claim {
        /// Which task.
        task: TaskRef,
        /// By whom, and for how long.
        claim: Claim,
    },
    /// Begin the first steps of a plan that is still being written: all of those that are final, those that were begun before
    /// included. Fenced: only who plans knows.
    BeginSteps {
        /// Of which round.
        round: u16,
        /// Under which claim it is being planned.
        claim: ClaimId,
        /// The steps.
        head: PlanHead,
    },
    /// Record what planning came to. The first result wins, whatever its claim.
    CompletePlan {
        /// Of which round.
        round: u16,
        /// Under which claim it was made.
        claim: ClaimId,
        /// What it came to.
        result: PlanResult,
        /// What planning consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
        /// The most that the plan's steps cost if each needs one attempt; nothing where no budget asks.
        reserve: Cost,
    },
    /// Record a step's output. The first result wins, whatever its claim.
    CompleteStep {
        /// Of which round.
        round: u16,
        /// Which step.
        step: crate::ids::StepIndex,
        /// Under which claim it was made.
        claim: ClaimId,
        /// The result.
        result: StepResult,
    },
    /// Go on with another worker although the one before was not asked: nobody is let through to it. Only while the step is ready
    /// to be claimed.
    FallBack {
        /// Of which round.
        round: u16,
        /// Which step.
        step: crate::ids::StepIndex,
        /// Who has it until now.
        from: WorkerId,
        /// Who is to do it.
        worker: WorkerId,
        /// Why `from` is not asked.
        message: String,
    },
    /// Record that an attempt failed. Fenced: only the holder's word counts.
    FailAttempt {
        /// At which task.
        task: TaskRef,
        /// Under which claim.
        claim: ClaimId,
        /// How.
        error: AttemptError,
    },
    /// The holder has to stop through no fault of the task, and gives it back at once. Fenced, and no attempt that counts.
    HandBack {
        /// Which task.
        task: TaskRef,
        /// Under which claim.
        claim: ClaimId,
        /// What the attempt consumed all the same.
        usage: Usage,
        /// What that cost.
        cost: Cost,
    },
    /// The lease of this claim ran out.
    ExpireLease {
        /// On which task.
        task: TaskRef,
        /// Whose claim.
        claim: ClaimId,
    },
    /// The deadline may have passed.
    CheckDeadline,
    /// Release what the run's budgets still reserve for lost attempts. For an ended run, once none of its calls can be under way any
    /// more. A report that comes later is recorded all the same.
    ReleaseLost,
    /// Take the run back.
    Cancel,
}

/// Something to do once the events are committed. Losing one is harmless: the sweeper finds the same from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Publish the task, which may be claimed from `not_before` on.
    Dispatch {
        /// Which task.
        task: TaskRef,
        /// Earliest time to claim it.
        not_before: Timestamp,
    },
    /// The task is not wanted any more: stop what still works on it.
    CallOff {
        /// Which task.
        task: TaskRef,
    },
    /// The run has ended: stop what still works on it.
    Stop,
}

/// What comes of a command: the events to commit, then the effects to carry out. Both are empty when the command had been
/// carried out before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// To be appended, in order.
    pub events: Vec<RunEvent>,
    /// To be done after the commit.
    pub effects: Vec<Effect>,
}

/// Why a command does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run has no such task.
    #[error("the run has no such task")]
    UnknownTask,
    /// The task or the run has ended: whoever holds a message for it can drop it.
    #[error("the task has ended")]
    Ended,
    /// Somebody else holds the task.
    #[error("somebody else holds the task")]
    Held,
    /// The task still waits for others.
    #[error("the task still waits for others")]
    Waiting,
    /// The task may not be claimed before this time.
    #[error("the task may be claimed later")]
    NotBefore(Timestamp),
    /// The claim does not hold the task, or no longer.
    #[error("the claim does not hold the task")]
    ClaimLost,
    /// The step has another worker by now, or the policy, the deadline or what was tried before does not let it go on with that
    /// one.
    #[error("the step may not go on with that worker")]
    NoFallback,
    /// The output is blank: that is a failed attempt, not a result.
    #[error("the output is blank")]
    BlankOutput,
    /// The round was begun with other steps, by an earlier attempt at its plan.
    #[error("the round was begun with other steps")]
    OtherSteps,
    /// The run has not ended.
    #[error("the run has not ended")]
    Active,
    /// There is no earlier answer to keep.
    #[error("there is no earlier answer to keep")]
    NoAnswerToKeep,
}
