//! Recorded outcomes: how well a worker answered a question. One JSON object per line.
//!
//! ```json
//! {"schema":1,"question_id":"q-17","question":"…","worker":"gpt-5","reward":1.0,"cost_nano_usd":52000,"latency_ms":810}
//! ```
//!
//! `reward` ranges from 0 (useless) to 1 (right). `question` is for people and for [`crate::features`]; it, the cost and the
//! latency are optional. Unknown members are ignored. Several outcomes of a worker for the same question count by their mean.

use std::collections::BTreeMap;
use std::path::Path;

use podium_domain::ids::WorkerId;
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError};

/// The version of the line format.
pub const SCHEMA: u32 = 1;
/// Largest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// The result of one worker for one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The question's id; equal ids are the same question.
    pub question_id: String,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The worker that answered.
    pub worker: WorkerId,
    /// From 0 to 1.
    pub reward: f64,
    /// Its cost in billionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Milliseconds from request to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// The mean rewards, by question id and worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    by_question: BTreeMap<String, BTreeMap<WorkerId, Mean>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u32,
}

/// Why an outcome is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OutcomeError {
    /// An unknown version.
    #[error("schema is {schema}, this version reads {SCHEMA}")]
    Schema {
        /// The given version.
        schema: u32,
    },
    /// Outside 0 to 1.
    #[error("reward is {reward}, it must be 0 to 1")]
    Reward {
        /// The given reward.
        reward: f64,
    },
    /// The question's id is blank.
    #[error("question_id must not be blank")]
    NoId,
}

impl Outcomes {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: &Outcome) -> Result<(), OutcomeError> {
        let Outcome { schema, question_id, worker, reward, .. } = outcome;
        if *schema != SCHEMA {
            return Err(OutcomeError::Schema { schema: *schema });
        }
        if question_id.trim().is_empty() {
            return Err(OutcomeError::NoId);
        }
        if !(0.0..=1.0).contains(reward) {
            return Err(OutcomeError::Reward { reward: *reward });
        }
        let of_question = self.by_question.entry(question_id.clone()).or_default();
        let mean = of_question.entry(worker.clone()).or_default();
        mean.sum += reward;
        mean.count = mean.count.saturating_add(1);
        Ok(())
    }

    /// Reads and validates a file; an error names the line.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = file::read(path, FILE_BYTES_MAX)?;
        let wrong = |problem: String| FileError::Wrong { path: path.to_owned(), problem };
        let text = String::from_utf8(bytes).map_err(|e| wrong(e.to_string()))?;
        let mut outcomes = Self::default();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let outcome: Outcome =
                serde_json::from_str(text).map_err(|e| wrong(format!("line {line}: {e}")))?;
            outcomes.add(&outcome).map_err(|e| wrong(format!("line {line}: {e}")))?;
        }
        Ok(outcomes)
    }

    /// The questions' ids, sorted.
    pub fn questions(&self) -> impl Iterator<Item = &str> {
        self.by_question.keys().map(String::as_str)
    }

    /// The mean reward of a worker for a question, if recorded.
    pub fn reward(&self, question: &str, worker: &WorkerId) -> Option<f64> {
        let mean = self.by_question.get(question)?.get(worker)?;
        Some(mean.sum / f64::from(mean.count))
    }

    /// Whether this worker has any recorded outcome.
    pub fn knows(&self, worker: &WorkerId) -> bool {
        self.by_question.values().any(|of_question| of_question.contains_key(worker))
    }

    /// The workers of all outcomes.
    pub fn workers(&self) -> std::collections::BTreeSet<&WorkerId> {
        self.by_question.values().flat_map(BTreeMap::keys).collect()
    }
}
