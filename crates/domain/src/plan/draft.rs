//! A plan as it was written: three raw lists, right or wrong, and the pieces that they arrive in.

use std::fmt;

use super::ParseError;
use super::stream::PlanStream;
use crate::ids::{StepIndex, WorkerId};

/// One of the three lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Which worker does each step.
    ModelId,
    /// What each step's worker is told.
    Subtasks,
    /// Which earlier outputs each step's worker sees.
    AccessList,
}

impl Field {
    /// The lists in the order in which a conductor writes them.
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
    /// A position in the pool, from 0. May be out of range.
    Index(i64),
    /// A worker's name, or words such as `Model id 3`. May name nobody.
    Name(String),
}

/// What a step may see, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawAccess {
    /// `None`: nothing.
    None,
    /// `"all"`: every earlier step.
    All,
    /// Positions of steps, from 0. May be out of range, unsorted and repeated; nothing if empty.
    Indices(Vec<i64>),
}

/// A plan as it was written. Nothing is known of it: [`PlanDraft::check`] finds out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanDraft {
    /// Which worker does each step.
    pub model_id: Vec<RawId>,
    /// What each step's worker is told.
    pub subtasks: Vec<String>,
    /// Which earlier outputs each step's worker sees.
    pub access_list: Vec<RawAccess>,
}

/// A part of a plan that is still being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanPiece {
    /// An element of `model_id` is closed.
    Worker {
        /// Whose step it is.
        index: StepIndex,
        /// The worker.
        worker: RawId,
    },
    /// An element of `subtasks` is closed.
    Subtask {
        /// Whose step it is.
        index: StepIndex,
        /// The text, without blanks around it.
        text: String,
    },
    /// An element of `access_list` is closed.
    Access {
        /// Whose step it is.
        index: StepIndex,
        /// What it may see.
        access: RawAccess,
    },
    /// Every piece so far is void: another plan has begun, or taken its place.
    Restarted,
}

impl PlanDraft {
    /// Reads a whole text, exactly as [`PlanStream`] reads it in parts.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut stream = PlanStream::new();
        stream.push(text);
        stream.finish()
    }

    /// A plan of one step, for the router and for when a conductor fails.
    pub fn single(worker: &WorkerId, subtask: impl Into<String>) -> Self {
        Self {
            model_id: vec![RawId::Name(worker.as_str().to_owned())],
            subtasks: vec![subtask.into()],
            access_list: vec![RawAccess::Indices(Vec::new())],
        }
    }

    /// Whether all three lists are empty: the conductor's way to say that the answer it was shown is good as it is.
    /// Such a draft has no plan to check.
    pub fn keeps_answer(&self) -> bool {
        self.model_id.is_empty() && self.subtasks.is_empty() && self.access_list.is_empty()
    }

    /// Adds what a stream yielded. After all pieces of a stream whose end is `Ok`, this equals what the end gave.
    pub fn apply(&mut self, piece: PlanPiece) {
        match piece {
            PlanPiece::Worker { worker, .. } => self.model_id.push(worker),
            PlanPiece::Subtask { text, .. } => self.subtasks.push(text),
            PlanPiece::Access { access, .. } => self.access_list.push(access),
            PlanPiece::Restarted => *self = Self::default(),
        }
    }

    /// How many elements a list has.
    pub(super) fn elements(&self, field: Field) -> usize {
        match field {
            Field::ModelId => self.model_id.len(),
            Field::Subtasks => self.subtasks.len(),
            Field::AccessList => self.access_list.len(),
        }
    }

    /// The pieces that [`Self::apply`] would make the draft from.
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
