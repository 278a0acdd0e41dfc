//! A workflow's file: its keys, their bounds, and one list of all its problems.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::policy::{FailedStep, STEPS_MAX};
use podium_domain::pool::Pool;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::template::Templates;

/// Longest workflow file in bytes.
pub const WORKFLOW_BYTES_MAX: usize = 64 << 10;

/// Stands for the safest worker in a step's `worker`.
const ANY: &str = "any";

/// Why a workflow's file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// The file cannot be read.
    #[error("workflow {file} cannot be read")]
    Unreadable {
        /// The path.
        file: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The file is too long.
    #[error("workflow {file} has more than {WORKFLOW_BYTES_MAX} bytes")]
    TooLong {
        /// The path.
        file: String,
    },
    /// Not YAML, an unknown key, or a value of the wrong type.
    #[error("workflow {file} cannot be parsed: {problem}")]
    Syntax {
        /// The path.
        file: String,
        /// The problem and its position.
        problem: String,
    },
    /// Well-formed, but wrong; every problem is listed.
    #[error("workflow {file} is invalid:{}", Lines(.problems))]
    Invalid {
        /// The path.
        file: String,
        /// Each problem with its step (from 1) and key.
        problems: Vec<String>,
    },
}

struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  - {line}"))
    }
}

/// A checked workflow.
#[derive(Debug)]
pub(super) struct Workflow {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) description: String,
    /// The reaction to a failed step, since no model can plan again.
    pub(super) failed_step: FailedStep,
    pub(super) steps: Vec<FixedStep>,
    pub(super) templates: Templates,
}

/// A step of a workflow.
#[derive(Debug)]
pub(super) struct FixedStep {
    pub(super) worker: Role,
    /// The name of the subtask's template.
    pub(super) template: String,
    /// Positions of earlier steps, from 0.
    pub(super) sees: Vec<i64>,
    /// Positions of earlier steps, from 0. If their answers agree, the step takes over the output of the first of them.
    pub(super) unless_agree: Vec<i64>,
}

/// The worker of a step.
#[derive(Debug)]
pub(super) enum Role {
    Named(WorkerId),
    /// The safest worker that the policy allows.
    Any,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowFile {
    name: String,
    version: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    failed_step: OnFailure,
    steps: Vec<StepEntry>,
}

/// The reaction to a failed step. A workflow is fixed, so `replan` does not exist.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    #[default]
    Fail,
    Continue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepEntry {
    worker: String,
    subtask: String,
    #[serde(default)]
    sees: Sees,
    #[serde(default)]
    unless_agree: Vec<i64>,
}

/// The steps that a step sees, as written: numbers of earlier steps, from 1.
enum Sees {
    All,
    Steps(Vec<i64>),
}

impl Default for Sees {
    fn default() -> Self {
        Self::Steps(Vec::new())
    }
}

/// Reads a file, unless it is too long.
pub(crate) fn read(path: &Path, file: &str) -> Result<String, WorkflowError> {
    let unreadable = |source| WorkflowError::Unreadable { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(unreadable)?;
    opened.take(WORKFLOW_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > WORKFLOW_BYTES_MAX {
        return Err(WorkflowError::TooLong { file: file.to_owned() });
    }
    String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))
}

impl Workflow {
    pub(super) fn parse(file: &str, yaml: &str, pool: &Pool) -> Result<Self, WorkflowError> {
        let file = file.to_owned();
        if yaml.len() > WORKFLOW_BYTES_MAX {
            return Err(WorkflowError::TooLong { file });
        }
        let entry: WorkflowFile = match serde_saphyr::from_str(yaml) {
            Ok(entry) => entry,
            Err(error) => {
                let problem = error.without_snippet().to_string();
                return Err(WorkflowError::Syntax { file, problem });
            }
        };
        let mut problems = Vec::new();
        // A conductor's id has the same valid characters as a worker's name.
        if let Err(error) = WorkerId::new(format!("{}-{}", entry.name, entry.version)) {
            problems.push(format!("name and version: {error}"));
        }
        let count = entry.steps.len();
        if !(1..=usize::from(STEPS_MAX)).contains(&count) {
            problems.push(format!("steps has {count} entries, it must have 1 to {STEPS_MAX}"));
        }
        let mut templates = Templates::new();
        let steps: Vec<_> = (1i64..)
            .zip(&entry.steps)
            .filter_map(|(number, step)| checked(number, step, pool, &mut templates, &mut problems))
            .collect();
        if problems.is_empty() {
            let failed_step = match entry.failed_step {
                OnFailure::Fail => FailedStep::Fail,
                OnFailure::Continue => FailedStep::Continue,
            };
            let WorkflowFile { name, version, description, .. } = entry;
            Ok(Self { name, version, description, failed_step, steps, templates })
        } else {
            Err(WorkflowError::Invalid { file, problems })
        }
    }
}

/// Checks the step with this number (from 1) and appends its problems.
fn checked(
    number: i64,
    entry: &StepEntry,
    pool: &Pool,
    templates: &mut Templates,
    problems: &mut Vec<String>,
) -> Option<FixedStep> {
    let known = problems.len();
    let template = format!("step {number}");
    let worker =
        role(&entry.worker, pool).map_err(|problem| problems.push(format!("{template}: worker {problem}")));
    if let Err(problem) = templates.add(&template, &entry.subtask) {
        problems.push(format!("{template}: subtask {problem}"));
    }
    let sees = match &entry.sees {
        Sees::All => (0..number - 1).collect(),
        Sees::Steps(steps) => positions("sees", number, steps, problems),
    };
    let unless_agree = positions("unless_agree names", number, &entry.unless_agree, problems);
    if unless_agree.len() == 1 {
        problems.push(format!("{template}: unless_agree names one step, it must name at least two"));
    }
    let worker = worker.ok()?;
    (problems.len() == known).then_some(FixedStep { worker, template, sees, unless_agree })
}

/// The positions, from 0, of the earlier steps that step `number` names, from 1. Appends the problems, which begin with `key`.
fn positions(key: &str, number: i64, steps: &[i64], problems: &mut Vec<String>) -> Vec<i64> {
    let mut named = BTreeSet::new();
    for step in steps {
        if !(1..number).contains(step) {
            problems.push(format!("step {number}: {key} {step}, which is not an earlier step"));
        } else if !named.insert(step) {
            problems.push(format!("step {number}: {key} {step} twice"));
        }
    }
    steps.iter().map(|step| step.saturating_sub(1)).collect()
}

fn role(name: &str, pool: &Pool) -> Result<Role, String> {
    if name == ANY {
        return Ok(Role::Any);
    }
    let id = WorkerId::new(name).map_err(|error| format!("is not a valid name: {error}"))?;
    match pool.worker(&id) {
        Some(_) => Ok(Role::Named(id)),
        None => Err(format!("`{id}` is not in pool {}", pool.version())),
    }
}

impl<'de> Deserialize<'de> for Sees {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeesVisitor)
    }
}

struct SeesVisitor;

impl<'de> Visitor<'de> for SeesVisitor {
    type Value = Sees;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`all` or a list of the numbers of earlier steps, from 1")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Sees, E> {
        match word {
            "all" => Ok(Sees::All),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sees, A::Error> {
        let mut steps = Vec::new();
        while let Some(step) = list.next_element()? {
            steps.push(step);
        }
        Ok(Sees::Steps(steps))
    }
}
