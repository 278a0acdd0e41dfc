//! A checked plan: steps that see earlier steps only. Only a check creates it, also when it is read from a store.

use serde::{Deserialize, Serialize};

use super::{PlanError, SUBTASK_BYTES_MAX};
use crate::ids::{StepIndex, WorkerId};
use crate::policy::STEPS_MAX;

/// The earlier steps whose outputs a step sees.
///
/// Invariant: sorted, unique, every index smaller than the owner's. So a plan is acyclic by construction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct AccessList(Vec<StepIndex>);

impl AccessList {
    /// Every step before `owner`.
    pub(super) fn all_before(owner: StepIndex) -> Self {
        Self((0..owner.get()).map(StepIndex::new).collect())
    }

    /// The given steps, in any order and possibly repeated. Fails with the first one that is not before `owner`.
    pub(super) fn before(owner: StepIndex, wanted: impl IntoIterator<Item = i64>) -> Result<Self, i64> {
        let earlier = |value: i64| {
            let index = u16::try_from(value).ok().filter(|index| *index < owner.get());
            index.map(StepIndex::new).ok_or(value)
        };
        let mut indices = wanted.into_iter().map(earlier).collect::<Result<Vec<_>, _>>()?;
        indices.sort_unstable();
        indices.dedup();
        Ok(Self(indices))
    }

    /// The same steps in a plan that has `by` more steps at its beginning.
    pub(super) fn moved(&self, by: u16) -> Self {
        Self(self.0.iter().map(|index| StepIndex::new(index.get().saturating_add(by))).collect())
    }

    /// The steps, in order.
    pub fn as_slice(&self) -> &[StepIndex] {
        &self.0
    }

    /// Whether `step` is in the list.
    pub fn contains(&self, step: StepIndex) -> bool {
        self.0.binary_search(&step).is_ok()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One node of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Step {
    /// The worker that is planned for it.
    pub worker: WorkerId,
    /// The instruction to the worker. Not blank, at most [`SUBTASK_BYTES_MAX`] bytes, without NUL.
    pub subtask: String,
    /// The outputs that the worker sees.
    pub access: AccessList,
    /// Whether the worker also sees the previous round: `all` in a follow-up round. Always false in the first round.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sees_earlier_round: bool,
    /// If the answers of these steps [agree](crate::agreement::agree), the step takes the first of them and calls no worker. Empty
    /// if the step always calls its worker. The worker sees none of them, unless they are in `access` as well.
    #[serde(skip_serializing_if = "AccessList::is_empty")]
    pub unless_agree: AccessList,
}

/// Most steps of a stored plan: those of a plan, after as many that it supersedes.
const STORED_STEPS_MAX: u16 = 2 * STEPS_MAX;

/// A checked workflow of 1 to [`STEPS_MAX`] steps, after the steps that it supersedes, if any. The output of the last one is the
/// answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "PlanForm")]
pub struct Plan {
    steps: Vec<Step>,
}

impl Plan {
    /// Checks the invariants that need neither a pool nor a policy. `steps` have valid workers, subtasks and access lists for their
    /// position.
    pub(super) fn from_steps(steps: Vec<Step>) -> Result<Self, PlanError> {
        check_step_count(steps.len(), STORED_STEPS_MAX)?;
        for (index, step) in (0u16..).map(StepIndex::new).zip(&steps) {
            check_subtask(index, &step.subtask)?;
        }
        Ok(Self { steps })
    }

    /// Joins steps of checked plans, at least one, whose access lists fit their new positions.
    pub(super) fn from_checked(steps: Vec<Step>) -> Self {
        debug_assert!(!steps.is_empty(), "a plan is never empty");
        Self { steps }
    }

    /// The same plan for the first round of a run, which has no earlier round to see.
    #[must_use]
    pub fn of_first_round(&self) -> Self {
        let steps = self.steps.iter().map(|step| Step { sees_earlier_round: false, ..step.clone() });
        Self { steps: steps.collect() }
    }

    /// The same plan, in which each step also has its entry of `conditions` as [`Step::unless_agree`]: positions of earlier steps.
    /// Steps without an entry have none.
    pub fn with_conditions(mut self, conditions: &[Vec<i64>]) -> Result<Self, PlanError> {
        for (step, (planned, wanted)) in
            (0u16..).map(StepIndex::new).zip(self.steps.iter_mut().zip(conditions))
        {
            let named = AccessList::before(step, wanted.iter().copied());
            planned.unless_agree = named.map_err(|value| PlanError::ConditionNotEarlier { step, value })?;
        }
        Ok(self)
    }

    /// Whether the step's output may be the answer: it is the final step, or the final step may take over its output, directly or
    /// through other steps.
    pub fn may_be_answer(&self, step: StepIndex) -> bool {
        let mut may_be = vec![false; self.steps.len()];
        may_be[self.final_step().as_usize()] = true;
        // A step names earlier steps only, so going backwards visits each step after all steps that name it.
        for (index, planned) in self.steps.iter().enumerate().rev() {
            if may_be[index] {
                planned.unless_agree.as_slice().iter().for_each(|named| may_be[named.as_usize()] = true);
            }
        }
        may_be.get(step.as_usize()).copied().unwrap_or_default()
    }

    /// The number of steps, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a plan is never empty")]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step at `index`.
    pub fn step(&self, index: StepIndex) -> Option<&Step> {
        self.steps.get(index.as_usize())
    }

    /// The steps with their positions, in order.
    pub fn indexed(&self) -> impl Iterator<Item = (StepIndex, &Step)> {
        (0u16..).map(StepIndex::new).zip(&self.steps)
    }

    /// The step whose output is the answer.
    pub fn final_step(&self) -> StepIndex {
        StepIndex::new(u16::try_from(self.steps.len() - 1).unwrap_or(u16::MAX))
    }
}

/// A stored plan before its check.
#[derive(Deserialize)]
struct PlanForm {
    steps: Vec<StepForm>,
}

#[derive(Deserialize)]
struct StepForm {
    worker: WorkerId,
    subtask: String,
    access: Vec<i64>,
    #[serde(default)]
    sees_earlier_round: bool,
    #[serde(default)]
    unless_agree: Vec<i64>,
}

impl TryFrom<PlanForm> for Plan {
    type Error = PlanError;

    fn try_from(form: PlanForm) -> Result<Self, PlanError> {
        check_step_count(form.steps.len(), STORED_STEPS_MAX)?;
        let steps = (0u16..).map(StepIndex::new).zip(form.steps).map(|(index, step)| {
            let access = AccessList::before(index, step.access)
                .map_err(|value| PlanError::NotAnEarlierStep { step: index, value })?;
            let unless_agree = AccessList::before(index, step.unless_agree)
                .map_err(|value| PlanError::ConditionNotEarlier { step: index, value })?;
            let StepForm { worker, subtask, sees_earlier_round, .. } = step;
            Ok(Step { worker, subtask, access, sees_earlier_round, unless_agree })
        });
        Self::from_steps(steps.collect::<Result<_, _>>()?)
    }
}

pub(super) fn check_step_count(steps: usize, steps_max: u16) -> Result<(), PlanError> {
    match steps {
        0 => Err(PlanError::NoSteps),
        _ if steps > usize::from(steps_max) => Err(PlanError::TooManySteps { steps, steps_max }),
        _ => Ok(()),
    }
}

pub(super) fn check_subtask(step: StepIndex, subtask: &str) -> Result<(), PlanError> {
    if subtask.trim().is_empty() {
        return Err(PlanError::EmptySubtask { step });
    }
    if subtask.len() > SUBTASK_BYTES_MAX {
        return Err(PlanError::SubtaskTooLong { step, bytes: subtask.len(), bytes_max: SUBTASK_BYTES_MAX });
    }
    match subtask.find('\0') {
        Some(offset) => Err(PlanError::NulInSubtask { step, offset }),
        None => Ok(()),
    }
}
