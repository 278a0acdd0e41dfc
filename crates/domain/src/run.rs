//! A run as a pure state machine: what it is, what may be asked of it, what happened to it.
//!
//! Only events are stored; the state is folded from them. [`Run::decide`] turns a command into events without changing
//! anything, [`Run::apply`] folds one event in. Neither waits, nor reads a clock: `now` is an argument.
//!
//! A run's work comes as *tasks*: the planning of a round, and each step of its plan. They share one life: waiting, ready,
//! running under a claim, then done, failed or cancelled.

mod apply;
mod charge;
mod command;
mod decide;
mod event;
mod failure;
mod head;
mod settle;
mod task;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::answer::AnswerForm;
use crate::budget::{BudgetRef, Charge};
use crate::conversation::Conversation;
use crate::ids::{KeyId, RequestId, RunId, StepIndex, TenantId, WorkerId};
use crate::money::Cost;
use crate::plan::{Plan, PlanHead, Step};
use crate::policy::{FALLBACKS_MAX, Policy, PoolRule};
use crate::sampling::Sampling;
use crate::stops::Stops;
use crate::time::Timestamp;
use crate::usage::Usage;

pub use apply::IllegalEvent;
pub use command::{
    AttemptError, Claim, Command, Decision, Effect, FinishReason, PlanResult, Planned, Refusal, Saved,
    StepResult,
};
pub use event::{CONTEXT_EXCEEDED, FailReason, OtherCall, RATE_LIMITED, RunEvent, SequencedEvent};
pub use failure::MissingStep;
pub use task::{Attempt, AttemptOutcome, Task, TaskRef, TaskState};

/// What was asked, and under which bounds. Fixed at acceptance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Whose run it is.
    pub tenant: TenantId,
    /// The key that it was asked with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The budgets that it is charged to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetRef>,
    /// What it reserves of them until there is a plan: the least that a plan can cost.
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub hold: Cost,
    /// The client's own name for the request.
    pub request_id: Option<RequestId>,
    /// A hash of what the client asked for, if the request has an id of the client's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The model that the client named, such as `podium-ultra`.
    pub model: String,
    /// The client's messages.
    pub conversation: Conversation,
    /// The bounds.
    pub policy: Policy,
    /// Most tokens of the answer, if the client set a limit.
    pub answer_tokens_max: Option<u32>,
    /// How its workers are to choose their words.
    #[serde(default, skip_serializing_if = "Sampling::is_none")]
    pub sampling: Sampling,
    /// The form of its answer.
    #[serde(default, skip_serializing_if = "AnswerForm::is_text")]
    pub answer: AnswerForm,
    /// Texts that end its answer.
    #[serde(default, skip_serializing_if = "Stops::is_empty")]
    pub stops: Stops,
    /// The pool's name and version.
    pub pool: String,
    /// The conductor's name and version.
    pub conductor: String,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it fails if it has not ended.
    pub deadline_at: Timestamp,
}

impl RunSpec {
    /// Whether the step that gives the answer is asked for more than the others: a limit, a form, or an end of its own.
    pub fn shapes_answer(&self) -> bool {
        self.answer_tokens_max.is_some() || !self.answer.is_text() || !self.stops.is_empty()
    }
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunState {
    /// There are tasks to do.
    Active,
    /// Ended with an answer: the output of this step.
    Succeeded {
        /// The round that answered.
        round: u16,
        /// Its final step.
        step: StepIndex,
    },
    /// Ended without an answer.
    Failed {
        /// Why.
        reason: FailReason,
    },
    /// Somebody took it back.
    Cancelled,
}

impl RunState {
    /// The name that clients and stores use.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One workflow inside a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The planning of it.
    pub planning: Task,
    /// What of the plan was begun before the plan was complete.
    pub head: Option<PlanHead>,
    /// What the conductor wrote, once it has.
    pub planned: Option<Arc<Planned>>,
    /// How many of the first steps are superseded: begun, and then not of the plan that was written in the end.
    pub superseded: u16,
    /// The steps, as many as the plan has; before there is one, those of the head.
    pub steps: Vec<StepRun>,
    /// Why it gave no answer, if an earlier round's answer or failure stands instead.
    #[serde(default)]
    pub abandoned: Option<FailReason>,
    /// The failure of the round before, which this one is to correct.
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

    /// The plan, once there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.planned.as_ref().map(|planned| &planned.plan)
    }

    /// The steps as far as they are known: those of the plan, or of its head before there is one.
    pub fn known_steps(&self) -> &[Step] {
        let planned = self.plan().map(Plan::steps);
        planned.or_else(|| self.head.as_ref().map(PlanHead::steps)).unwrap_or_default()
    }

    /// Whether the step was begun in vain.
    pub fn is_superseded(&self, step: StepIndex) -> bool {
        step.get() < self.superseded
    }
}

/// A step's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The work on it.
    pub task: Task,
    /// Who does it instead of the planned worker, if somebody does.
    pub worker: Option<WorkerId>,
    /// How often it went on with somebody else, at most [`FALLBACKS_MAX`].
    pub fallbacks: u16,
    /// What it produced.
    pub output: Option<String>,
    /// Why its worker stopped writing.
    pub finish: Option<FinishReason>,
    /// What went wrong in the end, if it failed.
    #[serde(default)]
    pub error: Option<String>,
}

impl StepRun {
    fn waiting() -> Self {
        Self { task: Task::waiting(), worker: None, fallbacks: 0, output: None, finish: None, error: None }
    }
}

/// One request, from accept to answer.
///
/// It can be written as a whole for a reader of the same version of the program, in passing. What is kept are its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    id: RunId,
    version: u64,
    // What never changes is shared: a run is copied for each decision on it.
    spec: Arc<RunSpec>,
    state: RunState,
    ended_at: Option<Timestamp>,
    rounds: Vec<Round>,
    /// What it may cost in all, by its last plan: what it reserves of its budgets.
    hold: Cost,
    /// What its budgets are charged with.
    booked: Charge,
}

impl Run {
    /// The event that begins a run.
    pub fn accept(spec: RunSpec) -> RunEvent {
        RunEvent::Accepted { spec: Arc::new(spec) }
    }

    /// Folds a run's events, which must be all of them and in order.
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

    /// How many events were folded: the sequence number of the last one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What was asked.
    pub fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// Where it stands.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.state != RunState::Active
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

    /// The answer, if the run succeeded.
    pub fn answer(&self) -> Option<&str> {
        match self.state {
            RunState::Succeeded { round, step } => self.output(round, step),
            _ => None,
        }
    }

    /// The task, if the run has such a one.
    pub fn task(&self, task: TaskRef) -> Option<&Task> {
        match task {
            TaskRef::Plan { round } => self.rounds.get(usize::from(round)).map(|round| &round.planning),
            TaskRef::Step { round, step } => {
                self.rounds.get(usize::from(round))?.steps.get(step.as_usize()).map(|step| &step.task)
            }
        }
    }

    /// Every task that exists, in order.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskRef, &Task)> {
        (0u16..).zip(&self.rounds).flat_map(|(number, round)| {
            let steps = (0u16..).zip(&round.steps).map(move |(index, step)| {
                (TaskRef::Step { round: number, step: StepIndex::new(index) }, &step.task)
            });
            std::iter::once((TaskRef::Plan { round: number }, &round.planning)).chain(steps)
        })
    }

    /// The step as it is planned, if there is one.
    pub fn step(&self, round: u16, step: StepIndex) -> Option<&Step> {
        self.rounds.get(usize::from(round))?.known_steps().get(step.as_usize())
    }

    /// Whether the step's output is its round's answer. No step is known to be that one before the plan is complete.
    pub fn is_final_step(&self, round: u16, step: StepIndex) -> bool {
        let plan = self.rounds.get(usize::from(round)).and_then(Round::plan);
        plan.is_some_and(|plan| plan.final_step() == step)
    }

    /// What a step produced, if it did.
    pub fn output(&self, round: u16, step: StepIndex) -> Option<&str> {
        self.rounds.get(usize::from(round))?.steps.get(step.as_usize())?.output.as_deref()
    }

    /// The worker that a task needs now, which may be another one than was planned; none for planning.
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

    /// What all attempts together have cost so far: those that counted, those that failed and those whose result came too
    /// late alike.
    pub fn cost(&self) -> Cost {
        self.attempts().map(|attempt| attempt.cost).sum()
    }

    /// What all attempts together have consumed so far.
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

    /// What was not spent because outputs were known already: none of it is in [`Self::usage`] and [`Self::cost`].
    pub fn saved(&self) -> Saved {
        let saved = self.attempts().filter_map(|attempt| attempt.saved);
        saved.fold(Saved::default(), |sum, saved| Saved {
            usage: sum.usage + saved.usage,
            cost: sum.cost + saved.cost,
        })
    }

    /// What planning consumed: the share of [`Self::usage`] that no worker did.
    pub fn planning_usage(&self) -> Usage {
        self.rounds.iter().flat_map(|round| &round.planning.attempts).map(|attempt| attempt.usage).sum()
    }

    /// Whether the policy lets the step go on with others, and it has not done so too often.
    pub fn can_fall_back(&self, task: TaskRef) -> bool {
        let TaskRef::Step { round, step } = task else { return false };
        let found = self.rounds.get(usize::from(round)).and_then(|round| round.steps.get(step.as_usize()));
        self.spec.policy.fallback == PoolRule::Pool
            && found.is_some_and(|step| usize::from(step.fallbacks) < FALLBACKS_MAX)
    }

    /// How often a step went on with another worker.
    pub fn fallbacks(&self) -> u32 {
        self.rounds.iter().flat_map(|round| &round.steps).map(|step| u32::from(step.fallbacks)).sum()
    }

    /// The most that attempts under way may still cost, and lost ones may have cost: a lost attempt's executor may have lost only its
    /// connection, and not its call.
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
