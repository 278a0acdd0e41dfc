//! The events of a run. They are stored, so a changed form must still parse events of older versions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FinishReason, Planned, RunSpec, Saved, TaskRef};
use crate::budget::Shortage;
use crate::content::{Reasoning, ToolCall};
use crate::conversation::Message;
use crate::ids::{ClaimId, ProcessId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::plan::PlanHead;
use crate::time::Timestamp;
use crate::usage::Usage;

/// An event with its position in the run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequencedEvent {
    /// Counts from 1, without gaps.
    pub sequence: u64,
    /// When it was decided.
    pub at: Timestamp,
    /// The event itself.
    pub event: RunEvent,
}

/// The reason why a run, or a follow-up round of it, ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailReason {
    /// No attempt at planning produced a plan.
    #[error("no plan could be made: {message}")]
    PlanningFailed {
        /// The message of the last attempt.
        message: String,
    },
    /// A step failed for good, and the round cannot answer without it.
    #[error("{}", step_failure(*step, worker.as_ref(), message, *is_earlier))]
    FinalStepFailed {
        /// The step.
        step: StepIndex,
        /// The last worker that was asked; `None` in runs stored before it was recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<WorkerId>,
        /// The message of its last attempt.
        message: String,
        /// Whether it is an earlier step that the final step needs, not the final step itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_earlier: bool,
    },
    /// The deadline passed.
    #[error("the run did not finish within its deadline of {deadline_ms} ms")]
    DeadlineExceeded {
        /// The time from acceptance to the deadline.
        deadline_ms: u64,
    },
    /// The next attempt could have exceeded the cost cap.
    #[error("the run reached its cost cap of {cost_max} with {spent} spent")]
    CostCapReached {
        /// The cap.
        cost_max: Cost,
        /// The cost so far.
        spent: Cost,
    },
    /// The client did not send the results of its tool calls in time.
    #[error("the results of its tool calls did not come within {suspended_ms} ms")]
    SuspensionExpired {
        /// The longest time that the run waits for results.
        suspended_ms: u64,
    },
    /// A budget cannot hold the plan or the next attempt.
    #[error("{shortage}")]
    BudgetExhausted {
        /// The budget and the missing amount.
        shortage: Shortage,
    },
}

/// The prefix of a step's error message if its worker's vendor kept asking to slow down.
pub const RATE_LIMITED: &str = "worker_rate_limited";
/// The prefix of a step's error message if its prompt fits no worker.
pub const CONTEXT_EXCEEDED: &str = "context_length_exceeded";

impl FailReason {
    /// The stable name of the reason why the last step failed, if it has one: [`RATE_LIMITED`] or [`CONTEXT_EXCEEDED`].
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
            Self::SuspensionExpired { .. } => "suspension_expired",
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

/// A change of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run was accepted; its first round is ready to be planned.
    Accepted {
        /// The request and its bounds.
        spec: Arc<RunSpec>,
    },
    /// A task was claimed. Written before any call is made, as the intent to pay.
    Claimed {
        /// The task.
        task: TaskRef,
        /// The new claim.
        claim: ClaimId,
        /// The name of the process that holds it.
        executor: String,
        /// The process whose lease the claim depends on; `None` if a process of an earlier version made the claim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// The worker that will be called; `None` for planning.
        worker: Option<WorkerId>,
        /// The end of the claim's own lease, unless extended. It counts for processes of earlier versions, and without `process`.
        lease_until: Timestamp,
        /// The highest expected cost of the attempt.
        reserved: Cost,
    },
    /// The first steps of a plan are final while the rest is being written, and exist from now on. The steps of an earlier such
    /// event are the first of them.
    StepsPlanned {
        /// The round.
        round: u16,
        /// The claim on its planning.
        claim: ClaimId,
        /// The steps, checked.
        head: PlanHead,
    },
    /// The complete plan does not contain the steps that began before. Those that have not ended are cancelled.
    StepsSuperseded {
        /// The round.
        round: u16,
        /// The number of superseded steps.
        steps: u16,
    },
    /// The conductor wrote a plan; its steps exist. The steps that began before are the first of them.
    PlanReady {
        /// The round.
        round: u16,
        /// The claim of the planning attempt.
        claim: ClaimId,
        /// The plan and its origin.
        planned: Arc<Planned>,
        /// The tokens of planning.
        usage: Usage,
        /// Their cost.
        cost: Cost,
        /// The highest cost of the plan's steps with one attempt each; zero without budgets.
        #[serde(default, skip_serializing_if = "Cost::is_zero")]
        reserved: Cost,
    },
    /// The conductor kept the previous round's answer.
    AnswerKept {
        /// The round without a plan of its own.
        round: u16,
        /// The claim of the planning attempt.
        claim: ClaimId,
        /// The tokens of planning.
        usage: Usage,
        /// Their cost.
        cost: Cost,
    },
    /// All inputs of a step exist: it may be claimed.
    StepReady {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
    },
    /// A step has its output: the first finished, paid result, whatever its claim.
    StepDone {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The text.
        output: String,
        /// The tool calls, by the ids of the worker.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// The sealed reasoning that the worker expects back with the results of its calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasoning: Vec<Reasoning>,
        /// The reasoning before the text and the calls, if the client is shown it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning_text: String,
        /// The tokens of the attempt.
        usage: Usage,
        /// Their cost.
        cost: Cost,
        /// The reason why the worker stopped.
        finish: FinishReason,
        /// The stop sequence that ended the output, if the vendor named it. Earlier versions did not store it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_sequence: Option<String>,
        /// Milliseconds to the first token.
        first_token_ms: Option<u64>,
        /// The usage that the step cache saved, if the output came from it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saved: Option<Saved>,
    },
    /// A step took over the output of an earlier step, because the answers of the steps in its condition agree. No worker was called.
    StepSkipped {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
        /// The earlier step whose output it took over.
        same_as: StepIndex,
    },
    /// A step's worker called tools: the first finished, paid result, whatever its claim. The step waits for the results.
    StepCalled {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The text before the calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The tool calls, by the ids of the worker.
        calls: Vec<ToolCall>,
        /// The sealed reasoning that the worker expects back with the results of its calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasoning: Vec<Reasoning>,
        /// The reasoning before the text and the calls, if the client is shown it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning_text: String,
        /// The tokens of the attempt.
        usage: Usage,
        /// Their cost.
        cost: Cost,
        /// Milliseconds to the first token.
        first_token_ms: Option<u64>,
    },
    /// No step can go on before the client sends the results of all calls.
    Suspended,
    /// The client sent the results. Every step that called tools is ready again, and the time of the suspension is added to the
    /// deadline.
    ResultsGiven {
        /// The client's messages after the calls: a result for each call, and whatever the client says with them.
        results: Vec<Message>,
    },
    /// An attempt ended without a result, and its task is ready again.
    AttemptFailed {
        /// The task.
        task: TaskRef,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The error message.
        message: String,
        /// The earliest time of the next attempt.
        retry_at: Timestamp,
        /// The tokens that the failed attempt used.
        usage: Usage,
        /// Their cost.
        cost: Cost,
        /// Whether the holder released the task for reasons that do not concern it; such an attempt does not count.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        handed_back: bool,
        /// The worker that is called next, if it is another one. Earlier versions did not store it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback: Option<WorkerId>,
    },
    /// A step continues with another worker, whose attempts count from the beginning.
    FellBack {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
        /// The new worker.
        worker: WorkerId,
        /// The error of the previous worker, or the reason why it was not called.
        message: String,
        /// The claim of the failed attempt; `None` if the worker before was not asked. Earlier versions did not store it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<ClaimId>,
    },
    /// An attempt made a second call while the first was silent. Only earlier versions write it, immediately before the event that
    /// ends the attempt. Its cost is added to the attempt's.
    Hedged {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The call that was broken off.
        hedge: OtherCall,
    },
    /// The holder did not extend its lease in time; the task may be claimed again.
    LeaseExpired {
        /// The task.
        task: TaskRef,
        /// The claim whose lease it was.
        claim: ClaimId,
    },
    /// A task failed: no other attempt follows. The policy decides about the steps that see a failed step. A failed final step or
    /// failed planning ends the round.
    TaskFailed {
        /// The task.
        task: TaskRef,
        /// The last error message.
        message: String,
        /// The claim of the last failed attempt, if it reported.
        claim: Option<ClaimId>,
        /// The tokens of that attempt.
        usage: Usage,
        /// Their cost.
        cost: Cost,
    },
    /// A result arrived that is no longer needed. It was paid for.
    ResultUnused {
        /// The task.
        task: TaskRef,
        /// The claim of the attempt.
        claim: ClaimId,
        /// The tokens of the attempt.
        usage: Usage,
        /// Their cost.
        cost: Cost,
    },
    /// A follow-up round begins with its planning.
    RoundOpened {
        /// The round's number.
        round: u16,
        /// The failure of the previous round, if this one should correct it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<FailReason>,
    },
    /// A follow-up round has no answer. The run ends like its previous round: with that answer, or with that failure.
    RoundAbandoned {
        /// The round's number; not 0.
        round: u16,
        /// The reason.
        reason: FailReason,
    },
    /// The run ended with an answer.
    Succeeded {
        /// The round that answered.
        round: u16,
        /// The step whose output is the answer.
        step: StepIndex,
    },
    /// The run ended without an answer.
    Failed {
        /// The reason.
        reason: FailReason,
    },
    /// A client cancelled the run.
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
            Self::StepSkipped { .. } => "step_skipped",
            Self::StepCalled { .. } => "step_called",
            Self::Suspended => "suspended",
            Self::ResultsGiven { .. } => "results_given",
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

    /// Whether it may change a task's state, times or holder. A new task counts as changed.
    pub fn may_change(&self, task: TaskRef) -> bool {
        match self {
            Self::Claimed { task: changed, .. }
            | Self::AttemptFailed { task: changed, .. }
            | Self::LeaseExpired { task: changed, .. }
            | Self::TaskFailed { task: changed, .. } => *changed == task,
            Self::StepReady { round, step }
            | Self::StepDone { round, step, .. }
            | Self::StepSkipped { round, step, .. }
            | Self::StepCalled { round, step, .. }
            | Self::FellBack { round, step, .. } => task == TaskRef::Step { round: *round, step: *step },
            Self::StepsPlanned { round, .. }
            | Self::StepsSuperseded { round, .. }
            | Self::PlanReady { round, .. }
            | Self::AnswerKept { round, .. } => task.round() == *round,
            Self::ResultUnused { .. }
            | Self::Hedged { .. }
            | Self::RoundAbandoned { .. }
            | Self::Suspended => false,
            Self::Accepted { .. }
            | Self::ResultsGiven { .. }
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
