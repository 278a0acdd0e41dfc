//! Parts of mini heads of every kind: the pool and weights that a head was trained for, its errors, and the frame of its file.

use std::fmt;
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::slots_hash;
use podium_domain::pool::{Pool, UnknownWorker, WORKERS_MAX};
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError, Matrix, Parsed};
use crate::text::FORM_VALUES;

/// Most values in a hidden state. The widest open models have 16,384.
pub const HIDDEN_MAX: usize = 32_768;
/// If the two best scores of a linear head differ by at most this, they are tied. Scores are log-odds: this is a tenth of a
/// percent, roughly the effect of a hidden state's last bits, which differ between machines.
pub const TIE_MARGIN: f32 = 1e-3;
/// Most values of the questions that a head of kind `neighbours` or `kernel` remembers, all together. A choice reads them all:
/// about 10 ms.
pub const MEMORY_VALUES_MAX: usize = 16 << 20;
/// Largest file of a head in bytes. The largest linear head and the largest memory have the same size.
pub(crate) const FILE_BYTES_MAX: u64 = (WORKERS_MAX * HIDDEN_MAX * size_of::<f32>()) as u64 + (96 << 20);

/// The file format's version for linear heads.
pub(crate) const SCHEMA_LINEAR: u32 = 1;
/// The file format's version for the other kinds.
pub(crate) const SCHEMA_KINDS: u32 = 2;
/// The file format's version for heads of every kind that choose among workflows. Earlier versions of Podium refuse them.
const SCHEMA_WORKFLOWS: u32 = 3;
const METADATA_KEY: &str = "podium.head";

/// How a head chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row of weights for each worker.
    #[default]
    Linear,
    /// The mean of what was recorded for the most similar questions.
    Neighbours,
    /// Kernel ridge regression over the recorded questions and the form of their texts.
    Kernel,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Neighbours, Self::Kernel];

    /// The kind's name in files and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Neighbours => "neighbours",
            Self::Kernel => "kernel",
        }
    }
}

/// The kind of things that a head chooses among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choices {
    /// Workers of a pool.
    #[default]
    Workers,
    /// Workflows of a file for `podium-max`. A slot is a workflow's name and version.
    Workflows,
}

impl Choices {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn are_workers(&self) -> bool {
        *self == Self::Workers
    }
}

/// The origin of hidden states. Those of other weights or another prompt are not comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// SHA-256 of the weights' file, in lower-case hexadecimal.
    pub weights_sha256: String,
    /// The adapter on these weights, if any: SHA-256 of its file, `*` and its scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Names how a question becomes a prompt and which hidden state is read.
    pub reading: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weights_sha256, adapter, reading } = self;
        let adapter = adapter.as_deref().unwrap_or("none");
        write!(f, "weights {weights_sha256}, adapter {adapter}, reading `{reading}`")
    }
}

/// The input of a head: a question's hidden state, and the form of its text.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The hidden state.
    pub hidden: &'a [f32],
    /// The [`form`](crate::text::form) of its text, if the text is known.
    pub form: Option<&'a [f32; FORM_VALUES]>,
}

/// The workers or workflows that a head chooses among, and the pool and weights that it was trained for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind of the slots.
    pub choices: Choices,
    /// The workers or workflows, in the order of the scores. Both have the same valid names.
    pub slots: Vec<WorkerId>,
    /// [`slots_hash`] of these workers, or the hash of these workflows and their workers.
    pub pool_sha256: String,
    /// The origin of the hidden states.
    pub source: Source,
}

/// The metadata of a head's file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) schema: u32,
    #[serde(default, skip_serializing_if = "is_linear")]
    pub(crate) kind: Kind,
    #[serde(default, skip_serializing_if = "Choices::are_workers")]
    pub(crate) choices: Choices,
    pub(crate) slots: Vec<WorkerId>,
    pub(crate) pool_sha256: String,
    pub(crate) source: Source,
    /// Of kind `neighbours`: how many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) neighbours: Option<usize>,
    /// Of kind `neighbours`: the price factor of the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) price_factor: Option<f64>,
    /// Of kind `neighbours`: the ids of the questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) questions: Vec<String>,
    /// Of kind `kernel`: the factor of hidden states of length 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hidden_factor: Option<f32>,
    /// Of kind `kernel`, if it uses the form of the text: the factor of a standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) form_factor: Option<f32>,
    /// Of kind `kernel`, if it uses the form of the text: [`FORM`](crate::text::FORM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) form: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_linear(kind: &Kind) -> bool {
    *kind == Kind::Linear
}

impl Metadata {
    pub(crate) fn new(schema: u32, kind: Kind, identity: &Identity) -> Self {
        let Identity { choices, slots, pool_sha256, source } = identity.clone();
        let schema = if choices == Choices::Workflows { SCHEMA_WORKFLOWS } else { schema };
        Self {
            schema,
            kind,
            choices,
            slots,
            pool_sha256,
            source,
            neighbours: None,
            price_factor: None,
            questions: Vec::new(),
            hidden_factor: None,
            form_factor: None,
            form: None,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            choices: self.choices,
            slots: self.slots.clone(),
            pool_sha256: self.pool_sha256.clone(),
            source: self.source.clone(),
        }
    }
}

/// Why a head is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    /// A matrix has the wrong number of rows or columns.
    #[error("{tensor} has the shape {rows} x {columns}, it must be {expected}")]
    Shape {
        /// The tensor's name.
        tensor: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// The valid shape.
        expected: String,
    },
    /// A number is NaN or infinite.
    #[error("{tensor} has a value that is not finite at row {row}, column {column}")]
    NotFinite {
        /// The tensor's name.
        tensor: &'static str,
        /// From 0.
        row: usize,
        /// From 0.
        column: usize,
    },
    /// A setting in the metadata is missing or out of its bounds.
    #[error("{name} is {value}, it must be {bounds}")]
    Setting {
        /// The name in the metadata.
        name: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        bounds: &'static str,
    },
    /// A head that remembers questions needs an outcome of each worker.
    #[error("worker `{worker}` has no outcome among the questions to remember")]
    NoOutcome {
        /// The worker.
        worker: WorkerId,
    },
    /// The remembered questions take too much memory.
    #[error(
        "{questions} questions of {values} values are to be remembered, the limit is {MEMORY_VALUES_MAX} values in total"
    )]
    TooLarge {
        /// Number of questions.
        questions: usize,
        /// Values of each.
        values: usize,
    },
    /// The equations have no solution in floating-point numbers.
    #[error("the kernel's equations cannot be solved")]
    Singular,
}

/// Why a head cannot be used with a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherPool {
    /// The pool has no such worker.
    #[error("the mini head has a slot for a worker that is not in the pool")]
    Lacks(#[source] UnknownWorker),
    /// The head chooses among workflows, not workers.
    #[error("the head chooses among workflows and is for podium-max; a mini head chooses among workers")]
    Workflows,
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

impl Identity {
    /// Checks the number of workers and that each has one slot.
    pub(crate) fn check(&self) -> Result<(), HeadError> {
        let slots = &self.slots;
        if slots.is_empty() || slots.len() > WORKERS_MAX {
            return Err(HeadError::Slots { slots: slots.len() });
        }
        match slots.iter().enumerate().find(|(at, slot)| slots[..*at].contains(slot)) {
            Some((_, worker)) => Err(HeadError::SameSlot { worker: worker.clone() }),
            None => Ok(()),
        }
    }

    /// Checks that the pool contains these workers, unchanged.
    pub(crate) fn fits(&self, pool: &Pool) -> Result<(), OtherPool> {
        if self.choices == Choices::Workflows {
            return Err(OtherPool::Workflows);
        }
        let actual = slots_hash(pool, &self.slots).map_err(OtherPool::Lacks)?;
        if actual == self.pool_sha256 {
            return Ok(());
        }
        Err(OtherPool::Changed { expected: self.pool_sha256.clone(), actual })
    }

    /// The allowed worker with the best score. Scores that differ by at most `margin` are tied; with 0 the first of equals wins.
    pub(crate) fn choose(
        &self,
        scores: &[f32],
        margin: f32,
        allowed: impl Fn(&WorkerId) -> bool,
    ) -> Result<&WorkerId, NoChoice> {
        let (mut best, mut second) = (None::<(f32, &WorkerId)>, f32::NEG_INFINITY);
        for (score, worker) in scores.iter().copied().zip(&self.slots).filter(|(_, worker)| allowed(worker)) {
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
        if score - second < margin { Err(NoChoice::Tie) } else { Ok(worker) }
    }
}

/// Checks a matrix of a head: its shape, and that all numbers are finite.
pub(crate) fn check_matrix(
    tensor: &'static str,
    matrix: &Matrix,
    rows: usize,
    columns: std::ops::RangeInclusive<usize>,
) -> Result<(), HeadError> {
    let Matrix { rows: actual, columns: width, values } = matrix;
    if *actual != rows || !columns.contains(width) || values.len() != rows * width {
        let (from, to) = columns.into_inner();
        let expected =
            if from == to { format!("{rows} x {from}") } else { format!("{rows} x {from} to {to}") };
        return Err(HeadError::Shape { tensor, rows: *actual, columns: *width, expected });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(HeadError::NotFinite { tensor, row: at / width, column: at % width }),
        None => Ok(()),
    }
}

/// Parses a head's file and checks its version.
pub(crate) fn parse<'a>(bytes: &'a [u8], path: &'a Path) -> Result<Parsed<'a, Metadata>, FileError> {
    let parsed = file::parse::<Metadata>(bytes, path, METADATA_KEY)?;
    let Metadata { schema, kind, choices, .. } = &parsed.document;
    let expected = match (choices, kind) {
        (Choices::Workflows, _) => SCHEMA_WORKFLOWS,
        (Choices::Workers, Kind::Linear) => SCHEMA_LINEAR,
        (Choices::Workers, _) => SCHEMA_KINDS,
    };
    if *schema == expected {
        return Ok(parsed);
    }
    let kind = kind.as_str();
    Err(parsed
        .wrong(format!("{METADATA_KEY} has schema {schema}, this version reads {expected} of kind {kind}")))
}

/// Serialises a head's file.
pub(crate) fn serialise(metadata: &Metadata, matrices: &[(&str, &Matrix)]) -> Result<Vec<u8>, FileError> {
    file::serialise(metadata, METADATA_KEY, matrices)
}
