//! Turns commands into events. Pure: the run is not changed, the events are returned.

use std::sync::Arc;

use super::command::{
    AttemptError, Claim, Command, Decision, Effect, FinishReason, PlanResult, Planned, Refusal, StepResult,
};
use super::event::{FailReason, RATE_LIMITED, RunEvent};
use super::settle::{Sight, Steps};
use super::task::{Attempt, AttemptOutcome, StepRef, TaskRef, TaskState};
use super::{Run, RunState};
use crate::budget::Shortage;
use crate::ids::{ClaimId, StepIndex, WorkerId};
use crate::money::Cost;
use crate::time::Timestamp;
use crate::usage::Spent;

impl Run {
    /// The events and effects of `command` at `now`, or the reason of its refusal.
    ///
    /// A repeated command that has already succeeded gives an empty decision, so a caller that does not know whether its commit
    /// succeeded can simply repeat it. To see whether a claim was granted, call [`super::Task::is_held_by`] afterwards: the decision
    /// may end the run instead, if the deadline has passed or the cost cap would be exceeded.
    pub fn decide(&self, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
        Ok(self.suspending(self.decide_unbounded(command, now)?.bounded(self), now))
    }

    /// The same decision, with costs as the vendors report them.
    fn decide_unbounded(&self, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
        match command {
            Command::Claim { task, claim } => self.decide_claim(*task, claim, now),
            Command::BeginSteps { round, claim, head } => self.decide_head(*round, *claim, head, now),
            Command::CompletePlan { round, claim, result, spent, reserve } => {
                self.decide_plan(*round, *claim, result, *spent, *reserve, now)
            }
            Command::CompleteStep { round, step, claim, result } => {
                self.decide_step(*round, *step, *claim, result, now)
            }
            Command::FallBack { step, from, worker, message } => {
                self.decide_fallback(*step, from, worker, message, now)
            }
            Command::FailAttempt { task, claim, error } => self.decide_failure(*task, *claim, error, now),
            Command::HandBack { task, claim, spent } => self.decide_hand_back(*task, *claim, *spent, now),
            Command::ExpireLease { task, claim } => self.decide_expiry(*task, *claim, now),
            Command::CheckDeadline | Command::Expire if self.is_ended() => Err(Refusal::Ended),
            Command::Expire => Ok(self.expire()),
            Command::CheckDeadline => Ok(self.overdue(now).unwrap_or_default()),
            Command::GiveResults { results } => self.decide_results(results, now),
            Command::ReleaseLost => self.decide_release(),
            Command::Cancel => match self.state {
                RunState::Active | RunState::Suspended => {
                    Ok(Decision { events: vec![RunEvent::Cancelled], effects: vec![Effect::Stop] })
                }
                RunState::Cancelled => Ok(Decision::default()),
                _ => Err(Refusal::Ended),
            },
        }
    }

    /// As [`Self::decide`], if a budget lacks the capacity for the command: the run ends instead, or the answer of an earlier round
    /// stands. The cost of planning so far is recorded.
    pub fn decide_over_budget(
        &self,
        command: &Command,
        shortage: &Shortage,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let decision = self.decide(command, now)?;
        if !decision.events.iter().any(RunEvent::permits_spending) {
            return Ok(decision);
        }
        let mut events = Vec::new();
        if let Command::CompletePlan { round, claim, spent, .. } = command {
            events.push(unused(TaskRef::Plan { round: *round }, *claim, *spent));
        }
        let reason = FailReason::BudgetExhausted { shortage: shortage.clone() };
        Ok(self.end_round_without(reason, events).bounded(self))
    }

    fn decide_claim(&self, task: TaskRef, claim: &Claim, now: Timestamp) -> Result<Decision, Refusal> {
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        match &found.state {
            // A lost claim is not granted again, because its attempt has ended.
            TaskState::Ready { .. } if found.attempt(claim.id).is_some() => return Err(Refusal::ClaimLost),
            TaskState::Running { claim: holder, .. } if *holder == claim.id => return Ok(Decision::default()),
            // Only a failed attempt delays a task. If the first attempt has a later time, a process with a wrong clock wrote it.
            TaskState::Ready { .. } if found.attempts.is_empty() => {}
            state => state.check_claimable(now)?,
        }
        if let Some(end) = self.overdue(now) {
            return Ok(end);
        }
        let cost_max = self.spec.request.policy.cost_max;
        let needed = self.cost() + self.reserved() + claim.reserve;
        if let Some(cost_max) = cost_max.filter(|max| needed > *max) {
            let reason = FailReason::CostCapReached { cost_max, spent: self.cost() };
            return Ok(self.end_round_without(reason, vec![]));
        }
        let claimed = RunEvent::Claimed {
            task,
            claim: claim.id,
            executor: claim.executor.clone(),
            process: Some(claim.process),
            worker: self.worker_of(task).cloned(),
            lease_until: claim.lease_until,
            reserved: claim.reserve,
        };
        Ok(Decision { events: vec![claimed], effects: vec![] })
    }

    fn decide_plan(
        &self,
        round: u16,
        claim: ClaimId,
        result: &PlanResult,
        spent: Spent,
        reserved: Cost,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if let Some(decision) = self.late_result(TaskRef::Plan { round }, claim, spent)? {
            return Ok(decision);
        }
        let Spent { usage, cost } = spent;
        match result {
            PlanResult::Plan(planned) => {
                let mut decision = Decision::default();
                let plan = if round == 0 { planned.plan.of_first_round() } else { planned.plan.clone() };
                let planned = &Planned { plan, ..planned.clone() };
                let (plan, sights) = self.with_head(round, planned, &mut decision);
                let planned = Arc::new(Planned { plan: plan.clone(), ..planned.clone() });
                decision.events.push(RunEvent::PlanReady { round, claim, planned, usage, cost, reserved });
                let steps = Steps { round, known: plan.steps(), last: Some(plan.final_step()) };
                self.settle(&steps, sights, now, &mut decision);
                Ok(decision)
            }
            PlanResult::KeepAnswer => {
                let (answered, step) = self.earlier_answer(round).ok_or(Refusal::NoAnswerToKeep)?;
                let kept = RunEvent::AnswerKept { round, claim, usage, cost };
                let succeeded = RunEvent::Succeeded { round: answered, step };
                Ok(Decision { events: vec![kept, succeeded], effects: vec![Effect::Stop] })
            }
        }
    }

    fn decide_step(
        &self,
        round: u16,
        step: StepIndex,
        claim: ClaimId,
        result: &StepResult,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let of = StepRef { round, step };
        let suspends = self.spec.request.suspends();
        let calls = if suspends && !self.may_call(of) { &[][..] } else { &result.calls };
        // A worker that declines, or that calls tools, may return an empty output. A stop sequence may end an answer before its first word.
        let may_be_stopped = result.finish == FinishReason::Stop
            && !self.spec.request.stops.is_empty()
            && self.may_be_answer(of);
        // Reasoning may use up the client's limit.
        let is_limited = result.finish == FinishReason::Length && self.answer_tokens_max_of(of).is_some();
        let may_be_blank =
            result.finish == FinishReason::ContentFilter || !calls.is_empty() || may_be_stopped || is_limited;
        if result.output.trim().is_empty() && !may_be_blank {
            return Err(Refusal::BlankOutput);
        }
        if let Some(decision) = self.late_result(of.into(), claim, result.spent)? {
            return Ok(decision);
        }
        if suspends && !calls.is_empty() {
            return Ok(self.decide_calls(of, claim, result, now));
        }
        let mut decision = Decision::default();
        decision.events.push(RunEvent::StepDone {
            round,
            step,
            claim,
            output: result.output.clone(),
            calls: calls.to_vec(),
            reasoning: result.reasoning.clone(),
            reasoning_text: result.reasoning_text.clone(),
            usage: result.spent.usage,
            cost: result.spent.cost,
            finish: result.finish,
            stop_sequence: result.stop_sequence.clone(),
            first_token_ms: result.first_token_ms,
            saved: result.saved,
        });
        if !calls.is_empty() && round == self.current_round() && self.is_final_step(round, step) {
            // The client has the next turn, so no follow-up round judges this one.
            decision.events.push(RunEvent::Succeeded { round, step });
            decision.effects.push(Effect::Stop);
            return Ok(decision);
        }
        self.settle_after(round, step, Sight::of_result(result.finish), now, &mut decision);
        Ok(decision)
    }

    /// The decision on a result for a task that has ended: it is recorded once as paid and unused. `None` if the task still needs a
    /// result.
    fn late_result(&self, task: TaskRef, claim: ClaimId, spent: Spent) -> Result<Option<Decision>, Refusal> {
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        let attempt = found.attempt(claim).ok_or(Refusal::ClaimLost)?;
        let is_billed = spent != Spent::NONE;
        let needs_result = matches!(found.state, TaskState::Ready { .. } | TaskState::Running { .. });
        match &attempt.outcome {
            // A result for an earlier turn is no result of this one.
            _ if needs_result && !found.is_earlier(claim) => Ok(None),
            AttemptOutcome::Accepted => Ok(Some(Decision::default())),
            AttemptOutcome::Unused if !(attempt.is_unbilled() && is_billed) => Ok(Some(Decision::default())),
            AttemptOutcome::Failed(_) | AttemptOutcome::HandedBack => Err(Refusal::Ended),
            AttemptOutcome::Running | AttemptOutcome::Lost | AttemptOutcome::Unused => {
                Ok(Some(Decision { events: vec![unused(task, claim, spent)], effects: vec![] }))
            }
        }
    }

    fn decide_failure(
        &self,
        task: TaskRef,
        claim: ClaimId,
        error: &AttemptError,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        let attempt = found.attempt(claim).ok_or(Refusal::ClaimLost)?;
        if !found.is_held_by(claim) {
            return self.late_failure(task, attempt, error.spent);
        }
        let Spent { usage, cost } = error.spent;
        let mut message = error.message.clone();
        let retry_at = error.retry_at.map(|at| at.max(now)).filter(|_| {
            error.is_rate_limit
                || found.attempts_with(self.worker_of(task)) < self.spec.request.policy.attempts_max
        });
        // A retry after the deadline would hide the real error behind it, so the error is reported now.
        let in_time = retry_at.filter(|at| *at < self.deadline_at);
        if in_time.is_none() && retry_at.is_some() {
            message.push_str("; the next attempt would begin after the deadline");
            if error.is_rate_limit {
                message = format!("{RATE_LIMITED}: {message}");
            }
        }
        let fall_back_to = error.fall_back_to.as_ref();
        let fallback =
            fall_back_to.filter(|worker| in_time.is_none() && self.may_fall_back(task, worker, now));
        let Some(retry_at) = in_time.or_else(|| fallback.map(|_| now)) else {
            let claim = Some(claim);
            let failed = RunEvent::TaskFailed { task, message: message.clone(), claim, usage, cost };
            return Ok(self.after_failure(task, &message, failed, now));
        };
        let handed_back = error.is_rate_limit && in_time.is_some();
        let fell_back = fallback.zip(task.step()).map(|(worker, StepRef { round, step })| {
            let (worker, message, claim) = (worker.clone(), message.clone(), Some(claim));
            RunEvent::FellBack { round, step, worker, message, claim }
        });
        let fallback = fallback.cloned();
        let failed =
            RunEvent::AttemptFailed { task, claim, message, retry_at, usage, cost, handed_back, fallback };
        let events = std::iter::once(failed).chain(fell_back).collect();
        Ok(Decision { events, effects: vec![Effect::Dispatch { task, not_before: retry_at }] })
    }

    /// Whether the step may continue with `worker`: the policy allows it, and the step has not tried it.
    fn may_fall_back(&self, task: TaskRef, worker: &WorkerId, now: Timestamp) -> bool {
        self.can_fall_back(task)
            && self.spec.request.policy.allows(worker)
            && self.worker_of(task) != Some(worker)
            && self.task(task).is_some_and(|task| !task.has_tried(worker))
            && now < self.deadline_at
    }

    fn decide_fallback(
        &self,
        step: StepRef,
        from: &WorkerId,
        worker: &WorkerId,
        message: &str,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let task = TaskRef::from(step);
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        let has_it = self.worker_of(task);
        if has_it == Some(worker) && !found.state.is_final() {
            return Ok(Decision::default());
        }
        found.state.check_claimable(now)?;
        if has_it != Some(from) || !self.may_fall_back(task, worker, now) {
            return Err(Refusal::NoFallback);
        }
        let (StepRef { round, step }, worker, message) = (step, worker.clone(), message.to_owned());
        let fell_back = RunEvent::FellBack { round, step, worker, message, claim: None };
        Ok(Decision { events: vec![fell_back], effects: vec![Effect::Dispatch { task, not_before: now }] })
    }

    fn decide_hand_back(
        &self,
        task: TaskRef,
        claim: ClaimId,
        spent: Spent,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        let attempt = found.attempt(claim).ok_or(Refusal::ClaimLost)?;
        if !found.is_held_by(claim) {
            return self.late_failure(task, attempt, spent);
        }
        let Spent { usage, cost } = spent;
        let message = "handed back: the executor could not continue".to_owned();
        let (retry_at, handed_back, fallback) = (now, true, None);
        let failed =
            RunEvent::AttemptFailed { task, claim, message, retry_at, usage, cost, handed_back, fallback };
        Ok(Decision { events: vec![failed], effects: vec![Effect::Dispatch { task, not_before: now }] })
    }

    fn decide_expiry(&self, task: TaskRef, claim: ClaimId, now: Timestamp) -> Result<Decision, Refusal> {
        let found = self.task(task).ok_or(Refusal::UnknownTask)?;
        if !found.is_held_by(claim) {
            return Err(Refusal::ClaimLost);
        }
        if found.attempts_with(self.worker_of(task)) < self.spec.request.policy.attempts_max {
            let dispatch = Effect::Dispatch { task, not_before: now };
            return Ok(Decision {
                events: vec![RunEvent::LeaseExpired { task, claim }],
                effects: vec![dispatch],
            });
        }
        let message = format!("the executor of attempt {} did not report", found.attempt_number());
        let Spent { usage, cost } = Spent::NONE;
        let failed = RunEvent::TaskFailed { task, message: message.clone(), claim: None, usage, cost };
        Ok(self.after_failure(task, &message, failed, now))
    }

    fn after_failure(&self, task: TaskRef, message: &str, failed: RunEvent, now: Timestamp) -> Decision {
        match task {
            TaskRef::Plan { .. } => {
                let reason = FailReason::PlanningFailed { message: message.to_owned() };
                self.end_round_without(reason, vec![failed])
            }
            TaskRef::Step { round, step } => {
                let mut decision = Decision { events: vec![failed], effects: vec![] };
                self.settle_after(round, step, Sight::Failed, now, &mut decision);
                decision
            }
        }
    }

    pub(super) fn overdue(&self, now: Timestamp) -> Option<Decision> {
        (now >= self.due_at()).then(|| self.expire())
    }

    /// Ends the run, or its round, because its time is over.
    fn expire(&self) -> Decision {
        let policy = &self.spec.request.policy;
        let reason = match self.state {
            RunState::Suspended => FailReason::SuspensionExpired { suspended_ms: policy.suspended_ms_max },
            _ => FailReason::DeadlineExceeded { deadline_ms: policy.deadline_ms },
        };
        self.end_round_without(reason, vec![])
    }

    /// The decision on a failure whose executor had lost its claim: it changes only the costs, which are recorded once. If budgets
    /// hold a reservation for the attempt, a cost of zero is recorded too.
    fn late_failure(&self, task: TaskRef, attempt: &Attempt, spent: Spent) -> Result<Decision, Refusal> {
        let is_awaited = !self.spec.budgets.is_empty() && !attempt.reserved.is_zero();
        let is_billed = spent != Spent::NONE;
        let is_news = match attempt.outcome {
            AttemptOutcome::Lost => is_billed || is_awaited,
            AttemptOutcome::Unused if attempt.is_unbilled() => is_billed,
            AttemptOutcome::Failed(_) | AttemptOutcome::HandedBack => return Ok(Decision::default()),
            _ => return Err(Refusal::ClaimLost),
        };
        if !is_news {
            return Err(Refusal::ClaimLost);
        }
        Ok(Decision { events: vec![unused(task, attempt.claim, spent)], effects: vec![] })
    }
}

fn unused(task: TaskRef, claim: ClaimId, Spent { usage, cost }: Spent) -> RunEvent {
    RunEvent::ResultUnused { task, claim, usage, cost }
}

impl TaskState {
    /// Whether the task can be claimed now; otherwise the reason.
    fn check_claimable(&self, now: Timestamp) -> Result<(), Refusal> {
        match self {
            Self::Ready { not_before } if now < *not_before => Err(Refusal::NotBefore(*not_before)),
            Self::Ready { .. } => Ok(()),
            Self::Running { .. } => Err(Refusal::Held),
            Self::Calling => Err(Refusal::Calling),
            Self::Waiting => Err(Refusal::Waiting),
            Self::Done | Self::Skipped | Self::Failed | Self::Cancelled => Err(Refusal::Ended),
        }
    }
}
