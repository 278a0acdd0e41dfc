//! A mini head of any kind.

use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;

use crate::file::{self, FileError};
use crate::identity::{self, Choices, Identity, Input, Kind, NoChoice, OtherPool, Source, TIE_MARGIN};
use crate::kernel::KernelHead;
use crate::linear::LinearHead;
use crate::neighbours::NeighboursHead;

/// Chooses a worker for a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// Of kind [`Kind::Linear`].
    Linear(LinearHead),
    /// Of kind [`Kind::Neighbours`].
    Neighbours(NeighboursHead),
    /// Of kind [`Kind::Kernel`].
    Kernel(KernelHead),
}

impl Head {
    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, identity::FILE_BYTES_MAX)?;
        Self::from_bytes(&bytes, path)
    }

    /// Like [`Self::read`], for bytes that were read from `path`.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, FileError> {
        let parsed = identity::parse(bytes, path)?;
        match parsed.document.kind {
            Kind::Linear => LinearHead::of_file(&parsed).map(Self::Linear),
            Kind::Neighbours => NeighboursHead::of_file(&parsed).map(Self::Neighbours),
            Kind::Kernel => KernelHead::of_file(&parsed).map(Self::Kernel),
        }
    }

    /// Serialises the head. Equal heads give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        match self {
            Self::Linear(head) => head.to_bytes(),
            Self::Neighbours(head) => head.to_bytes(),
            Self::Kernel(head) => head.to_bytes(),
        }
    }

    /// How it chooses.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Linear(_) => Kind::Linear,
            Self::Neighbours(_) => Kind::Neighbours,
            Self::Kernel(_) => Kind::Kernel,
        }
    }

    fn identity(&self) -> &Identity {
        match self {
            Self::Linear(head) => head.identity(),
            Self::Neighbours(head) => head.identity(),
            Self::Kernel(head) => head.identity(),
        }
    }

    /// The kind of things that it chooses among.
    pub fn choices(&self) -> Choices {
        self.identity().choices
    }

    /// The hash of what it chooses among: see [`Identity::pool_sha256`].
    pub fn pool_sha256(&self) -> &str {
        &self.identity().pool_sha256
    }

    /// The workers or workflows that it chooses among.
    pub fn slots(&self) -> &[WorkerId] {
        &self.identity().slots
    }

    /// The origin of its hidden states.
    pub fn source(&self) -> &Source {
        &self.identity().source
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        match self {
            Self::Linear(head) => head.hidden(),
            Self::Neighbours(head) => head.hidden(),
            Self::Kernel(head) => head.hidden(),
        }
    }

    /// Checks that the pool contains the workers that it was trained on, unchanged. It never chooses other workers of the pool.
    pub fn fits(&self, pool: &Pool) -> Result<(), OtherPool> {
        self.identity().fits(pool)
    }

    /// The score of each slot, in order; `None` if the hidden state has the wrong size. A head that uses the form of the text
    /// takes the mean form if the text is unknown.
    pub fn scores(&self, input: Input<'_>) -> Option<Vec<f32>> {
        match self {
            Self::Linear(head) => head.scores(input.hidden),
            Self::Neighbours(head) => head.scores(input.hidden),
            Self::Kernel(head) => head.scores(input),
        }
    }

    /// The allowed worker or workflow with the best score.
    pub fn choose(
        &self,
        input: Input<'_>,
        allowed: impl Fn(&WorkerId) -> bool,
    ) -> Result<&WorkerId, NoChoice> {
        // The scores of a linear head are log-odds, and a question unlike all others is tied. The others expect a reward for
        // such a question, too.
        let margin = if self.kind() == Kind::Linear { TIE_MARGIN } else { 0.0 };
        self.choose_beyond(margin, input, allowed)
    }

    /// Like [`Self::choose`], but the first of equals wins: for choices that nothing else can make.
    pub fn choose_any(
        &self,
        input: Input<'_>,
        allowed: impl Fn(&WorkerId) -> bool,
    ) -> Result<&WorkerId, NoChoice> {
        self.choose_beyond(0.0, input, allowed)
    }

    fn choose_beyond(
        &self,
        margin: f32,
        input: Input<'_>,
        allowed: impl Fn(&WorkerId) -> bool,
    ) -> Result<&WorkerId, NoChoice> {
        let other_size = NoChoice::OtherSize { expected: self.hidden(), actual: input.hidden.len() };
        let scores = self.scores(input).ok_or(other_size)?;
        self.identity().choose(&scores, margin, allowed)
    }
}
