//! The commands of a run and their results.

use serde::{Deserialize, Serialize};

use super::{RunEvent, StepRef, TaskRef};
use crate::content::{Reasoning, ToolCall};
use crate::conversation::{CONVERSATION_BYTES_MAX, Message};
use crate::ids::{ClaimId, ProcessId, WorkerId};
use crate::money::Cost;
use crate::plan::{Plan, PlanHead};
use crate::time::Timestamp;
use crate::usage::{Spent, Usage};

/// A request to work on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// A random id; a repeated id means the same claim.
    pub id: ClaimId,
    /// The name of the process that claims.
    pub executor: String,
    /// The process that claims. The claim holds for as long as the lease of this process.
    pub process: ProcessId,
    /// The time at which processes of earlier versions release the claim, because they do not know the leases of processes.
    pub lease_until: Timestamp,
    /// The highest cost of the attempt.
    pub reserve: Cost,
}

/// A plan and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The checked plan.
    pub plan: Plan,
    /// The conductor's text before the lists.
    pub reasoning: String,
    /// The reason for a fallback plan, if the conductor wrote no valid one.
    pub fallback: Option<String>,
}

/// The result of planning.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanResult {
    /// A plan to execute.
    Plan(Planned),
    /// The answer of the previous round stands.
    KeepAnswer,
}

/// A step's result.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// The output; a blank one is refused, unless there are tool calls.
    pub output: String,
    /// The tool calls, by the ids of the worker. Only a step that was offered tools has any.
    pub calls: Vec<ToolCall>,
    /// The sealed reasoning that the worker expects back with the results of its calls.
    pub reasoning: Vec<Reasoning>,
    /// The reasoning before the text and the calls, if the client is shown it.
    pub reasoning_text: String,
    /// The tokens of the attempt and their cost.
    pub spent: Spent,
    /// The reason why the worker stopped.
    pub finish: FinishReason,
    /// The stop sequence of the request that ended the output, if the vendor named it.
    pub stop_sequence: Option<String>,
    /// Milliseconds to the first token.
    pub first_token_ms: Option<u64>,
    /// The usage that the step cache saved, if the output came from it and no worker was called.
    pub saved: Option<Saved>,
}

/// The usage and cost that the step cache saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The tokens of the original call.
    pub usage: Usage,
    /// Their cost by the prices that were valid when the output was reused.
    pub cost: Cost,
}

/// The reason why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The worker finished.
    Stop,
    /// The token limit was reached.
    Length,
    /// The vendor withheld the rest, or the model declined to answer.
    ContentFilter,
    /// The worker waits for the results of its tool calls.
    ToolCalls,
}

/// The failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError {
    /// A message for people.
    pub message: String,
    /// The earliest time of a retry; `None` if a retry cannot help.
    pub retry_at: Option<Timestamp>,
    /// Whether the vendor asked to slow down; such an attempt does not count.
    pub is_rate_limit: bool,
    /// The fallback, in case the worker is not called again.
    pub fall_back_to: Option<WorkerId>,
    /// The tokens that the failed attempt used, and their cost.
    pub spent: Spent,
}

/// A request to change a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Starts work on a task.
    Claim {
        /// The task to work on.
        task: TaskRef,
        /// The claim with its holder and lease.
        claim: Claim,
    },
    /// Begins the first steps of a plan that is still being written: all final ones, including those that began before. Fenced by
    /// the planning claim.
    BeginSteps {
        /// The round.
        round: u16,
        /// The claim on its planning.
        claim: ClaimId,
        /// The steps, checked.
        head: PlanHead,
    },
    /// Records the result of planning. The first result wins, whatever its claim.
    CompletePlan {
        /// The round.
        round: u16,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The plan, or that the answer stands.
        result: PlanResult,
        /// The tokens of planning and their cost.
        spent: Spent,
        /// The highest cost of the plan's steps with one attempt each; zero without budgets.
        reserve: Cost,
    },
    /// Record a step's output. The first result wins, whatever its claim.
    CompleteStep {
        /// The round.
        round: u16,
        /// The step.
        step: crate::ids::StepIndex,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The result.
        result: StepResult,
    },
    /// Continues with another worker without a call of the current one, because that one gets no permits. Only while the step is
    /// ready to be claimed.
    FallBack {
        /// The step.
        step: StepRef,
        /// The current worker.
        from: WorkerId,
        /// The new worker.
        worker: WorkerId,
        /// The reason why `from` is not called.
        message: String,
    },
    /// Records that an attempt failed. Fenced by the claim.
    FailAttempt {
        /// The task.
        task: TaskRef,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The error, with its usage.
        error: AttemptError,
    },
    /// Releases a task at once, for reasons that do not concern the task. Fenced by the claim; the attempt does not count.
    HandBack {
        /// The task.
        task: TaskRef,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The tokens that the attempt used, and their cost.
        spent: Spent,
    },
    /// The lease of this claim expired.
    ExpireLease {
        /// The task.
        task: TaskRef,
        /// The claim whose lease it was.
        claim: ClaimId,
    },
    /// Continues a suspended run.
    GiveResults {
        /// The client's messages after the calls, with one result for each of them, by the ids that clients get.
        results: Vec<Message>,
    },
    /// The deadline, or the end of the suspension, may have passed.
    CheckDeadline,
    /// Ends the run as its deadline, or the end of its suspension, would. For operators; the time does not matter.
    Expire,
    /// Releases the budgets' remaining reservations for lost attempts. Only for an ended run whose calls can no longer be in flight. A
    /// later report is still recorded.
    ReleaseLost,
    /// Cancels the run.
    Cancel,
}

impl Command {
    /// The task and the claim whose attempt this command ends.
    pub const fn claim(&self) -> Option<(TaskRef, ClaimId)> {
        match self {
            Self::CompletePlan { round, claim, .. } => Some((TaskRef::Plan { round: *round }, *claim)),
            Self::CompleteStep { round, step, claim, .. } => {
                Some((TaskRef::Step { round: *round, step: *step }, *claim))
            }
            Self::FailAttempt { task, claim, .. }
            | Self::HandBack { task, claim, .. }
            | Self::ExpireLease { task, claim } => Some((*task, *claim)),
            Self::Claim { .. }
            | Self::BeginSteps { .. }
            | Self::FallBack { .. }
            | Self::GiveResults { .. }
            | Self::CheckDeadline
            | Self::Expire
            | Self::ReleaseLost
            | Self::Cancel => None,
        }
    }
}

/// An action to take after the events are committed. Losing one is harmless, because the sweeper derives it from the state again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Publish the task, which may be claimed from `not_before` on.
    Dispatch {
        /// The task.
        task: TaskRef,
        /// The earliest time to claim it.
        not_before: Timestamp,
    },
    /// The result of the task is not needed: stop the work on it.
    CallOff {
        /// The task.
        task: TaskRef,
    },
    /// The run has ended: stop all work on it.
    Stop,
}

/// The result of a command: the events to commit, then the effects to carry out. Both are empty if the command had already been
/// carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The events to append, in order.
    pub events: Vec<RunEvent>,
    /// The actions after the commit.
    pub effects: Vec<Effect>,
}

/// A command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run has no such task.
    #[error("the run has no such task")]
    UnknownTask,
    /// The task or the run has ended; a message for it can be dropped.
    #[error("the task has ended")]
    Ended,
    /// Another claim holds the task.
    #[error("another claim holds the task")]
    Held,
    /// The task waits for other steps.
    #[error("the task still waits for other steps")]
    Waiting,
    /// The task's earliest time has not come yet.
    #[error("the task may not be claimed yet")]
    NotBefore(Timestamp),
    /// The claim does not hold the task (any more).
    #[error("the claim does not hold the task")]
    ClaimLost,
    /// The step has another worker by now; or the policy, the deadline or earlier attempts forbid the new one.
    #[error("the step may not continue with that worker")]
    NoFallback,
    /// The output is blank and has no tool calls, which is a failed attempt and not a result.
    #[error("the output is blank")]
    BlankOutput,
    /// An earlier attempt at the plan began other steps in this round.
    #[error("the round began with other steps")]
    OtherSteps,
    /// The run has not ended.
    #[error("the run has not ended")]
    Active,
    /// The task waits for the results of its tool calls.
    #[error("the task waits for the results of its tool calls")]
    Calling,
    /// The run waits for no tool results.
    #[error("the run waits for no tool results")]
    NotSuspended,
    /// The results are not exactly those of the pending calls, or the calls already have other results.
    #[error("the results are not those of the pending tool calls")]
    OtherResults,
    /// A step has received too many bytes of results.
    #[error("the tool results of a step hold more than {CONVERSATION_BYTES_MAX} bytes")]
    ResultsTooLong,
    /// There is no earlier answer to keep.
    #[error("there is no earlier answer to keep")]
    NoAnswerToKeep,
}
