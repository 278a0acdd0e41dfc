//! The linear head: a row of weights for each worker, and no bias.

use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;

use crate::file::{self, FileError, Matrix, Parsed};
use crate::identity::{
    self, Choices, HIDDEN_MAX, HeadError, Identity, Kind, Metadata, NoChoice, OtherPool, SCHEMA_LINEAR,
    Source, TIE_MARGIN, check_matrix,
};

const TENSOR: &str = "head.weight";

/// Chooses a worker from a hidden state by the product with each worker's row.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearHead {
    identity: Identity,
    /// One row for each slot.
    weights: Matrix,
}

impl LinearHead {
    /// Creates a head for these slots of a pool. `weights` has one row per slot, concatenated.
    pub fn new(
        slots: Vec<WorkerId>,
        pool_sha256: String,
        source: Source,
        weights: Vec<f32>,
    ) -> Result<Self, HeadError> {
        Self::with_identity(Identity { choices: Choices::Workers, slots, pool_sha256, source }, weights)
    }

    /// Creates a head for these slots. `weights` has one row per slot, concatenated.
    pub fn with_identity(identity: Identity, weights: Vec<f32>) -> Result<Self, HeadError> {
        let rows = identity.slots.len();
        let columns = weights.len().checked_div(rows).unwrap_or_default();
        Self::of_matrix(identity, Matrix { rows, columns, values: weights })
    }

    fn of_matrix(identity: Identity, weights: Matrix) -> Result<Self, HeadError> {
        identity.check()?;
        check_matrix(TENSOR, &weights, identity.slots.len(), 1..=HIDDEN_MAX)?;
        Ok(Self { identity, weights })
    }

    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, identity::FILE_BYTES_MAX)?;
        Self::from_bytes(&bytes, path)
    }

    /// Like [`Self::read`], for bytes that were read from `path`.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, FileError> {
        Self::of_file(&identity::parse(bytes, path)?)
    }

    pub(crate) fn of_file(parsed: &Parsed<'_, Metadata>) -> Result<Self, FileError> {
        let matrix = parsed.matrix(TENSOR)?;
        Self::of_matrix(parsed.document.identity(), matrix).map_err(|error| parsed.wrong(error.to_string()))
    }

    /// Serialises the head. Equal heads give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let metadata = Metadata::new(SCHEMA_LINEAR, Kind::Linear, &self.identity);
        identity::serialise(&metadata, &[(TENSOR, &self.weights)])
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.weights.columns
    }

    /// Checks that the pool contains the workers that it was trained on, unchanged.
    pub fn fits(&self, pool: &Pool) -> Result<(), OtherPool> {
        self.identity.fits(pool)
    }

    /// The score of each slot, in order; `None` if the hidden state has the wrong size.
    pub fn scores(&self, hidden: &[f32]) -> Option<Vec<f32>> {
        if hidden.len() != self.hidden() {
            return None;
        }
        let score = |row: &[f32]| row.iter().zip(hidden).map(|(weight, value)| weight * value).sum();
        Some(self.weights.values.chunks_exact(self.hidden()).map(score).collect())
    }

    /// The allowed worker with the best score.
    pub fn choose(&self, hidden: &[f32], allowed: impl Fn(&WorkerId) -> bool) -> Result<&WorkerId, NoChoice> {
        let other_size = NoChoice::OtherSize { expected: self.hidden(), actual: hidden.len() };
        let scores = self.scores(hidden).ok_or(other_size)?;
        self.identity.choose(&scores, TIE_MARGIN, allowed)
    }
}
