//! What can have happened to a run. These are stored: a change here must still read what older versions wrote.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FinishReason, Planned, RunSpec, Saved, TaskRef};
use crate::budget::Shortage;
use crate::ids::{ClaimId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::plan::PlanHead;
use crate::time::Timestamp;
use crate::usage::Usage;

/// An event with its place in the run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequencedEvent {
    /// From 1, without gaps.
    pub sequence: u64,
    /// When it was decided.
    pub at: Timestamp,
    /// What happened.
    pub event: RunEvent,
}

/// Why a run ended without an answer, or a further round of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailReason {
    /// No attempt at planning gave a plan.
    #[error("no plan could be made: {message}")]
    PlanningFailed {
        /// What the last attempt said.
        message: String,
    },
    /// A step failed for good, and the round can give no answer without it.
    #[error("{}", step_failure(*step, worker.as_ref(), message, *is_earlier))]
    FinalStepFailed {
        /// Which step.
        step: StepIndex,
        /// The worker that was asked last; none in runs that were stored before it was recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<WorkerId>,
        /// What its last attempt said.
        message: String,
        /// Whether it is not the final step itself, but one that the final step needs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_earlier: bool,
    },
    /// The deadline passed.
    #[error("the run did not finish within its deadline of {deadline_ms} ms")]
    DeadlineExceeded {
        /// The deadline, from acceptance.
        deadline_ms: u64,
    },
    /// The next attempt could have exceeded the cost cap.
    #[error("the run reached its cost cap of {cost_max} with {spent} spent")]
    CostCapReached {
        /// The cap.
        cost_max: Cost,
        /// What was spent by then.
        spent: Cost,
    },
    /// A budget had no room for the plan, or for the next attempt.
    #[error("{shortage}")]
    BudgetExhausted {
        /// Which one, and what is missing.
        shortage: Shortage,
    },
}

/// What the message of a step begins with that failed because its worker's vendor kept asking to slow down.
pub const RATE_LIMITED: &str = "worker_rate_limited";
/// What the message of a step begins with whose prompt fits no worker.
pub const CONTEXT_EXCEEDED: &str = "context_length_exceeded";

impl FailReason {
    /// The stable name of what made the last step fail, where it has one: [`RATE_LIMITED`] or [`CONTEXT_EXCEEDED`].
    pub fn cause(&self) -> Option<&'static str> {
        let Self::FinalStepFailed { message, .. } = self else { return None };
        [RATE_LIMITED, CONTEXT_EXCEEDED]
            .into_iter()
            .find(|cause| message.strip_prefix(cause).is_some_and(|rest| rest.starts_with(':')))
    }

    /// A stable name for clients and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::PlanningFailed { .. } => "planning_failed",
            Self::FinalStepFailed { is_earlier: true, .. } => "step_failed",
            Self::FinalStepFailed { .. } => "final_step_failed",
            Self::DeadlineExceeded { .. } => "deadline_exceeded",
            Self::CostCapReached { .. } => "cost_cap_reached",
            Self::BudgetExhausted { .. } => "insufficient_quota",
        }
    }
}

fn step_failure(step: StepIndex, worker: Option<&WorkerId>, message: &str, is_earlier: bool) -> String {
    let worker = worker.map(|worker| format!(" (worker `{worker}`)")).unwrap_or_default();
    if is_earlier {
        format!("step {step}{worker} failed, and the answer needs it: {message}")
    } else {
        format!("the final step {step} failed: {message}")
    }
}

/// A second call of an attempt, as earlier versions stored it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherCall {
    /// The worker of the second call.
    pub worker: WorkerId,
    /// The call that began to answer first: `first`, `second` or `neither`.
    pub winner: String,
    /// The consumption of the call that was broken off.
    pub usage: Usage,
    /// The cost of that call.
    pub cost: Cost,
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run began; its first round is ready to be planned.
    Accepted {
        /// What was asked.
        spec: Arc<RunSpec>,
    },
    /// A task was claimed. Written before any call is made: the intent to pay.
    Claimed {
        /// Which task.
        task: TaskRef,
        /// Under which claim.
        claim: ClaimId,
        /// By whom.
        executor: String,
        /// The worker that will be called; none for planning.
        worker: Option<WorkerId>,
        /// Until when, unless extended.
        lease_until: Timestamp,
        /// The most that the attempt is expected to cost.
        reserved: Cost,
    },
    /// The first steps of a plan are final while the rest is being written: they exist from now on. Those of an earlier such event
    /// come first among them.
    StepsPlanned {
        /// Of which round.
        round: u16,
        /// Under which claim.
        claim: ClaimId,
        /// The steps.
        head: PlanHead,
    },
    /// The plan that was written in the end has no use for the first steps, which were begun before. What of them has not ended
    /// is cancelled.
    StepsSuperseded {
        /// Of which round.
        round: u16,
        /// How many.
        steps: u16,
    },
    /// The conductor wrote a plan; its steps exist. It begins with those that were begun before.
    PlanReady {
        /// Of which round.
        round: u16,
        /// Under which claim.
        claim: ClaimId,
        /// The plan and how it came about.
        planned: Arc<Planned>,
        /// What planning consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
        /// The most that the plan's steps cost if each needs one attempt; nothing where no budget asks.
        #[serde(default, skip_serializing_if = "Cost::is_zero")]
        reserved: Cost,
    },
    /// The conductor kept the previous round's answer.
    AnswerKept {
        /// The round that planned nothing.
        round: u16,
        /// Under which claim.
        claim: ClaimId,
        /// What planning consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
    },
    /// All that a step sees is there: it may be claimed.
    StepReady {
        /// Of which round.
        round: u16,
        /// Which step.
        step: StepIndex,
    },
    /// A step has its output: the first finished, paid result, whatever its claim.
    StepDone {
        /// Of which round.
        round: u16,
        /// Which step.
        step: StepIndex,
        /// The claim whose result it is.
        claim: ClaimId,
        /// The output.
        output: String,
        /// What the attempt consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
        /// Why the worker stopped.
        finish: FinishReason,
        /// Milliseconds to the first token.
        first_token_ms: Option<u64>,
        /// What a call would have taken, where the output came from the step cache.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saved: Option<Saved>,
    },
    /// An attempt failed and there will be another one.
    AttemptFailed {
        /// At which task.
        task: TaskRef,
        /// Under which claim.
        claim: ClaimId,
        /// What went wrong.
        message: String,
        /// Earliest time of the next attempt.
        retry_at: Timestamp,
        /// What the attempt consumed all the same.
        usage: Usage,
        /// What that cost.
        cost: Cost,
        /// Whether it was given back through no fault of the task, and does not count.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        handed_back: bool,
    },
    /// A step's worker is not asked again: the step goes on with another one, whose attempts count from the beginning.
    FellBack {
        /// Of which round.
        round: u16,
        /// Which step.
        step: StepIndex,
        /// Who does it now.
        worker: WorkerId,
        /// What the worker before came to, or why it was not asked at all.
        message: String,
    },
    /// An attempt made a second call while the first was silent. Only earlier versions write it, immediately before the event that
    /// ends the attempt. Its cost is added to the attempt's.
    Hedged {
        /// Of which round.
        round: u16,
        /// Which step.
        step: StepIndex,
        /// Under which claim.
        claim: ClaimId,
        /// The call that was broken off.
        hedge: OtherCall,
    },
    /// The holder was not heard of in time; the task may be claimed again.
    LeaseExpired {
        /// Of which task.
        task: TaskRef,
        /// Whose claim.
        claim: ClaimId,
    },
    /// No further attempt will be made. The policy decides what becomes of the steps that see a failed step; a failed final
    /// step or failed planning ends the round.
    TaskFailed {
        /// Which task.
        task: TaskRef,
        /// What went wrong in the end.
        message: String,
        /// The claim of the attempt that failed last, if it reported.
        claim: Option<ClaimId>,
        /// What that attempt consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
    },
    /// A result came that nobody needs any more. It was paid for.
    ResultUnused {
        /// Of which task.
        task: TaskRef,
        /// Under which claim.
        claim: ClaimId,
        /// What the attempt consumed.
        usage: Usage,
        /// What that cost.
        cost: Cost,
    },
    /// A further round begins with planning.
    RoundOpened {
        /// Its number.
        round: u16,
        /// Why the round before gave no answer, if this one is to correct that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<FailReason>,
    },
    /// A further round gives no answer. The run ends as the round before it did: with its answer, or with its failure.
    RoundAbandoned {
        /// Its number; not 0.
        round: u16,
        /// Why.
        reason: FailReason,
    },
    /// The run ended with an answer.
    Succeeded {
        /// The round that answered.
        round: u16,
        /// Its final step.
        step: StepIndex,
    },
    /// The run ended without an answer.
    Failed {
        /// Why.
        reason: FailReason,
    },
    /// Somebody took the run back.
    Cancelled,
}

impl RunEvent {
    /// A stable name for clients, stores and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Claimed { .. } => "claimed",
            Self::StepsPlanned { .. } => "steps_planned",
            Self::StepsSuperseded { .. } => "steps_superseded",
            Self::PlanReady { .. } => "plan_ready",
            Self::AnswerKept { .. } => "answer_kept",
            Self::StepReady { .. } => "step_ready",
            Self::StepDone { .. } => "step_done",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::FellBack { .. } => "fell_back",
            Self::Hedged { .. } => "hedged",
            Self::LeaseExpired { .. } => "lease_expired",
            Self::TaskFailed { .. } => "task_failed",
            Self::ResultUnused { .. } => "result_unused",
            Self::RoundOpened { .. } => "round_opened",
            Self::RoundAbandoned { .. } => "round_abandoned",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a task may stand otherwise after it: its state, its times or its holder. A task that is new counts.
    pub fn may_change(&self, task: TaskRef) -> bool {
        match self {
            Self::Claimed { task: changed, .. }
            | Self::AttemptFailed { task: changed, .. }
            | Self::LeaseExpired { task: changed, .. }
            | Self::TaskFailed { task: changed, .. } => *changed == task,
            Self::StepReady { round, step }
            | Self::StepDone { round, step, .. }
            | Self::FellBack { round, step, .. } => task == TaskRef::Step { round: *round, step: *step },
            Self::StepsPlanned { round, .. }
            | Self::StepsSuperseded { round, .. }
            | Self::PlanReady { round, .. }
            | Self::AnswerKept { round, .. } => task.round() == *round,
            Self::ResultUnused { .. } | Self::Hedged { .. } | Self::RoundAbandoned { .. } => false,
            Self::Accepted { .. }
            | Self::RoundOpened { .. }
            | Self::Succeeded { .. }
            | Self::Failed { .. }
            | Self::Cancelled => true,
        }
    }

    /// Whether it ends the run.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. } | Self::Cancelled)
    }
}
