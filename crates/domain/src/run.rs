//! A run as a pure state machine: its state, its commands and its events.
//!
//! Only events are stored; the state is folded from them. [`Run::decide`] turns a command into events and changes nothing;
//! [`Run::apply`] folds one event in. Neither waits nor reads a clock: `now` is an argument.
//!
//! The work of a run consists of *tasks*: the planning of each round, and each step of its plan. They have the same states:
//! waiting, ready, running under a claim, then done, failed or cancelled.

mod apply;
mod booking;
mod charge;
mod command;
mod decide;
mod event;
mod failure;
mod head;
mod progress;
mod settle;
mod state_kind;
mod task;
mod tool_calls;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::{BudgetRef, Charge};
use crate::content::{Reasoning, ToolCall};
use crate::conversation::Message;
use crate::ids::{ClaimId, KeyId, RequestId, RunId, StepIndex, TenantId, WorkerId};
use crate::money::Cost;
use crate::plan::{Plan, PlanHead, Step};
use crate::policy::{FALLBACKS_MAX, PoolRule};
use crate::request::RunRequest;
use crate::time::Timestamp;
use crate::usage::Usage;

pub use apply::{IllegalEvent, IllegalReason};
pub use booking::Booking;
pub use command::{
    AttemptError, Claim, Command, Decision, Effect, FinishReason, PlanResult, Planned, Refusal, Saved,
    StepResult,
};
pub use event::{CONTEXT_EXCEEDED, FailReason, OtherCall, RATE_LIMITED, RunEvent, SequencedEvent};
pub use failure::MissingStep;
pub use progress::{Progress, RunningStep};
pub use state_kind::StateKind;
pub use task::{Attempt, AttemptOutcome, StepRef, Task, TaskRef, TaskState};
pub use tool_calls::ReplyWithCalls;

/// The request and its bounds, fixed at acceptance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The key of the request, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The budgets that it is charged to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetRef>,
    /// The amount reserved of them until a plan exists: the lowest possible cost of a plan.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub hold: Cost,
    /// The client's own id for the request.
    pub request_id: Option<RequestId>,
    /// A hash of the request, if it has a client's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The model that the client requested, such as `podium-ultra`.
    pub model: String,
    /// The request. Stored as if its fields were fields of the run.
    #[serde(flatten)]
    pub request: RunRequest,
    /// The pool's name and version.
    pub pool: String,
    /// The conductor's name and version.
    pub conductor: String,
    /// When the run was accepted.
    pub accepted_at: Timestamp,
    /// The time at which it fails unless it has ended.
    pub deadline_at: Timestamp,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunState {
    /// It has tasks to do.
    Active,
    /// Nothing can go on before the client sends the results of its tool calls.
    Suspended,
    /// It ended with an answer: the output of this step.
    Succeeded {
        /// The round that answered.
        round: u16,
        /// Its final step.
        step: StepIndex,
    },
    /// It ended without an answer.
    Failed {
        /// The reason.
        reason: FailReason,
    },
    /// A client cancelled it.
    Cancelled,
}

impl RunState {
    /// The state without its data.
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Active => StateKind::Active,
            Self::Suspended => StateKind::Suspended,
            Self::Succeeded { .. } => StateKind::Succeeded,
            Self::Failed { .. } => StateKind::Failed,
            Self::Cancelled => StateKind::Cancelled,
        }
    }

    /// The name for clients and stores.
    pub const fn as_str(&self) -> &'static str {
        self.kind().as_str()
    }
}

/// One workflow inside a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The task of planning it.
    pub planning: Task,
    /// The steps that began before the plan was complete.
    pub head: Option<PlanHead>,
    /// The plan, once the conductor has written it.
    pub planned: Option<Arc<Planned>>,
    /// The number of leading steps that are superseded: they began, and the complete plan does not contain them.
    pub superseded: u16,
    /// The steps of the plan; before it is complete, those of the head.
    pub steps: Vec<StepRun>,
    /// The reason why it has no answer, if the answer or failure of an earlier round stands instead.
    #[serde(default)]
    pub abandoned: Option<FailReason>,
    /// The failure of the previous round, which this one should correct.
    #[serde(default)]
    pub corrects: Option<FailReason>,
}

impl Round {
    fn opened(now: Timestamp, corrects: Option<FailReason>) -> Self {
        Self {
            planning: Task::ready(now),
            head: None,
            planned: None,
            superseded: 0,
            steps: Vec::new(),
            abandoned: None,
            corrects,
        }
    }

    /// The complete plan; `None` until then.
    pub fn plan(&self) -> Option<&Plan> {
        self.planned.as_ref().map(|planned| &planned.plan)
    }

    /// The known steps: those of the plan, or of its head until the plan is complete.
    pub fn known_steps(&self) -> &[Step] {
        let planned = self.plan().map(Plan::steps);
        planned.or_else(|| self.head.as_ref().map(PlanHead::steps)).unwrap_or_default()
    }

    /// Whether the step began and is not part of the complete plan.
    pub fn is_superseded(&self, step: StepIndex) -> bool {
        step.get() < self.superseded
    }
}

/// The state of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The task of doing it.
    pub task: Task,
    /// The fallback that does it in place of the planned worker, if any.
    pub worker: Option<WorkerId>,
    /// How often it continued with another worker, at most [`FALLBACKS_MAX`].
    pub fallbacks: u16,
    /// The text that it produced.
    pub output: Option<String>,
    /// Its tool calls, by the ids of its worker. [`Run::calls_of`] has them by the ids that clients get.
    #[serde(default)]
    pub calls: Vec<ToolCall>,
    /// The sealed reasoning that its worker expects back with the results of the calls.
    #[serde(default)]
    pub reasoning: Vec<Reasoning>,
    /// The reasoning before its output, if the client is shown it.
    #[serde(default)]
    pub reasoning_text: String,
    /// Its turns that ended with tool calls, in order. If it is calling, the last one has no results yet.
    #[serde(default)]
    pub turns: Vec<Arc<ToolTurn>>,
    /// Why its worker stopped writing.
    pub finish: Option<FinishReason>,
    /// The stop sequence that ended its output, if the vendor named it.
    #[serde(default)]
    pub stop_sequence: Option<String>,
    /// The last error, if it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// The earlier step whose output it took over, if it was skipped.
    #[serde(default)]
    pub same_as: Option<StepIndex>,
}

impl StepRun {
    fn waiting() -> Self {
        Self {
            task: Task::waiting(),
            worker: None,
            fallbacks: 0,
            output: None,
            calls: Vec::new(),
            reasoning: Vec::new(),
            reasoning_text: String::new(),
            turns: Vec::new(),
            finish: None,
            stop_sequence: None,
            error: None,
            same_as: None,
        }
    }
}

/// A turn of a step that ended with tool calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolTurn {
    /// The number of the run's reply that ended with the calls.
    pub reply: u16,
    /// The claim of the attempt.
    pub claim: ClaimId,
    /// The worker that made the calls.
    pub worker: WorkerId,
    /// The text before the calls.
    pub text: String,
    /// The calls, by the ids of the worker.
    pub calls: Vec<ToolCall>,
    /// The sealed reasoning that the worker expects back.
    pub reasoning: Vec<Reasoning>,
    /// The reasoning before the text and the calls, if the client is shown it.
    #[serde(default)]
    pub reasoning_text: String,
    /// The client's messages after the calls: the results of these calls, and whatever the client said with them. Empty until then.
    pub results: Vec<Message>,
}

impl ToolTurn {
    /// Its size in bytes, for limits.
    pub fn bytes(&self) -> usize {
        let calls = self.calls.iter().map(ToolCall::bytes).sum::<usize>();
        let reasoning = self.reasoning.iter().map(Reasoning::bytes).sum::<usize>();
        let written = self.text.len() + self.reasoning_text.len();
        written + calls + reasoning + self.results.iter().map(Message::bytes).sum::<usize>()
    }
}

/// The tokens of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyUsage {
    /// All of them.
    pub all: Usage,
    /// The share of planning.
    pub planning: Usage,
    /// The tokens that the step cache saved; no part of `all`.
    pub saved: Usage,
}

/// One request, from acceptance to answer.
///
/// It can be serialized for a short time, for a process of the same version. Only its events are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    id: RunId,
    version: u64,
    changed_at: Timestamp,
    // Immutable parts are shared, because each decision copies the run.
    spec: Arc<RunSpec>,
    state: RunState,
    ended_at: Option<Timestamp>,
    /// The time at which it fails unless it has ended or is suspended.
    deadline_at: Timestamp,
    suspended_at: Option<Timestamp>,
    /// Whether it was suspended when it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ended_suspended: bool,
    /// The number of times that it continued after tool results.
    reply: u16,
    rounds: Vec<Round>,
    /// Its highest cost according to its last plan, which is the amount reserved of its budgets.
    hold: Cost,
    /// The charge booked on its budgets.
    booked: Charge,
}

impl Run {
    /// The event that begins a run.
    pub fn accept(spec: RunSpec) -> RunEvent {
        RunEvent::Accepted { spec: Arc::new(spec) }
    }

    /// Folds all events of a run, in order.
    pub fn replay(id: RunId, events: &[SequencedEvent]) -> Result<Self, IllegalEvent> {
        let Some((first, rest)) = events.split_first() else {
            return Err(IllegalEvent::nothing_accepted());
        };
        let mut run = Self::begin(id, first)?;
        rest.iter().try_for_each(|event| run.apply(event))?;
        Ok(run)
    }

    /// Its id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The number of folded events, which is the sequence number of the last one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The time of the last event.
    pub fn changed_at(&self) -> Timestamp {
        self.changed_at
    }

    /// The request and its bounds.
    pub fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// Its state.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        !matches!(self.state, RunState::Active | RunState::Suspended)
    }

    /// Whether it waits for the results of tool calls.
    pub fn is_suspended(&self) -> bool {
        self.state == RunState::Suspended
    }

    /// The number of the current reply, from 0. A reply ends with the pending tool calls of a suspended run, or with the run; the
    /// results of the calls begin the next one.
    pub fn reply(&self) -> u16 {
        self.reply
    }

    /// Whether the reply with this number is complete.
    pub fn has_replied(&self, reply: u16) -> bool {
        self.is_ended() || self.reply > reply || (self.reply == reply && self.is_suspended())
    }

    /// The time at which it fails unless it has ended. The time that it was suspended for is added to the deadline of its
    /// acceptance.
    pub fn deadline_at(&self) -> Timestamp {
        self.deadline_at
    }

    /// The time at which it must be looked at: its deadline, or the end of its suspension.
    pub fn due_at(&self) -> Timestamp {
        let wait = Duration::from_millis(self.spec.request.policy.suspended_ms_max);
        self.suspended_at.map_or(self.deadline_at, |at| at.after(wait))
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// Its rounds; the last one is the current one.
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// The number of the current round, from 0.
    pub fn current_round(&self) -> u16 {
        u16::try_from(self.rounds.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// The text of the answer, if the run succeeded. It may be empty if the answer has tool calls.
    pub fn answer(&self) -> Option<&str> {
        match self.state {
            RunState::Succeeded { round, step } => self.output(round, step),
            _ => None,
        }
    }

    /// The task; `None` if the run does not have it.
    pub fn task(&self, task: TaskRef) -> Option<&Task> {
        match task {
            TaskRef::Plan { round } => self.rounds.get(usize::from(round)).map(|round| &round.planning),
            TaskRef::Step { round, step } => {
                self.rounds.get(usize::from(round))?.steps.get(step.as_usize()).map(|step| &step.task)
            }
        }
    }

    /// All existing tasks, in order.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskRef, &Task)> {
        (0u16..).zip(&self.rounds).flat_map(|(number, round)| {
            let steps = (0u16..).zip(&round.steps).map(move |(index, step)| {
                (TaskRef::Step { round: number, step: StepIndex::new(index) }, &step.task)
            });
            std::iter::once((TaskRef::Plan { round: number }, &round.planning)).chain(steps)
        })
    }

    /// The planned step, if there is one.
    pub fn step(&self, round: u16, step: StepIndex) -> Option<&Step> {
        self.rounds.get(usize::from(round))?.known_steps().get(step.as_usize())
    }

    /// Whether the step's output is its round's answer. Always false before the plan is complete.
    pub fn is_final_step(&self, round: u16, step: StepIndex) -> bool {
        let plan = self.rounds.get(usize::from(round)).and_then(Round::plan);
        plan.is_some_and(|plan| plan.final_step() == step)
    }

    /// Whether the step's output may become its round's answer: see [`Plan::may_be_answer`]. Such a step gets the token limit, the
    /// response format and the stop sequences of the answer. Always false before the plan is complete.
    pub fn may_be_answer(&self, StepRef { round, step }: StepRef) -> bool {
        let plan = self.rounds.get(usize::from(round)).and_then(Round::plan);
        plan.is_some_and(|plan| plan.may_be_answer(step))
    }

    /// The output of a step, if it has one.
    pub fn output(&self, round: u16, step: StepIndex) -> Option<&str> {
        self.rounds.get(usize::from(round))?.steps.get(step.as_usize())?.output.as_deref()
    }

    /// The worker that a task needs now, planned or fallback; `None` for planning.
    pub fn worker_of(&self, task: TaskRef) -> Option<&WorkerId> {
        match task {
            TaskRef::Plan { .. } => None,
            TaskRef::Step { round, step } => {
                let instead =
                    self.rounds.get(usize::from(round))?.steps.get(step.as_usize())?.worker.as_ref();
                instead.or_else(|| self.step(round, step).map(|step| &step.worker))
            }
        }
    }

    /// The cost of all attempts so far, including those that failed and those whose result came too late.
    pub fn cost(&self) -> Cost {
        self.attempts().map(|attempt| attempt.cost).sum()
    }

    /// The tokens of all attempts so far.
    pub fn usage(&self) -> Usage {
        self.attempts().map(|attempt| attempt.usage).sum()
    }

    /// The wasted share of [`Self::cost`]: attempts that failed, were lost or came too late, and superseded steps.
    pub fn wasted_cost(&self) -> Cost {
        self.wasted().map(|(_, cost)| cost).sum()
    }

    /// The wasted share of [`Self::usage`].
    pub fn wasted_usage(&self) -> Usage {
        self.wasted().map(|(usage, _)| usage).sum()
    }

    /// The usage and cost that the step cache saved; neither is part of [`Self::usage`] and [`Self::cost`].
    pub fn saved(&self) -> Saved {
        let saved = self.attempts().filter_map(|attempt| attempt.saved);
        saved.fold(Saved::default(), |sum, saved| Saved {
            usage: sum.usage + saved.usage,
            cost: sum.cost + saved.cost,
        })
    }

    /// The usage, the share of planning in it, and the usage that the step cache saved, all of the current reply. Over all replies
    /// they add up to those of the run.
    pub fn reply_usage(&self) -> ReplyUsage {
        let mut sum = ReplyUsage::default();
        for (task, found) in self.tasks() {
            for attempt in found.latest_attempts() {
                sum.all += attempt.usage;
                sum.saved += attempt.saved.unwrap_or_default().usage;
                if task.step().is_none() {
                    sum.planning += attempt.usage;
                }
            }
        }
        sum
    }

    /// The tokens of planning, a share of [`Self::usage`].
    pub fn planning_usage(&self) -> Usage {
        self.rounds.iter().flat_map(|round| &round.planning.attempts).map(|attempt| attempt.usage).sum()
    }

    /// Whether the policy allows the step another fallback.
    pub fn can_fall_back(&self, task: TaskRef) -> bool {
        let TaskRef::Step { round, step } = task else { return false };
        let found = self.rounds.get(usize::from(round)).and_then(|round| round.steps.get(step.as_usize()));
        self.spec.request.policy.fallback == PoolRule::Pool
            && found.is_some_and(|step| usize::from(step.fallbacks) < FALLBACKS_MAX)
    }

    /// How often steps continued with another worker.
    pub fn fallbacks(&self) -> u32 {
        self.rounds.iter().flat_map(|round| &round.steps).map(|step| u32::from(step.fallbacks)).sum()
    }

    /// The highest cost of attempts in flight and of lost ones: the executor of a lost attempt may still be calling the vendor.
    fn reserved(&self) -> Cost {
        self.attempts().filter(|attempt| attempt.is_outstanding()).map(|attempt| attempt.reserved).sum()
    }

    fn wasted(&self) -> impl Iterator<Item = (Usage, Cost)> {
        self.tasks().flat_map(|(task, found)| {
            let is_superseded = match task {
                TaskRef::Plan { .. } => false,
                TaskRef::Step { round, step } => self.rounds[usize::from(round)].is_superseded(step),
            };
            let is_wasted =
                move |attempt: &&Attempt| is_superseded || attempt.outcome != AttemptOutcome::Accepted;
            found.attempts.iter().filter(is_wasted).map(|attempt| (attempt.usage, attempt.cost))
        })
    }

    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.tasks().flat_map(|(_, task)| &task.attempts)
    }
}

#[cfg(test)]
mod tests;
