//! The beginning of a plan that is still being written, and how it relates to the complete plan.

use serde::{Deserialize, Serialize};

use super::steps::{AccessList, Plan, Step};
use crate::ids::StepIndex;

/// Whether a head may contain the final step of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStep {
    /// It may.
    Included,
    /// It may not: the final step gets another request than the others.
    Withheld,
}

/// The first steps of a plan whose rest is unknown, checked like those of a plan.
///
/// None of them is known to be the final step: the plan may end with the last step of its head, or continue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanHead(Plan);

impl PlanHead {
    pub(super) fn new(steps: Plan) -> Self {
        Self(steps)
    }

    /// The number of steps, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        self.0.steps()
    }

    /// The same head for the first round of a run, which has no earlier round to see.
    #[must_use]
    pub fn of_first_round(&self) -> Self {
        Self(self.0.of_first_round())
    }

    /// Whether this head begins with all steps of the other one.
    pub fn begins_with(&self, other: &Self) -> bool {
        self.0.begins_with(other)
    }

    /// The head of the first `len` steps, or all of them if there are fewer; `None` for 0.
    pub fn first(&self, len: usize) -> Option<Self> {
        let steps: Vec<_> = self.steps().iter().take(len).cloned().collect();
        (!steps.is_empty()).then(|| Self(Plan::from_checked(steps)))
    }
}

impl Plan {
    /// Whether this plan begins with all steps of the head.
    pub fn begins_with(&self, head: &PlanHead) -> bool {
        self.steps().starts_with(head.steps())
    }

    /// The plan placed after the steps of a head that it does not use; none of its steps sees them.
    #[must_use]
    pub fn behind(&self, head: &PlanHead) -> Self {
        self.joined(head, |_, access| access)
    }

    /// The plan that continues a head: its steps that saw nothing see all of the head.
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
        let own = self.steps().iter().map(|step| Step {
            access: access(step, step.access.moved(by)),
            unless_agree: step.unless_agree.moved(by),
            ..step.clone()
        });
        Self::from_checked(head.steps().iter().cloned().chain(own).collect())
    }
}

impl From<&PlanHead> for Plan {
    /// The plan that ends with the last step of the head.
    fn from(head: &PlanHead) -> Self {
        head.0.clone()
    }
}
