//! A plan as it was written: three unchecked lists, and the pieces in which they arrive.

use std::fmt;

use crate::ids::{StepIndex, WorkerId};

/// One of the three lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The worker of each step.
    ModelId,
    /// The instruction of each step.
    Subtasks,
    /// The earlier outputs that each step sees.
    AccessList,
}

impl Field {
    /// The lists in the order in which conductors write them.
    pub const ALL: [Self; 3] = [Self::ModelId, Self::Subtasks, Self::AccessList];

    /// The label that a conductor writes before the list.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ModelId => "model_id",
            Self::Subtasks => "subtasks",
            Self::AccessList => "access_list",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A worker as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawId {
    /// A position in the pool, from 0; may be out of range.
    Index(i64),
    /// A worker's name, or text such as `Model id 3`; may be unknown.
    Name(String),
}

/// The outputs that a step may see, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawAccess {
    /// `None`: no outputs.
    None,
    /// `"all"`: every earlier step.
    All,
    /// Positions of steps, from 0; may be out of range, unsorted or repeated. Empty means no outputs.
    Indices(Vec<i64>),
}

/// A plan as it was written. It is unchecked; [`PlanDraft::check`] checks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanDraft {
    /// The worker of each step.
    pub model_id: Vec<RawId>,
    /// The instruction of each step.
    pub subtasks: Vec<String>,
    /// The earlier outputs that each step sees.
    pub access_list: Vec<RawAccess>,
}

/// A part of a plan that is still being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanPiece {
    /// An element of `model_id` is closed.
    Worker {
        /// The step that it belongs to.
        index: StepIndex,
        /// The worker.
        worker: RawId,
    },
    /// An element of `subtasks` is closed.
    Subtask {
        /// The step that it belongs to.
        index: StepIndex,
        /// The text, without surrounding blanks.
        text: String,
    },
    /// An element of `access_list` is closed.
    Access {
        /// The step that it belongs to.
        index: StepIndex,
        /// The outputs that it may see.
        access: RawAccess,
    },
    /// All pieces so far are void: another plan has begun, or has replaced them.
    Restarted,
}

impl PlanDraft {
    /// A plan of one step, for the mini tier and for failures of the conductor.
    pub fn single(worker: &WorkerId, subtask: impl Into<String>) -> Self {
        Self {
            model_id: vec![RawId::Name(worker.as_str().to_owned())],
            subtasks: vec![subtask.into()],
            access_list: vec![RawAccess::Indices(Vec::new())],
        }
    }

    /// Whether all three lists are empty, which means that the conductor accepts the earlier answer. Such a draft has no plan to
    /// check.
    pub fn keeps_answer(&self) -> bool {
        self.model_id.is_empty() && self.subtasks.is_empty() && self.access_list.is_empty()
    }

    /// Adds a piece of a stream. After all pieces of a stream that ends with `Ok`, this equals the final draft.
    pub fn apply(&mut self, piece: PlanPiece) {
        match piece {
            PlanPiece::Worker { worker, .. } => self.model_id.push(worker),
            PlanPiece::Subtask { text, .. } => self.subtasks.push(text),
            PlanPiece::Access { access, .. } => self.access_list.push(access),
            PlanPiece::Restarted => *self = Self::default(),
        }
    }

    /// The number of elements of a list.
    pub(super) fn elements(&self, field: Field) -> usize {
        match field {
            Field::ModelId => self.model_id.len(),
            Field::Subtasks => self.subtasks.len(),
            Field::AccessList => self.access_list.len(),
        }
    }

    /// The pieces from which [`Self::apply`] would build the draft.
    pub(super) fn pieces(&self) -> impl Iterator<Item = PlanPiece> {
        let index = || (0u16..).map(StepIndex::new);
        let workers = index().zip(&self.model_id);
        let subtasks = index().zip(&self.subtasks);
        let accesses = index().zip(&self.access_list);
        workers
            .map(|(index, worker)| PlanPiece::Worker { index, worker: worker.clone() })
            .chain(subtasks.map(|(index, text)| PlanPiece::Subtask { index, text: text.clone() }))
            .chain(accesses.map(|(index, access)| PlanPiece::Access { index, access: access.clone() }))
    }
}
