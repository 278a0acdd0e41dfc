//! Recorded outcomes: which worker answered which question how well. One JSON object a line.
//!
//! ```json
//! {"schema":1,"question_id":"q-17","question":"…","worker":"gpt-5","reward":1.0,"cost_nano_usd":52000,"latency_ms":810}
//! ```
//!
//! `reward` is from 0 (useless) to 1 (right). `question` is for people and for [`crate::features`], and may be left out, as may
//! cost and latency. Further members are the writer's own business. Several outcomes of one worker at one question count by
//! their mean.

use std::collections::BTreeMap;
use std::path::Path;

use podium_domain::ids::WorkerId;
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError};

/// The version of the lines that this version reads and writes.
pub const SCHEMA: u32 = 1;
/// Most bytes of a file.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// How one worker did at one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Names the question: the same id is the same question.
    pub question_id: String,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Who answered.
    pub worker: WorkerId,
    /// From 0 to 1.
    pub reward: f64,
    /// What it cost, in billionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// From asking to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// The mean rewards of questions, by id and worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    by_question: BTreeMap<String, BTreeMap<WorkerId, Mean>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u32,
}

/// Why an outcome is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OutcomeError {
    /// Of another version.
    #[error("schema is {schema}, this version reads {SCHEMA}")]
    Schema {
        /// What it says.
        schema: u32,
    },
    /// Not from 0 to 1.
    #[error("reward is {reward}, it must be 0 to 1")]
    Reward {
        /// What it says.
        reward: f64,
    },
    /// The question has no name.
    #[error("question_id must not be blank")]
    NoId,
}

impl Outcomes {
    /// Adds one.
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

    /// Reads and checks a file; an error names the line.
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

    /// The questions' ids, in order.
    pub fn questions(&self) -> impl Iterator<Item = &str> {
        self.by_question.keys().map(String::as_str)
    }

    /// The mean reward of a worker at a question, if it was recorded.
    pub fn reward(&self, question: &str, worker: &WorkerId) -> Option<f64> {
        let mean = self.by_question.get(question)?.get(worker)?;
        Some(mean.sum / f64::from(mean.count))
    }

    /// Whether any outcome of this worker was recorded.
    pub fn knows(&self, worker: &WorkerId) -> bool {
        self.by_question.values().any(|of_question| of_question.contains_key(worker))
    }

    /// The workers of all outcomes, each once.
    pub fn workers(&self) -> std::collections::BTreeSet<&WorkerId> {
        self.by_question.values().flat_map(BTreeMap::keys).collect()
    }
}
