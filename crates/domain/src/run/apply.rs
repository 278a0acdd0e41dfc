//! Folds events into a run. Every transition of a task is one arm of one `match`; all others are illegal.

use std::sync::Arc;

use super::event::{FailReason, OtherCall, RunEvent};
use super::task::{Attempt, AttemptOutcome, StepRef, Task, TaskRef, TaskState};
use super::{Round, Run, RunState, Saved, SequencedEvent, StepRun, ToolTurn};
use crate::budget::Charge;
use crate::conversation::Message;
use crate::ids::{ClaimId, ProcessId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::plan::PlanHead;
use crate::time::Timestamp;
use crate::usage::{Spent, Usage};

/// An event that is impossible in the run's state: the log is corrupt, or two writers were not separated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {sequence} `{event}` cannot happen: {reason}")]
pub struct IllegalEvent {
    /// The event's sequence number; 0 for a log without events.
    pub sequence: u64,
    /// The event's name.
    pub event: &'static str,
    /// The reason why it is impossible.
    pub reason: IllegalReason,
}

/// Why an event is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalReason {
    /// The first event is not `accepted`.
    #[error("a run begins with `accepted`")]
    NotAccepted,
    /// The run was accepted before.
    #[error("a run is accepted once")]
    AcceptedAgain,
    /// Its number does not follow that of the last event.
    #[error("the last one was {last}")]
    OutOfOrder {
        /// The sequence number of the last event.
        last: u64,
    },
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
    /// The step of the answer has no output.
    #[error("the step has no output")]
    NoOutput,
    /// The claim does not hold the planning.
    #[error("the claim does not hold the planning")]
    PlanningNotHeld,
    /// The superseded steps are not those that began.
    #[error("the superseded steps are not those that began")]
    OtherStepsSuperseded,
    /// The plan does not begin with the steps that began.
    #[error("the steps do not include those that began")]
    StepsMissing,
    /// Only a ready task falls back.
    #[error("a {state} task has no fallback")]
    NoFallback {
        /// The task's state.
        state: &'static str,
    },
    /// The task has ended.
    #[error("the task has ended")]
    TaskEnded,
    /// The round does not follow the last one.
    #[error("round {round} does not follow the last one")]
    RoundOutOfOrder {
        /// The round.
        round: u16,
    },
    /// Only an active follow-up round is abandoned.
    #[error("round {round} is not an active follow-up round")]
    NoFollowUp {
        /// The round.
        round: u16,
    },
    /// The round is missing.
    #[error("there is no round {round}")]
    NoRound {
        /// The round.
        round: u16,
    },
    /// The task is missing.
    #[error("there is no task {task}")]
    NoTask {
        /// The task.
        task: TaskRef,
    },
    /// The table of transitions does not have this one.
    #[error("a {state} task, on {event}")]
    NoTransition {
        /// The task's state.
        state: &'static str,
        /// The task's event.
        event: String,
    },
    /// The task has no attempt with the claim.
    #[error("claim {claim} was never made")]
    NoAttempt {
        /// The claim.
        claim: ClaimId,
    },
    /// The event has no calls.
    #[error("it has no calls")]
    NoCalls,
    /// The run has other work than calls of a client's tools.
    #[error("it waits for no client")]
    WaitsForNoClient,
    /// The attempt has no worker.
    #[error("the attempt called no worker")]
    NoWorker,
    /// The run is not suspended.
    #[error("the run is not suspended")]
    NotSuspended,
}

impl IllegalEvent {
    pub(super) fn nothing_accepted() -> Self {
        Self { sequence: 0, event: "none", reason: IllegalReason::NotAccepted }
    }
}

/// The events of a task's state machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskEvent {
    Readied {
        not_before: Timestamp,
    },
    Claimed {
        claim: ClaimId,
        process: Option<ProcessId>,
        lease_until: Timestamp,
    },
    Completed,
    /// The worker called tools.
    Called,
    /// The results came.
    Resumed {
        not_before: Timestamp,
    },
    Released {
        claim: ClaimId,
        not_before: Timestamp,
    },
    Failed,
    /// It took over the output of an earlier step.
    Skipped,
    CalledOff,
}

impl TaskState {
    /// The transition table.
    pub(super) fn next(&self, event: TaskEvent) -> Option<Self> {
        use TaskEvent as E;
        match (self, event) {
            (Self::Waiting, E::Readied { not_before }) | (Self::Calling, E::Resumed { not_before }) => {
                Some(Self::Ready { not_before })
            }
            (Self::Ready { .. }, E::Claimed { claim, process, lease_until }) => {
                Some(Self::Running { claim, process, lease_until })
            }
            (Self::Ready { .. } | Self::Running { .. }, E::Completed) => Some(Self::Done),
            (Self::Ready { .. } | Self::Running { .. }, E::Called) => Some(Self::Calling),
            (Self::Running { claim: holder, .. }, E::Released { claim, not_before }) if *holder == claim => {
                Some(Self::Ready { not_before })
            }
            (Self::Waiting, E::Skipped) => Some(Self::Skipped),
            (Self::Waiting | Self::Running { .. }, E::Failed) => Some(Self::Failed),
            (Self::Waiting | Self::Ready { .. } | Self::Running { .. } | Self::Calling, E::CalledOff) => {
                Some(Self::Cancelled)
            }
            (Self::Done | Self::Skipped | Self::Failed | Self::Cancelled, E::CalledOff) => Some(self.clone()),
            _ => None,
        }
    }
}

/// The end of an attempt.
struct End {
    claim: ClaimId,
    became: AttemptOutcome,
    spent: Spent,
    first_token_ms: Option<u64>,
    saved: Option<Saved>,
}

impl End {
    fn new(claim: ClaimId, became: AttemptOutcome, usage: Usage, cost: Cost) -> Self {
        Self { claim, became, spent: Spent { usage, cost }, first_token_ms: None, saved: None }
    }

    fn accepted(claim: ClaimId, usage: Usage, cost: Cost) -> Self {
        Self::new(claim, AttemptOutcome::Accepted, usage, cost)
    }
}

impl Run {
    pub(super) fn begin(id: crate::ids::RunId, first: &SequencedEvent) -> Result<Self, IllegalEvent> {
        match &first.event {
            RunEvent::Accepted { spec } if first.sequence == 1 => {
                let mut run = Self {
                    id,
                    version: 1,
                    changed_at: first.at,
                    spec: Arc::clone(spec),
                    state: RunState::Active,
                    ended_at: None,
                    deadline_at: spec.deadline_at,
                    suspended_at: None,
                    ended_suspended: false,
                    reply: 0,
                    rounds: vec![Round::opened(first.at, None)],
                    hold: spec.hold,
                    booked: Charge::default(),
                };
                run.book(&first.event);
                Ok(run)
            }
            _ => Err(IllegalEvent::nothing_accepted()),
        }
    }

    /// Folds one event in.
    ///
    /// After an error the run may be partly changed and must be discarded.
    pub fn apply(&mut self, event: &SequencedEvent) -> Result<(), IllegalEvent> {
        let illegal = |reason: IllegalReason| IllegalEvent {
            sequence: event.sequence,
            event: event.event.name(),
            reason,
        };
        if event.sequence != self.version + 1 {
            return Err(illegal(IllegalReason::OutOfOrder { last: self.version }));
        }
        if self.is_ended() && !matches!(event.event, RunEvent::ResultUnused { .. }) {
            return Err(illegal(IllegalReason::Ended));
        }
        self.fold(&event.event, event.at).map_err(illegal)?;
        (self.version, self.changed_at) = (event.sequence, event.at);
        self.book(&event.event);
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one arm for every event")]
    fn fold(&mut self, event: &RunEvent, at: Timestamp) -> Result<(), IllegalReason> {
        use RunEvent as E;
        match event {
            E::Accepted { .. } => Err(IllegalReason::AcceptedAgain),
            E::Claimed { task, claim, executor, process, worker, lease_until, reserved } => {
                let (claim, process, lease_until) = (*claim, *process, *lease_until);
                let task = self.task_mut(*task)?;
                step_to(task, TaskEvent::Claimed { claim, process, lease_until })?;
                task.attempts.push(Attempt::new(claim, executor, worker.as_ref(), *reserved, at));
                Ok(())
            }
            E::StepsPlanned { round, claim, head } => self.fold_head(*round, *claim, head),
            E::StepsSuperseded { round, steps } => self.fold_superseded(*round, *steps, at),
            E::PlanReady { round, claim, planned, usage, cost, reserved: _ } => {
                self.fold_accepted(
                    TaskRef::Plan { round: *round },
                    End::accepted(*claim, *usage, *cost),
                    at,
                )?;
                let round = self.grow(*round, planned.plan.len(), |begun| planned.plan.begins_with(begun))?;
                round.planned = Some(Arc::clone(planned));
                Ok(())
            }
            E::AnswerKept { round, claim, usage, cost } => {
                self.fold_accepted(TaskRef::Plan { round: *round }, End::accepted(*claim, *usage, *cost), at)
            }
            E::StepReady { round, step } => {
                let task = self.task_mut(TaskRef::Step { round: *round, step: *step })?;
                step_to(task, TaskEvent::Readied { not_before: at })
            }
            E::StepDone {
                round,
                step,
                claim,
                output,
                calls,
                reasoning,
                reasoning_text,
                usage,
                cost,
                finish,
                stop_sequence,
                first_token_ms,
                saved,
            } => {
                let end = End::accepted(*claim, *usage, *cost);
                let end = End { first_token_ms: *first_token_ms, saved: *saved, ..end };
                self.fold_accepted(TaskRef::Step { round: *round, step: *step }, end, at)?;
                let step = &mut self.round_mut(*round)?.steps[step.as_usize()];
                (step.output, step.finish) = (Some(output.clone()), Some(*finish));
                (step.calls, step.reasoning) = (calls.clone(), reasoning.clone());
                step.reasoning_text.clone_from(reasoning_text);
                step.stop_sequence.clone_from(stop_sequence);
                Ok(())
            }
            E::StepSkipped { round, step, same_as } => {
                self.fold_skipped(StepRef { round: *round, step: *step }, *same_as)
            }
            E::StepCalled { round, step, claim, usage, cost, first_token_ms, .. } => {
                let end = End::accepted(*claim, *usage, *cost);
                let end = End { first_token_ms: *first_token_ms, ..end };
                self.fold_called(StepRef { round: *round, step: *step }, end, event, at)
            }
            E::Suspended => self.fold_suspended(at),
            E::ResultsGiven { results } => self.fold_results(results, at),
            E::AttemptFailed { task, claim, message, retry_at, usage, cost, handed_back, fallback: _ } => {
                let failed = || AttemptOutcome::Failed(message.clone());
                let became = if *handed_back { AttemptOutcome::HandedBack } else { failed() };
                let task = self.task_mut(*task)?;
                step_to(task, TaskEvent::Released { claim: *claim, not_before: *retry_at })?;
                end_attempt(task, End::new(*claim, became, *usage, *cost), at)
            }
            E::FellBack { round, step, worker, message: _, claim: _ } => {
                self.fold_fallback(StepRef { round: *round, step: *step }, worker)
            }
            E::Hedged { round, step, claim, hedge } => {
                self.fold_hedge(StepRef { round: *round, step: *step }, *claim, hedge)
            }
            E::LeaseExpired { task, claim } => {
                let task = self.task_mut(*task)?;
                step_to(task, TaskEvent::Released { claim: *claim, not_before: at })?;
                lose_running(task, at);
                Ok(())
            }
            E::TaskFailed { task, message, claim, usage, cost } => {
                let became = AttemptOutcome::Failed(message.clone());
                let end = claim.map(|claim| End::new(claim, became, *usage, *cost));
                self.fold_failed(*task, message, end, at)
            }
            E::ResultUnused { task, claim, usage, cost } => {
                let task = self.task_mut(*task)?;
                end_attempt(task, End::new(*claim, AttemptOutcome::Unused, *usage, *cost), at)
            }
            E::RoundOpened { round, failed } => self.fold_opened(*round, failed.as_ref(), at),
            E::RoundAbandoned { round, reason } => self.fold_abandoned(*round, reason),
            E::Succeeded { round, step } if self.output(*round, *step).is_none() => {
                Err(IllegalReason::NoOutput)
            }
            E::Succeeded { round, step } => {
                self.fold_end(RunState::Succeeded { round: *round, step: *step }, at)
            }
            E::Failed { reason } => self.fold_end(RunState::Failed { reason: reason.clone() }, at),
            E::Cancelled => self.fold_end(RunState::Cancelled, at),
        }
    }

    fn fold_head(&mut self, round: u16, claim: ClaimId, head: &PlanHead) -> Result<(), IllegalReason> {
        if !self.round_mut(round)?.planning.is_held_by(claim) {
            return Err(IllegalReason::PlanningNotHeld);
        }
        self.grow(round, head.len(), |begun| head.begins_with(begun))?.head = Some(head.clone());
        Ok(())
    }

    fn fold_superseded(&mut self, round: u16, steps: u16, at: Timestamp) -> Result<(), IllegalReason> {
        let round = self.round_mut(round)?;
        if round.planned.is_some() || steps == 0 || usize::from(steps) != round.steps.len() {
            return Err(IllegalReason::OtherStepsSuperseded);
        }
        round.superseded = steps;
        round.steps.iter_mut().try_for_each(|step| call_off(&mut step.task, at))
    }

    /// Adds steps up to `steps`. The existing ones must be the first of them.
    fn grow(
        &mut self,
        round: u16,
        steps: usize,
        begin_with: impl Fn(&PlanHead) -> bool,
    ) -> Result<&mut Round, IllegalReason> {
        let round = self.round_mut(round)?;
        if !round.head.as_ref().is_none_or(begin_with) {
            return Err(IllegalReason::StepsMissing);
        }
        round.steps.resize_with(steps, StepRun::waiting);
        Ok(round)
    }

    fn fold_fallback(&mut self, step: StepRef, worker: &WorkerId) -> Result<(), IllegalReason> {
        let task = self.task_mut(step.into())?;
        if !matches!(task.state, TaskState::Ready { .. }) {
            return Err(IllegalReason::NoFallback { state: task.state.as_str() });
        }
        let step = &mut self.round_mut(step.round)?.steps[step.step.as_usize()];
        step.worker = Some(worker.clone());
        step.fallbacks = step.fallbacks.saturating_add(1);
        Ok(())
    }

    fn fold_hedge(&mut self, step: StepRef, claim: ClaimId, hedge: &OtherCall) -> Result<(), IllegalReason> {
        let task = self.task_mut(step.into())?;
        if task.state.is_final() {
            return Err(IllegalReason::TaskEnded);
        }
        let attempt = attempt_mut(task, claim)?;
        (attempt.usage, attempt.cost) = (hedge.usage, hedge.cost);
        Ok(())
    }

    fn fold_opened(
        &mut self,
        round: u16,
        failed: Option<&FailReason>,
        at: Timestamp,
    ) -> Result<(), IllegalReason> {
        if usize::from(round) != self.rounds.len() {
            return Err(IllegalReason::RoundOutOfOrder { round });
        }
        self.cancel_open_tasks(at)?;
        self.rounds.push(Round::opened(at, failed.cloned()));
        Ok(())
    }

    fn fold_abandoned(&mut self, round: u16, reason: &FailReason) -> Result<(), IllegalReason> {
        if round == 0 || round != self.current_round() {
            return Err(IllegalReason::NoFollowUp { round });
        }
        self.round_mut(round)?.abandoned = Some(reason.clone());
        Ok(())
    }

    fn fold_accepted(&mut self, task: TaskRef, end: End, at: Timestamp) -> Result<(), IllegalReason> {
        accept(self.task_mut(task)?, TaskEvent::Completed, end, at)
    }

    fn fold_skipped(&mut self, of: StepRef, same_as: StepIndex) -> Result<(), IllegalReason> {
        let steps = &mut self.round_mut(of.round)?.steps;
        let source =
            steps.get(same_as.as_usize()).filter(|source| same_as < of.step && source.output.is_some());
        let source = source.ok_or(IllegalReason::NoOutput)?.clone();
        let skipped = steps.get_mut(of.step.as_usize()).ok_or(IllegalReason::NoTask { task: of.into() })?;
        step_to(&mut skipped.task, TaskEvent::Skipped)?;
        let StepRun { output, finish, reasoning_text, stop_sequence, .. } = source;
        (skipped.output, skipped.finish, skipped.reasoning_text) = (output, finish, reasoning_text);
        (skipped.stop_sequence, skipped.same_as) = (stop_sequence, Some(same_as));
        Ok(())
    }

    fn fold_called(
        &mut self,
        step: StepRef,
        end: End,
        event: &RunEvent,
        at: Timestamp,
    ) -> Result<(), IllegalReason> {
        let RunEvent::StepCalled { text, calls, reasoning, reasoning_text, .. } = event else {
            return Err(IllegalReason::NoCalls);
        };
        let (claim, reply) = (end.claim, self.reply);
        let task = self.task_mut(step.into())?;
        accept(task, TaskEvent::Called, end, at)?;
        let worker = attempt_mut(task, claim)?.worker.clone().ok_or(IllegalReason::NoWorker)?;
        let (text, calls, reasoning) = (text.clone(), calls.clone(), reasoning.clone());
        let (reasoning_text, results) = (reasoning_text.clone(), Vec::new());
        let turn = ToolTurn { reply, claim, worker, text, calls, reasoning, reasoning_text, results };
        self.round_mut(step.round)?.steps[step.step.as_usize()].turns.push(Arc::new(turn));
        Ok(())
    }

    fn fold_suspended(&mut self, at: Timestamp) -> Result<(), IllegalReason> {
        if !self.has_only_calls() {
            return Err(IllegalReason::WaitsForNoClient);
        }
        self.state = RunState::Suspended;
        self.suspended_at = Some(at);
        Ok(())
    }

    fn fold_results(&mut self, results: &[Message], at: Timestamp) -> Result<(), IllegalReason> {
        let since = self.suspended_at.take().ok_or(IllegalReason::NotSuspended)?;
        self.state = RunState::Active;
        self.deadline_at = self.deadline_at.after(at.since(since));
        self.reply = self.reply.saturating_add(1);
        let id = self.id;
        for (number, round) in (0u16..).zip(&mut self.rounds) {
            round.planning.earlier = round.planning.attempts.len();
            for (index, step) in (0u16..).zip(&mut round.steps) {
                step.task.earlier = step.task.attempts.len();
                if step.task.state != TaskState::Calling {
                    continue;
                }
                step_to(&mut step.task, TaskEvent::Resumed { not_before: at })?;
                let of = StepRef { round: number, step: StepIndex::new(index) };
                if let Some(turn) = step.turns.last_mut().map(Arc::make_mut) {
                    turn.results = turn.own_results(id, of, results);
                }
            }
        }
        Ok(())
    }

    fn fold_failed(
        &mut self,
        task: TaskRef,
        message: &str,
        end: Option<End>,
        at: Timestamp,
    ) -> Result<(), IllegalReason> {
        if let TaskRef::Step { round, step } = task
            && let Some(step) = self.round_mut(round)?.steps.get_mut(step.as_usize())
        {
            step.error = Some(message.to_owned());
        }
        let task = self.task_mut(task)?;
        step_to(task, TaskEvent::Failed)?;
        if let Some(end) = end {
            end_attempt(task, end, at)?;
        }
        lose_running(task, at);
        Ok(())
    }

    fn fold_end(&mut self, state: RunState, at: Timestamp) -> Result<(), IllegalReason> {
        self.cancel_open_tasks(at)?;
        self.ended_suspended = self.is_suspended();
        self.state = state;
        self.ended_at = Some(at);
        self.suspended_at = None;
        Ok(())
    }

    fn cancel_open_tasks(&mut self, at: Timestamp) -> Result<(), IllegalReason> {
        for round in &mut self.rounds {
            let steps = round.steps.iter_mut().map(|step| &mut step.task);
            for task in std::iter::once(&mut round.planning).chain(steps) {
                call_off(task, at)?;
            }
        }
        Ok(())
    }

    fn round_mut(&mut self, round: u16) -> Result<&mut Round, IllegalReason> {
        self.rounds.get_mut(usize::from(round)).ok_or(IllegalReason::NoRound { round })
    }

    fn task_mut(&mut self, task: TaskRef) -> Result<&mut Task, IllegalReason> {
        let round = self.round_mut(task.round())?;
        match task {
            TaskRef::Plan { .. } => Some(&mut round.planning),
            TaskRef::Step { step, .. } => round.steps.get_mut(step.as_usize()).map(|step| &mut step.task),
        }
        .ok_or(IllegalReason::NoTask { task })
    }
}

fn step_to(task: &mut Task, event: TaskEvent) -> Result<(), IllegalReason> {
    let next = task.state.next(event).ok_or_else(|| IllegalReason::NoTransition {
        state: task.state.as_str(),
        event: format!("{event:?}"),
    })?;
    task.state = next;
    Ok(())
}

/// Cancels a task that has not ended, because its result is not needed.
fn call_off(task: &mut Task, at: Timestamp) -> Result<(), IllegalReason> {
    step_to(task, TaskEvent::CalledOff)?;
    lose_running(task, at);
    Ok(())
}

/// Makes the result of an attempt that of its task.
fn accept(task: &mut Task, event: TaskEvent, end: End, at: Timestamp) -> Result<(), IllegalReason> {
    step_to(task, event)?;
    end_attempt(task, end, at)?;
    lose_running(task, at);
    Ok(())
}

fn end_attempt(task: &mut Task, end: End, at: Timestamp) -> Result<(), IllegalReason> {
    let attempt = attempt_mut(task, end.claim)?;
    attempt.outcome = end.became;
    // Both are zero until here, except for an attempt with a second call.
    attempt.usage += end.spent.usage;
    attempt.cost += end.spent.cost;
    attempt.first_token_ms = end.first_token_ms;
    attempt.saved = end.saved;
    attempt.ended_at = Some(at);
    Ok(())
}

fn attempt_mut(task: &mut Task, claim: ClaimId) -> Result<&mut Attempt, IllegalReason> {
    let attempt = task.attempts.iter_mut().find(|attempt| attempt.claim == claim);
    attempt.ok_or(IllegalReason::NoAttempt { claim })
}

/// Marks running attempts as lost; their results will not be used.
fn lose_running(task: &mut Task, at: Timestamp) {
    for attempt in task.attempts.iter_mut().filter(|a| a.outcome == AttemptOutcome::Running) {
        attempt.outcome = AttemptOutcome::Lost;
        attempt.ended_at = Some(at);
    }
}
