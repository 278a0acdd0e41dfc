//! A file with the hidden states of questions, on which a head is trained.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::file::{self, FileError, Matrix};
use crate::identity::{HIDDEN_MAX, Source};

/// Most questions in a file.
pub const QUESTIONS_MAX: usize = 100_000;
/// Largest file in bytes: 100,000 hidden states of a model with 1.5 billion parameters, or 45,000 of one with 7 billion.
pub const FILE_BYTES_MAX: u64 = 640 << 20;

const SCHEMA: u32 = 1;
const METADATA_KEY: &str = "podium.features";
const TENSOR: &str = "hidden";

/// The hidden states of questions, by question id.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    source: Source,
    hidden: usize,
    by_question: BTreeMap<String, Vec<f32>>,
}

/// The file's metadata.
#[derive(Debug, Serialize, Deserialize)]
struct Metadata {
    schema: u32,
    source: Source,
    /// Question ids of the rows.
    questions: Vec<String>,
}

/// Why a hidden state is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeaturesError {
    /// The limit is reached.
    #[error("more than {QUESTIONS_MAX} questions")]
    TooMany,
    /// A question occurs twice.
    #[error("question `{id}` occurs twice")]
    Twice {
        /// Its id.
        id: String,
    },
    /// Its size differs from the others, or no head supports it.
    #[error("question `{id}` has a hidden state of {values} values, it must be {expected}")]
    Size {
        /// The question's id.
        id: String,
        /// Its size.
        values: usize,
        /// The expected size.
        expected: String,
    },
    /// A value is NaN or infinite.
    #[error("question `{id}` has a hidden state with a value that is not finite")]
    NotFinite {
        /// The question's id.
        id: String,
    },
}

impl Features {
    /// Creates an empty set.
    pub fn new(source: Source) -> Self {
        Self { source, hidden: 0, by_question: BTreeMap::new() }
    }

    /// Adds the hidden state of a question. An error leaves the set unchanged.
    pub fn add(&mut self, id: String, hidden: Vec<f32>) -> Result<(), FeaturesError> {
        let values = hidden.len();
        let is_first = self.by_question.is_empty();
        if self.by_question.len() >= QUESTIONS_MAX {
            return Err(FeaturesError::TooMany);
        }
        if is_first && !(1..=HIDDEN_MAX).contains(&values) {
            return Err(FeaturesError::Size { id, values, expected: format!("1 to {HIDDEN_MAX}") });
        }
        if !is_first && values != self.hidden {
            return Err(FeaturesError::Size { id, values, expected: self.hidden.to_string() });
        }
        if hidden.iter().any(|value| !value.is_finite()) {
            return Err(FeaturesError::NotFinite { id });
        }
        if self.by_question.contains_key(&id) {
            return Err(FeaturesError::Twice { id });
        }
        self.hidden = values;
        self.by_question.insert(id, hidden);
        Ok(())
    }

    /// The origin of the hidden states.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Values in each hidden state; 0 while the set is empty.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Number of questions.
    pub fn len(&self) -> usize {
        self.by_question.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.by_question.is_empty()
    }

    /// The hidden state of a question.
    pub fn of(&self, id: &str) -> Option<&[f32]> {
        self.by_question.get(id).map(Vec::as_slice)
    }

    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, FILE_BYTES_MAX)?;
        let parsed = file::parse::<Metadata>(&bytes, path, METADATA_KEY)?;
        let matrix = parsed.matrix(TENSOR)?;
        let metadata = parsed.document;
        let wrong = |problem: String| FileError::Wrong { path: path.to_owned(), problem };
        if metadata.schema != SCHEMA {
            let schema = metadata.schema;
            return Err(wrong(format!("{METADATA_KEY} has schema {schema}, this version reads {SCHEMA}")));
        }
        if metadata.questions.len() != matrix.rows || matrix.columns == 0 {
            let (rows, columns, questions) = (matrix.rows, matrix.columns, metadata.questions.len());
            return Err(wrong(format!(
                "{TENSOR} has the shape {rows} x {columns} for {questions} questions"
            )));
        }
        let mut features = Self::new(metadata.source);
        for (id, hidden) in metadata.questions.into_iter().zip(matrix.values.chunks_exact(matrix.columns)) {
            features.add(id, hidden.to_vec()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(features)
    }

    /// Serialises the set. Equal sets give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let questions = self.by_question.keys().cloned().collect();
        let metadata = Metadata { schema: SCHEMA, source: self.source.clone(), questions };
        let values: Vec<f32> = self.by_question.values().flatten().copied().collect();
        let matrix = Matrix { rows: self.len(), columns: self.hidden, values };
        file::serialise(&metadata, METADATA_KEY, &[(TENSOR, &matrix)])
    }
}
