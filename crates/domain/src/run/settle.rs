//! How a round continues after a step has ended, and how a round ends.

use super::Run;
use super::command::{Decision, Effect, FinishReason};
use super::event::{FailReason, RunEvent};
use super::failure::declined;
use super::task::{TaskRef, TaskState};
use super::{Round, StepRun};
use crate::agreement::agree;
use crate::ids::StepIndex;
use crate::money::Cost;
use crate::plan::{Plan, PlanHead, Step};
use crate::policy::{FailedStep, Tier};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Whether a step has an output for the steps that see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Waiting,
    Open,
    /// Its worker waits for the client.
    Calling,
    Done,
    /// Its worker declined: a result for the client, but no output for the steps that see it.
    Declined,
    Failed,
}

impl Sight {
    fn of(step: &StepRun) -> Self {
        match step.task.state {
            TaskState::Waiting => Self::Waiting,
            TaskState::Ready { .. } | TaskState::Running { .. } => Self::Open,
            TaskState::Calling => Self::Calling,
            TaskState::Done | TaskState::Skipped => {
                Self::of_result(step.finish.unwrap_or(FinishReason::Stop))
            }
            TaskState::Failed | TaskState::Cancelled => Self::Failed,
        }
    }

    pub(super) fn of_result(finish: FinishReason) -> Self {
        match finish {
            FinishReason::ContentFilter => Self::Declined,
            FinishReason::Stop | FinishReason::Length | FinishReason::ToolCalls => Self::Done,
        }
    }

    const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Declined | Self::Failed)
    }

    pub(super) const fn is_missing(self) -> bool {
        matches!(self, Self::Declined | Self::Failed)
    }
}

/// The known steps of a round.
pub(super) struct Steps<'a> {
    pub(super) round: u16,
    pub(super) known: &'a [Step],
    /// The step whose output is the answer; `None` while the plan is being written.
    pub(super) last: Option<StepIndex>,
}

impl Round {
    pub(super) fn sights(&self) -> Vec<Sight> {
        self.steps.iter().map(Sight::of).collect()
    }
}

impl Run {
    pub(super) fn settle_after(
        &self,
        round: u16,
        step: StepIndex,
        became: Sight,
        now: Timestamp,
        decision: &mut Decision,
    ) {
        if round != self.current_round() {
            return;
        }
        let Some(current) = self.rounds.get(usize::from(round)) else {
            return;
        };
        let mut sights = current.sights();
        sights[step.as_usize()] = became;
        let last = current.plan().map(Plan::final_step);
        self.settle(&Steps { round, known: current.known_steps(), last }, sights, now, decision);
    }

    /// Fails every waiting step that lost a needed input, skips or readies every other one whose inputs are complete, and ends the
    /// round when its final step has ended.
    pub(super) fn settle(
        &self,
        steps: &Steps<'_>,
        mut sights: Vec<Sight>,
        now: Timestamp,
        decision: &mut Decision,
    ) {
        self.fail_dependents(steps, &mut sights, decision);
        let sight_of_last = |sights: &[Sight]| steps.last.map(|step| (step, sights[step.as_usize()]));
        // A round that cannot answer begins no more steps. Running ones are paid for, and a corrective plan may use their outputs.
        if !matches!(sight_of_last(&sights), Some((_, Sight::Failed))) {
            self.ready_steps(steps, &mut sights, now, decision);
        }
        match sight_of_last(&sights) {
            None | Some((_, Sight::Waiting | Sight::Open | Sight::Calling)) => {}
            Some((step, Sight::Done | Sight::Declined)) => {
                self.end_round_with(steps.round, step, now, decision);
            }
            Some((step, Sight::Failed)) => {
                let may_replan = self.may_replan(steps.round, now);
                if may_replan && sights.contains(&Sight::Open) {
                    return;
                }
                let reason = self.reason(steps, &sights, step, &decision.events);
                let events = std::mem::take(&mut decision.events);
                *decision = if may_replan {
                    Self::replan(steps.round + 1, reason, events, now)
                } else {
                    self.end_round_without(reason, events)
                };
            }
        }
    }

    /// Fails the waiting steps that lost a needed input: depending on the policy, one of their inputs or all of them. One pass is
    /// enough, because a step sees earlier steps only.
    fn fail_dependents(&self, steps: &Steps<'_>, sights: &mut [Sight], decision: &mut Decision) {
        let goes_on = self.spec.request.policy.failed_step == FailedStep::Continue;
        for (index, step) in (0u16..).map(StepIndex::new).zip(steps.known) {
            let seen = step.access.as_slice();
            let is_missing = |seen: &&StepIndex| sights[seen.as_usize()].is_missing();
            let Some(missing) = seen.iter().find(is_missing) else { continue };
            let is_lost = !goes_on || seen.iter().all(|seen| is_missing(&seen));
            if sights[index.as_usize()] != Sight::Waiting || !is_lost {
                continue;
            }
            let message = if goes_on {
                "none of the steps that it sees has an output".to_owned()
            } else {
                format!("it sees step {missing}, which has no output")
            };
            sights[index.as_usize()] = Sight::Failed;
            let task = TaskRef::Step { round: steps.round, step: index };
            let (claim, usage, cost) = (None, Usage::default(), Cost::ZERO);
            decision.events.push(RunEvent::TaskFailed { task, message, claim, usage, cost });
        }
    }

    fn ready_steps(&self, steps: &Steps<'_>, sights: &mut [Sight], now: Timestamp, decision: &mut Decision) {
        let is_one_at_a_time = self.spec.request.runs_one_step_at_a_time();
        for (index, step) in (0u16..).map(StepIndex::new).zip(steps.known) {
            if is_one_at_a_time && sights.iter().any(|sight| matches!(sight, Sight::Open | Sight::Calling)) {
                break;
            }
            let has_ended = |seen: &StepIndex| sights[seen.as_usize()].has_ended();
            let mut needed = step.access.as_slice().iter().chain(step.unless_agree.as_slice());
            if sights[index.as_usize()] != Sight::Waiting || !needed.all(has_ended) {
                continue;
            }
            if let Some(same_as) = self.taken_over(steps, index, step, &decision.events) {
                sights[index.as_usize()] = Sight::Done;
                decision.events.push(RunEvent::StepSkipped { round: steps.round, step: index, same_as });
                continue;
            }
            sights[index.as_usize()] = Sight::Open;
            let task = TaskRef::Step { round: steps.round, step: index };
            decision.events.push(RunEvent::StepReady { round: steps.round, step: index });
            decision.effects.push(Effect::Dispatch { task, not_before: now });
        }
    }

    /// The step whose output `step` takes over, if its condition holds: all steps that it names ended with a complete output, and the
    /// answers agree. `events` are those that are decided and not applied. A final step that alone may call tools is never skipped.
    fn taken_over(
        &self,
        steps: &Steps<'_>,
        index: StepIndex,
        step: &Step,
        events: &[RunEvent],
    ) -> Option<StepIndex> {
        let named = step.unless_agree.as_slice();
        let request = &self.spec.request;
        // A step that began before its plan was complete was not asked for an answer in the client's form.
        let began = self.rounds.get(usize::from(steps.round)).and_then(|round| round.head.as_ref());
        let began = began.map_or(0, PlanHead::len);
        if request.shapes_answer() && named.first().is_some_and(|first| first.as_usize() < began) {
            return None;
        }
        let alone_may_call = !request.suspends() && request.offered_tools().is_some();
        if named.is_empty() || (alone_may_call && steps.last == Some(index)) {
            return None;
        }
        let outputs: Option<Vec<&str>> =
            named.iter().map(|step| self.complete_output(steps.round, *step, events)).collect();
        agree(outputs?).then(|| named.first().copied())?
    }

    /// The output of a step whose worker stopped by itself, also if `events` have yet to give it the output.
    fn complete_output<'a>(&'a self, round: u16, step: StepIndex, events: &'a [RunEvent]) -> Option<&'a str> {
        let decided = events.iter().find_map(|event| match event {
            RunEvent::StepDone { round: of, step: done, output, finish, .. }
                if (*of, *done) == (round, step) =>
            {
                Some((output.as_str(), *finish))
            }
            RunEvent::StepSkipped { round: of, step: skipped, same_as }
                if (*of, *skipped) == (round, step) =>
            {
                Some((self.complete_output(round, *same_as, events)?, FinishReason::Stop))
            }
            _ => None,
        });
        let known = || {
            let found = self.rounds.get(usize::from(round))?.steps.get(step.as_usize())?;
            Some((found.output.as_deref()?, found.finish?))
        };
        decided.or_else(known).filter(|(_, finish)| *finish == FinishReason::Stop).map(|(output, _)| output)
    }

    /// The reason of a round whose final step failed: the first failed step on the way to it.
    fn reason(
        &self,
        steps: &Steps<'_>,
        sights: &[Sight],
        last: StepIndex,
        events: &[RunEvent],
    ) -> FailReason {
        let round = self.rounds.get(usize::from(steps.round));
        let was_tried = |step: StepIndex| {
            let known = round.and_then(|round| round.steps.get(step.as_usize()));
            known.is_some_and(|step| !step.task.attempts.is_empty())
        };
        let mut step = last;
        while !was_tried(step) {
            let seen = steps.known[step.as_usize()].access.as_slice();
            let Some(missing) = seen.iter().find(|seen| sights[seen.as_usize()].is_missing()) else { break };
            step = *missing;
        }
        let task = TaskRef::Step { round: steps.round, step };
        let worker =
            self.worker_of(task).or_else(|| steps.known.get(step.as_usize()).map(|step| &step.worker));
        let now = events.iter().find_map(|event| match event {
            RunEvent::TaskFailed { task: failed, message, .. } if *failed == task => Some(message.clone()),
            RunEvent::StepDone { round, step: done, output, .. }
                if (*round, *done) == (steps.round, step) =>
            {
                Some(declined(output))
            }
            _ => None,
        });
        let message = now.or_else(|| round?.steps.get(step.as_usize())?.missing_because());
        FailReason::FinalStepFailed {
            step,
            worker: worker.cloned(),
            message: message.unwrap_or_else(|| "its last attempt failed".to_owned()),
            is_earlier: step != last,
        }
    }

    /// Whether a corrective round follows a round without an answer: once per run, if the policy says so and there is time. If an
    /// earlier round answered, that answer stands instead.
    fn may_replan(&self, round: u16, now: Timestamp) -> bool {
        let policy = &self.spec.request.policy;
        policy.failed_step == FailedStep::Replan
            && policy.tier == Tier::Ultra
            && now < self.deadline_at
            && self.earlier_answer(round).is_none()
            && self.replanned_because().is_none()
    }

    fn replan(round: u16, failed: FailReason, mut events: Vec<RunEvent>, now: Timestamp) -> Decision {
        events.push(RunEvent::RoundOpened { round, failed: Some(failed) });
        let dispatch = Effect::Dispatch { task: TaskRef::Plan { round }, not_before: now };
        Decision { events, effects: vec![dispatch] }
    }

    /// Ends the current round without an answer. An earlier round's answer stands, and the log says why. Otherwise the run fails; if
    /// the round was corrective, with the failure that it should have corrected.
    pub(super) fn end_round_without(&self, reason: FailReason, mut events: Vec<RunEvent>) -> Decision {
        let round = self.current_round();
        match (self.earlier_answer(round), self.replanned_because()) {
            (Some((answered, step)), _) => {
                events.push(RunEvent::RoundAbandoned { round, reason });
                events.push(RunEvent::Succeeded { round: answered, step });
            }
            (None, Some(first)) => {
                events.push(RunEvent::RoundAbandoned { round, reason });
                events.push(RunEvent::Failed { reason: first.clone() });
            }
            (None, None) => events.push(RunEvent::Failed { reason }),
        }
        Decision { events, effects: vec![Effect::Stop] }
    }

    /// The final step of the round before `round`, if it has an output.
    pub(super) fn earlier_answer(&self, round: u16) -> Option<(u16, StepIndex)> {
        let earlier = round.checked_sub(1)?;
        let step = self.rounds.get(usize::from(earlier))?.plan()?.final_step();
        self.output(earlier, step).map(|_| (earlier, step))
    }

    fn end_round_with(&self, round: u16, step: StepIndex, now: Timestamp, decision: &mut Decision) {
        let next = round + 1;
        if next < self.spec.request.policy.rounds_max {
            decision.events.push(RunEvent::RoundOpened { round: next, failed: None });
            decision.effects =
                vec![Effect::Dispatch { task: TaskRef::Plan { round: next }, not_before: now }];
        } else {
            decision.events.push(RunEvent::Succeeded { round, step });
            decision.effects = vec![Effect::Stop];
        }
    }
}
