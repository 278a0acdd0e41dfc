//! The head itself: scores, choice, and what it was trained for.

use std::path::Path;

use podium_domain::bundle::slots_hash;
use podium_domain::ids::WorkerId;
use podium_domain::pool::{Pool, UnknownWorker, WORKERS_MAX};
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError, Matrix};

/// Most numbers of a hidden state. The widest open models have 16,384.
pub const HIDDEN_MAX: usize = 32_768;
/// Two best scores that are no further apart are a tie. Scores are log-odds: this is a tenth of a percent, about what the
/// last bits of a hidden state move, which differ from machine to machine.
pub const TIE_MARGIN: f32 = 1e-3;

/// The version of the file that this version reads and writes.
const SCHEMA: u32 = 1;
const METADATA_KEY: &str = "podium.head";
const TENSOR: &str = "head.weight";
/// All that a head can need, and room for what others put into the file.
const FILE_BYTES_MAX: u64 = (WORKERS_MAX * HIDDEN_MAX * size_of::<f32>()) as u64 + (1 << 20);

/// Where hidden states come from. Those of other weights, or of another prompt, mean something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// SHA-256 of the weights' file, in lower-case hexadecimal.
    pub weights_sha256: String,
    /// The adapter that changes them, if there is one: SHA-256 of its file, `*` and how strongly it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The name of the way in which a question becomes a prompt, and the place of the token that is read.
    pub reading: String,
}

/// Chooses a worker from a hidden state.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearHead {
    slots: Vec<WorkerId>,
    pool_sha256: String,
    source: Source,
    hidden: usize,
    /// A row for each slot.
    weights: Vec<f32>,
}

/// What the file says beside the numbers.
#[derive(Debug, Serialize, Deserialize)]
struct Metadata {
    schema: u32,
    slots: Vec<WorkerId>,
    pool_sha256: String,
    source: Source,
}

/// Why a head is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Too few or too many workers.
    #[error("slots are {slots}, they must be 1 to {WORKERS_MAX}")]
    Slots {
        /// How many there are.
        slots: usize,
    },
    /// A worker has two rows.
    #[error("slots name worker `{worker}` twice")]
    SameSlot {
        /// Which worker.
        worker: WorkerId,
    },
    /// The matrix is not one row of a hidden state for each slot.
    #[error("{TENSOR} has the shape {rows} x {columns}, it must be {slots} x 1 to {HIDDEN_MAX}")]
    Shape {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// How many slots there are.
        slots: usize,
    },
    /// A number that is none.
    #[error("{TENSOR} has a value that is not finite at row {row}, column {column}")]
    NotFinite {
        /// From 0.
        row: usize,
        /// From 0.
        column: usize,
    },
}

/// Why a head does not apply to a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherPool {
    /// A slot's worker is not there.
    #[error("the mini head has a slot for a worker that the pool lacks")]
    Lacks(#[source] UnknownWorker),
    /// A slot's worker is another model by now.
    #[error("the mini head was trained on slots with SHA-256 {expected}, those of the pool have {actual}")]
    Changed {
        /// What the head was trained on.
        expected: String,
        /// What the pool has.
        actual: String,
    },
}

/// Why a head chooses nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    /// None of its workers is allowed.
    #[error("none of the mini head's workers is allowed")]
    NoneAllowed,
    /// The two best are too close.
    #[error("the two best scores are not {TIE_MARGIN} apart")]
    Tie,
    /// The hidden state has another size.
    #[error("the hidden state has {actual} values, the mini head takes {expected}")]
    OtherSize {
        /// What the head takes.
        expected: usize,
        /// What it was given.
        actual: usize,
    },
    /// A score is not a number.
    #[error("a score is not finite")]
    NotFinite,
}

impl LinearHead {
    /// A head for these slots of a pool. `weights` has a row for each slot, one after the other.
    pub fn new(
        slots: Vec<WorkerId>,
        pool_sha256: String,
        source: Source,
        weights: Vec<f32>,
    ) -> Result<Self, HeadError> {
        let columns = weights.len().checked_div(slots.len()).unwrap_or_default();
        let matrix = Matrix { rows: slots.len(), columns, values: weights };
        Self::of_matrix(Metadata { schema: SCHEMA, slots, pool_sha256, source }, matrix)
    }

    fn of_matrix(metadata: Metadata, matrix: Matrix) -> Result<Self, HeadError> {
        let Metadata { slots, pool_sha256, source, .. } = metadata;
        let Matrix { rows, columns, values } = matrix;
        if slots.is_empty() || slots.len() > WORKERS_MAX {
            return Err(HeadError::Slots { slots: slots.len() });
        }
        if let Some((_, worker)) = slots.iter().enumerate().find(|(at, slot)| slots[..*at].contains(slot)) {
            return Err(HeadError::SameSlot { worker: worker.clone() });
        }
        if rows != slots.len() || !(1..=HIDDEN_MAX).contains(&columns) || values.len() != rows * columns {
            return Err(HeadError::Shape { rows, columns, slots: slots.len() });
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(HeadError::NotFinite { row: at / columns, column: at % columns });
        }
        Ok(Self { slots, pool_sha256, source, hidden: columns, weights: values })
    }

    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, FILE_BYTES_MAX)?;
        Self::from_bytes(&bytes, path)
    }

    /// The same of bytes that were read from `path`.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, FileError> {
        let (metadata, matrix) = file::parse::<Metadata>(bytes, path, METADATA_KEY, TENSOR)?;
        if metadata.schema != SCHEMA {
            let problem =
                format!("{METADATA_KEY} has schema {}, this version reads {SCHEMA}", metadata.schema);
            return Err(FileError::Wrong { path: path.to_owned(), problem });
        }
        Self::of_matrix(metadata, matrix)
            .map_err(|error| FileError::Wrong { path: path.to_owned(), problem: error.to_string() })
    }

    /// The file's bytes. Equal heads have equal files.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let metadata = Metadata {
            schema: SCHEMA,
            slots: self.slots.clone(),
            pool_sha256: self.pool_sha256.clone(),
            source: self.source.clone(),
        };
        file::serialise(&metadata, METADATA_KEY, TENSOR, self.slots.len(), self.hidden, &self.weights)
    }

    /// The workers of the rows.
    pub fn slots(&self) -> &[WorkerId] {
        &self.slots
    }

    /// Where its hidden states come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// How many numbers a hidden state has.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Whether it was trained on workers that the pool has, as they are. Further workers of the pool are never chosen.
    pub fn fits(&self, pool: &Pool) -> Result<(), OtherPool> {
        let actual = slots_hash(pool, &self.slots).map_err(OtherPool::Lacks)?;
        if actual == self.pool_sha256 {
            return Ok(());
        }
        Err(OtherPool::Changed { expected: self.pool_sha256.clone(), actual })
    }

    /// The score of each slot, in order; none if the hidden state is of another size.
    pub fn scores(&self, hidden: &[f32]) -> Option<Vec<f32>> {
        if hidden.len() != self.hidden {
            return None;
        }
        let score = |row: &[f32]| row.iter().zip(hidden).map(|(weight, value)| weight * value).sum();
        Some(self.weights.chunks_exact(self.hidden).map(score).collect())
    }

    /// The worker with the best score among those that are allowed.
    pub fn choose(&self, hidden: &[f32], allowed: impl Fn(&WorkerId) -> bool) -> Result<&WorkerId, NoChoice> {
        let other_size = NoChoice::OtherSize { expected: self.hidden, actual: hidden.len() };
        let scores = self.scores(hidden).ok_or(other_size)?;
        let (mut best, mut second) = (None::<(f32, &WorkerId)>, f32::NEG_INFINITY);
        for (score, worker) in scores.into_iter().zip(&self.slots).filter(|(_, worker)| allowed(worker)) {
            if !score.is_finite() {
                return Err(NoChoice::NotFinite);
            }
            match best {
                Some((best_score, _)) if score <= best_score => second = second.max(score),
                Some((best_score, _)) => (best, second) = (Some((score, worker)), best_score),
                None => best = Some((score, worker)),
            }
        }
        let (score, worker) = best.ok_or(NoChoice::NoneAllowed)?;
        if score - second < TIE_MARGIN { Err(NoChoice::Tie) } else { Ok(worker) }
    }
}
