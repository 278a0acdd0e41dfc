//! The mini head: scores, choice, and the pool and weights that it was trained for.

use std::fmt;
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::slots_hash;
use podium_domain::pool::{Pool, UnknownWorker, WORKERS_MAX};
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError, Matrix};

/// Most values in a hidden state. The widest open models have 16,384.
pub const HIDDEN_MAX: usize = 32_768;
/// If the two best scores differ by at most this, they are tied. Scores are log-odds: this is a tenth of a percent, roughly
/// the effect of a hidden state's last bits, which differ between machines.
pub const TIE_MARGIN: f32 = 1e-3;

/// The file format's version.
const SCHEMA: u32 = 1;
const METADATA_KEY: &str = "podium.head";
const TENSOR: &str = "head.weight";
/// The largest head, plus space for other entries in the file.
const FILE_BYTES_MAX: u64 = (WORKERS_MAX * HIDDEN_MAX * size_of::<f32>()) as u64 + (1 << 20);

/// The origin of hidden states. Those of other weights or another prompt are not comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// SHA-256 of the weights' file, in lower-case hexadecimal.
    pub weights_sha256: String,
    /// The adapter on these weights, if any: SHA-256 of its file, `*` and its scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Names how a question becomes a prompt and which token's hidden state is read.
    pub reading: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weights_sha256, adapter, reading } = self;
        let adapter = adapter.as_deref().unwrap_or("none");
        write!(f, "weights {weights_sha256}, adapter {adapter}, reading `{reading}`")
    }
}

/// Chooses a worker from a hidden state.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearHead {
    slots: Vec<WorkerId>,
    pool_sha256: String,
    source: Source,
    hidden: usize,
    /// One row for each slot.
    weights: Vec<f32>,
}

/// The file's metadata.
#[derive(Debug, Serialize, Deserialize)]
struct Metadata {
    schema: u32,
    slots: Vec<WorkerId>,
    pool_sha256: String,
    source: Source,
}

/// Why a head is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Too few or too many workers.
    #[error("slots are {slots}, they must be 1 to {WORKERS_MAX}")]
    Slots {
        /// Number of slots.
        slots: usize,
    },
    /// A worker has two slots.
    #[error("slots name worker `{worker}` twice")]
    SameSlot {
        /// The worker.
        worker: WorkerId,
    },
    /// The matrix does not have one row per slot and a valid number of columns.
    #[error("{TENSOR} has the shape {rows} x {columns}, it must be {slots} x 1 to {HIDDEN_MAX}")]
    Shape {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// Number of slots.
        slots: usize,
    },
    /// A weight is NaN or infinite.
    #[error("{TENSOR} has a value that is not finite at row {row}, column {column}")]
    NotFinite {
        /// From 0.
        row: usize,
        /// From 0.
        column: usize,
    },
}

/// Why a head cannot be used with a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherPool {
    /// The pool has no such worker.
    #[error("the mini head has a slot for a worker that is not in the pool")]
    Lacks(#[source] UnknownWorker),
    /// The definition of a slot's worker has changed.
    #[error("the mini head was trained on slots with SHA-256 {expected}, the pool's slots have {actual}")]
    Changed {
        /// The hash that the head was trained for.
        expected: String,
        /// The pool's hash.
        actual: String,
    },
}

/// Why a head chooses no worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    /// None of its workers is allowed.
    #[error("none of the mini head's workers is allowed")]
    NoneAllowed,
    /// The two best scores are tied.
    #[error("the two best scores differ by at most {TIE_MARGIN}")]
    Tie,
    /// The hidden state has the wrong size.
    #[error("the hidden state has {actual} values, the mini head takes {expected}")]
    OtherSize {
        /// The head's input size.
        expected: usize,
        /// The given size.
        actual: usize,
    },
    /// A score is NaN or infinite.
    #[error("a score is not finite")]
    NotFinite,
}

impl LinearHead {
    /// Creates a head for these slots of a pool. `weights` has one row per slot, concatenated.
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

    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, FILE_BYTES_MAX)?;
        Self::from_bytes(&bytes, path)
    }

    /// Like [`Self::read`], for bytes that were read from `path`.
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

    /// Serialises the head. Equal heads give equal bytes.
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

    /// The origin of its hidden states.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Checks that the pool contains the workers that it was trained on, unchanged. It never chooses other workers of the pool.
    pub fn fits(&self, pool: &Pool) -> Result<(), OtherPool> {
        let actual = slots_hash(pool, &self.slots).map_err(OtherPool::Lacks)?;
        if actual == self.pool_sha256 {
            return Ok(());
        }
        Err(OtherPool::Changed { expected: self.pool_sha256.clone(), actual })
    }

    /// The score of each slot, in order; `None` if the hidden state has the wrong size.
    pub fn scores(&self, hidden: &[f32]) -> Option<Vec<f32>> {
        if hidden.len() != self.hidden {
            return None;
        }
        let score = |row: &[f32]| row.iter().zip(hidden).map(|(weight, value)| weight * value).sum();
        Some(self.weights.chunks_exact(self.hidden).map(score).collect())
    }

    /// The allowed worker with the best score.
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
