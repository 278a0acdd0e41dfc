//! Recorded outcomes: how well a worker answered a question. One JSON object per line.
//!
//! ```json
//! {"schema":1,"question_id":"q-17","question":"…","worker":"gpt-5","reward":1.0,"cost_nano_usd":52000,"latency_ms":810}
//! ```
//!
//! Outcomes of workflows have `workflow` (name and version, as in `cascade-1`) instead of `worker`.
//! `reward` ranges from 0 (useless) to 1 (right). `question` is for people and for [`crate::features`], `task` for
//! evaluations; these, the cost and the latency are optional. Unknown members are ignored. Several outcomes of a worker for the same question count by their mean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use serde::{Deserialize, Serialize};

use crate::derived::Answer;
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
    /// The task that the question belongs to. Evaluations show each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The worker that answered, or, as `workflow`, the name and version of the workflow.
    #[serde(alias = "workflow")]
    pub worker: WorkerId,
    /// The text of the answer. Outcomes of workflows can be derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// From 0 to 1.
    pub reward: f64,
    /// Its cost in billionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Milliseconds from request to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// The mean rewards and costs, by question id and worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    by_question: BTreeMap<String, OfQuestion>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct OfQuestion {
    /// The question, from the first outcome that has it.
    text: Option<String>,
    /// Its task, from the first outcome that has it.
    task: Option<String>,
    by_worker: BTreeMap<WorkerId, OfWorker>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct OfWorker {
    reward: Mean,
    cost_usd: Mean,
    /// The first recorded answer, with its reward and its cost.
    answer: Option<(String, f64, Option<u64>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count = self.count.saturating_add(1);
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
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
        let Outcome { schema, question_id, question, task, worker, answer, reward, cost_nano_usd, .. } =
            outcome;
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
        if of_question.text.is_none() {
            of_question.text.clone_from(question);
        }
        if of_question.task.is_none() {
            of_question.task.clone_from(task);
        }
        let of_worker = of_question.by_worker.entry(worker.clone()).or_default();
        of_worker.reward.add(*reward);
        if let (Some(answer), None) = (answer, &of_worker.answer) {
            of_worker.answer = Some((answer.clone(), *reward, *cost_nano_usd));
        }
        if let Some(cost) = cost_nano_usd {
            of_worker.cost_usd.add(Cost::from_nano_usd(*cost).usd());
        }
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

    /// The text of a question, if an outcome has it.
    pub fn text(&self, question: &str) -> Option<&str> {
        self.by_question.get(question)?.text.as_deref()
    }

    /// The task of a question, if an outcome has it.
    pub fn task(&self, question: &str) -> Option<&str> {
        self.by_question.get(question)?.task.as_deref()
    }

    /// The mean reward of a worker for a question, if recorded.
    pub fn reward(&self, question: &str, worker: &WorkerId) -> Option<f64> {
        self.of_worker(question, worker)?.reward.value()
    }

    /// The mean cost of a worker for a question in dollars, if recorded.
    pub fn cost_usd(&self, question: &str, worker: &WorkerId) -> Option<f64> {
        self.of_worker(question, worker)?.cost_usd.value()
    }

    /// The first recorded answer of a worker to a question.
    pub fn answer(&self, question: &str, worker: &WorkerId) -> Option<Answer<'_>> {
        let (text, reward, cost_nano_usd) = self.of_worker(question, worker)?.answer.as_ref()?;
        Some(Answer { text, reward: *reward, cost_nano_usd: *cost_nano_usd })
    }

    fn of_worker(&self, question: &str, worker: &WorkerId) -> Option<&OfWorker> {
        self.by_question.get(question)?.by_worker.get(worker)
    }

    /// Whether this worker has any recorded outcome.
    pub fn knows(&self, worker: &WorkerId) -> bool {
        self.by_question.values().any(|of_question| of_question.by_worker.contains_key(worker))
    }

    /// The workers of all outcomes.
    pub fn workers(&self) -> BTreeSet<&WorkerId> {
        self.by_question.values().flat_map(|of_question| of_question.by_worker.keys()).collect()
    }
}
