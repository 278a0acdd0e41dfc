//! The charge of a run to its budgets.
//!
//! A run is charged with its cost so far and its highest further cost: the worst case of its plan, or more after repeated
//! attempts. While it is active, its budgets are charged only when that amount grows, or when there is a new plan. The unused part
//! is released when it ends, and while it is suspended. So a budget's row is written two or three times per run, for any number of
//! steps, and twice for each suspension.
//!
//! A lost attempt, whose executor stopped reporting, may have been billed with its worst case. That stays reserved until the
//! executor reports, or until the run has ended and none of its calls can be in flight any more.

use super::Run;
use super::command::{Decision, Refusal};
use super::event::RunEvent;
use super::task::{Attempt, AttemptOutcome, TaskRef};
use crate::budget::Charge;
use crate::ids::ClaimId;
use crate::money::Cost;
use crate::usage::Usage;

/// An attempt is booked with at most this multiple of its worst case, even if its vendor reports a higher usage.
const WORST_CASES_MAX: u64 = 10;
/// The amount up to which an attempt's cost is always booked as reported.
const BELIEVED: Cost = Cost::from_nano_usd(10_000_000_000);

impl Run {
    /// The charge booked as of its last event. The commit between two versions adds their difference to each budget.
    pub fn booked(&self) -> Charge {
        self.booked
    }

    /// Whether it has ended and still reserves money for attempts whose executor never reported. See
    /// [`Command::ReleaseLost`](super::Command::ReleaseLost).
    pub fn is_unsettled(&self) -> bool {
        self.is_ended() && !self.booked.reserved.is_zero()
    }

    /// Updates the booked charge after an event.
    pub(super) fn book(&mut self, event: &RunEvent) {
        if self.spec.budgets.is_empty() {
            return;
        }
        if let RunEvent::PlanReady { reserved, .. } = event {
            self.hold = self.weight().total() + *reserved;
        }
        let weight = self.weight();
        // A suspended run holds nothing for its next calls: nobody knows whether they will be made.
        let is_at_rest = self.is_ended() || self.is_suspended();
        let needs = weight.total().max(if is_at_rest { Cost::ZERO } else { self.hold });
        let is_new_plan = matches!(event, RunEvent::PlanReady { .. });
        if is_at_rest || is_new_plan || needs > self.booked.total() {
            self.booked = Charge { spent: weight.spent, reserved: needs.less(weight.spent) };
        }
    }

    /// The charge of its attempts alone.
    fn weight(&self) -> Charge {
        let mut weight = Charge::default();
        for attempt in self.attempts() {
            if attempt.is_outstanding() {
                weight.reserved += attempt.reserved;
            } else {
                weight.spent += attempt.cost;
            }
        }
        weight
    }

    /// Records every lost attempt as free of cost.
    pub(super) fn decide_release(&self) -> Result<Decision, Refusal> {
        if !self.is_ended() {
            return Err(Refusal::Active);
        }
        let lost =
            self.tasks().flat_map(|(task, found)| found.attempts.iter().map(move |attempt| (task, attempt)));
        let lost = lost.filter(|(_, attempt)| attempt.is_outstanding() && !attempt.reserved.is_zero());
        let released = lost.map(|(task, attempt)| RunEvent::ResultUnused {
            task,
            claim: attempt.claim,
            usage: Usage::NONE,
            cost: Cost::ZERO,
        });
        Ok(Decision { events: released.collect(), effects: Vec::new() })
    }
}

impl Attempt {
    /// Whether its vendor may still bill up to its worst case: it is in flight, or its executor never reported.
    pub(super) fn is_outstanding(&self) -> bool {
        matches!(self.outcome, AttemptOutcome::Running | AttemptOutcome::Lost)
    }

    /// Whether its end was recorded without cost: it was released, or its executor made no call. A later report still counts.
    pub(super) fn is_unbilled(&self) -> bool {
        self.outcome == AttemptOutcome::Unused && self.cost.is_zero() && self.usage == Usage::NONE
    }
}

impl Decision {
    /// Bounds the booked cost of each attempt, so that one absurd number in a vendor's answer does not use up a budget.
    pub(super) fn bounded(mut self, run: &Run) -> Self {
        for event in &mut self.events {
            if let Some(AttemptCost { task, claim, cost }) = event.attempt_cost_mut() {
                let attempt = run.task(task).and_then(|task| task.attempt(claim));
                let worst = attempt.map_or(Cost::ZERO, |attempt| attempt.reserved);
                *cost = (*cost).min(worst.times(WORST_CASES_MAX).max(BELIEVED));
            }
        }
        self
    }
}

/// The cost that an event reports for an attempt.
struct AttemptCost<'a> {
    task: TaskRef,
    claim: ClaimId,
    cost: &'a mut Cost,
}

impl RunEvent {
    /// The cost that the event reports, if it ends an attempt.
    fn attempt_cost_mut(&mut self) -> Option<AttemptCost<'_>> {
        match self {
            Self::PlanReady { round, claim, cost, .. } | Self::AnswerKept { round, claim, cost, .. } => {
                Some(AttemptCost { task: TaskRef::Plan { round: *round }, claim: *claim, cost })
            }
            Self::StepDone { round, step, claim, cost, .. }
            | Self::StepCalled { round, step, claim, cost, .. } => {
                let task = TaskRef::Step { round: *round, step: *step };
                Some(AttemptCost { task, claim: *claim, cost })
            }
            Self::AttemptFailed { task, claim, cost, .. }
            | Self::ResultUnused { task, claim, cost, .. }
            | Self::TaskFailed { task, claim: Some(claim), cost, .. } => {
                Some(AttemptCost { task: *task, claim: *claim, cost })
            }
            Self::Accepted { .. }
            | Self::Claimed { .. }
            | Self::StepsPlanned { .. }
            | Self::StepsSuperseded { .. }
            | Self::StepReady { .. }
            | Self::StepSkipped { .. }
            | Self::Suspended
            | Self::ResultsGiven { .. }
            | Self::FellBack { .. }
            | Self::Hedged { .. }
            | Self::LeaseExpired { .. }
            | Self::TaskFailed { claim: None, .. }
            | Self::RoundOpened { .. }
            | Self::RoundAbandoned { .. }
            | Self::Succeeded { .. }
            | Self::Failed { .. }
            | Self::Cancelled => None,
        }
    }

    /// Whether it permits new spending, and so must fit into the budgets.
    pub const fn permits_spending(&self) -> bool {
        matches!(
            self,
            Self::Accepted { .. } | Self::Claimed { .. } | Self::PlanReady { .. } | Self::ResultsGiven { .. }
        )
    }
}
