//! What a run weighs on the budgets that it is charged to.
//!
//! It weighs what it has spent and what it may still spend: the worst case of its plan, or more where attempts had to be made
//! again. While it is active its budgets are told only when that becomes more, or when there is a new plan; what it did not need
//! it gives back when it ends. So a budget's row is written two or three times a run, however many steps it has.

use super::task::{Attempt, AttemptOutcome};
use super::{Run, RunEvent};
use crate::budget::Charge;
use crate::money::Cost;

impl Run {
    /// What its budgets know that it weighs, as of its last event. The difference between two versions is what the commit from
    /// one to the other adds to each of them.
    pub fn booked(&self) -> Charge {
        self.booked
    }

    /// Follows an event that was folded in.
    pub(super) fn book(&mut self, event: &RunEvent) {
        if self.spec.budgets.is_empty() {
            return;
        }
        if let RunEvent::PlanReady { reserved, .. } = event {
            self.hold = self.weight().total() + *reserved;
        }
        let weight = self.weight();
        let needs = weight.total().max(if self.is_ended() { Cost::ZERO } else { self.hold });
        let is_new_plan = matches!(event, RunEvent::PlanReady { .. });
        if self.is_ended() || is_new_plan || needs > self.booked.total() {
            self.booked = Charge { spent: weight.spent, reserved: needs.less(weight.spent) };
        }
    }

    /// What its attempts weigh by themselves.
    fn weight(&self) -> Charge {
        let mut weight = Charge::default();
        for attempt in self.attempts() {
            match attempt.outcome {
                AttemptOutcome::Running | AttemptOutcome::Lost => weight.reserved += outstanding(attempt),
                AttemptOutcome::Accepted
                | AttemptOutcome::Failed(_)
                | AttemptOutcome::HandedBack
                | AttemptOutcome::Unused => weight.spent += attempt.total_cost(),
            }
        }
        weight
    }
}

/// Of an attempt that nobody reported on, the vendor may have billed all that it was allowed to cost.
fn outstanding(attempt: &Attempt) -> Cost {
    attempt.reserved
}

impl RunEvent {
    /// Whether money may be spent because of it that was not to be spent before: it needs room in the budgets.
    pub const fn permits_spending(&self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::Claimed { .. } | Self::PlanReady { .. })
    }
}
