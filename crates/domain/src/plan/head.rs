//! The beginning of a plan that is still being written, and what becomes of it when the plan is there.

use serde::{Deserialize, Serialize};

use super::steps::{AccessList, Plan, Step};
use crate::ids::StepIndex;

/// Whether a head may hold the step that ends the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStep {
    /// It may.
    Included,
    /// It may not: that step is asked otherwise than the others.
    Withheld,
}

/// The first steps of a plan whose rest is not known yet, checked like those of a plan.
///
/// None of them is known to be the final one: a plan may end with the last step of its head, or go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanHead(Plan);

impl PlanHead {
    pub(super) fn new(steps: Plan) -> Self {
        Self(steps)
    }

    /// How many steps there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        self.0.steps()
    }

    /// The same head for the first round of a run, before which there is nothing to see.
    #[must_use]
    pub fn of_first_round(&self) -> Self {
        Self(self.0.of_first_round())
    }

    /// Whether the other head's steps are the first ones of this.
    pub fn begins_with(&self, other: &Self) -> bool {
        self.0.begins_with(other)
    }

    /// The head of the first `len` steps; the same if it has no more, none for 0.
    pub fn first(&self, len: usize) -> Option<Self> {
        let steps: Vec<_> = self.steps().iter().take(len).cloned().collect();
        (!steps.is_empty()).then(|| Self(Plan::from_checked(steps)))
    }
}

impl Plan {
    /// Whether the head's steps are its first ones.
    pub fn begins_with(&self, head: &PlanHead) -> bool {
        self.steps().starts_with(head.steps())
    }

    /// The same plan behind the steps of a head that it has no use for: nothing of it sees them.
    #[must_use]
    pub fn behind(&self, head: &PlanHead) -> Self {
        self.joined(head, |_, access| access)
    }

    /// The plan that goes on from a head: what saw nothing sees all of the head.
    #[must_use]
    pub fn completing(&self, head: &PlanHead) -> Self {
        let first = StepIndex::new(u16::try_from(head.len()).unwrap_or(u16::MAX));
        self.joined(
            head,
            |step, access| {
                if step.access.is_empty() { AccessList::all_before(first) } else { access }
            },
        )
    }

    fn joined(&self, head: &PlanHead, access: impl Fn(&Step, AccessList) -> AccessList) -> Self {
        let by = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let own = self
            .steps()
            .iter()
            .map(|step| Step { access: access(step, step.access.moved(by)), ..step.clone() });
        Self::from_checked(head.steps().iter().cloned().chain(own).collect())
    }
}

impl From<&PlanHead> for Plan {
    /// The plan that ends with the head's last step.
    fn from(head: &PlanHead) -> Self {
        head.0.clone()
    }
}
