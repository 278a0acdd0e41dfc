//! The file that lists the workflows of `podium-max` and names their head.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use podium_domain::ids::WorkerId;
use podium_domain::plan::Plan;
use podium_domain::policy::STEPS_MAX;
use podium_domain::pool::{Pool, UnknownWorker, slots_hash};
use podium_head::{Choices, FileError, Head, words};
use podium_ports::conductor::Conductor as _;
use serde::Deserialize;

use crate::fixed;
use crate::{FixedConductor, WorkflowError};

/// The name of the choice to let the conductor plan.
pub const PLANNED: &str = "planned";
/// Most workflows of a file.
pub const WORKFLOWS_MAX: usize = 64;

/// Why the workflows of a file, or their head, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The file is unreadable, too long, not YAML, or has an invalid value.
    #[error(transparent)]
    File(WorkflowError),
    /// One of the workflows is invalid.
    #[error(transparent)]
    Workflow(WorkflowError),
    /// The file names no head.
    #[error(
        "{file} has no `head`; train one with `podium head train --workflows {file}`, and name its file there"
    )]
    NoHead {
        /// The path of the file.
        file: String,
    },
    /// The head's file cannot be used.
    #[error("the head of {file} cannot be used")]
    Head {
        /// The path of the file.
        file: String,
        /// The error.
        #[source]
        source: FileError,
    },
    /// The head was trained for other choices, or reads other vectors.
    #[error(
        "the head of {file} cannot be used: {problem}; train it again with `podium head train --workflows {file}`"
    )]
    OtherHead {
        /// The path of the file.
        file: String,
        /// The difference.
        problem: String,
    },
    /// A worker of a workflow is not in the pool.
    #[error(transparent)]
    Worker(#[from] UnknownWorker),
}

/// The workflows of a file, checked against a pool.
#[derive(Debug)]
pub struct WorkflowSet {
    name: String,
    version: String,
    file: PathBuf,
    pool: Arc<Pool>,
    head: Option<PathBuf>,
    planned: bool,
    workflows: Vec<FixedConductor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    version: String,
    /// Relative to the file.
    head: Option<PathBuf>,
    /// Relative to the file.
    workflows: Vec<PathBuf>,
    #[serde(default)]
    planned: bool,
}

impl WorkflowSet {
    /// Reads the file and its workflows. It blocks the thread.
    pub fn read(path: &Path, pool: Arc<Pool>) -> Result<Self, SetError> {
        let file = path.display().to_string();
        let yaml = fixed::read(path, &file).map_err(SetError::File)?;
        let syntax = |problem: String| SetError::File(WorkflowError::Syntax { file: file.clone(), problem });
        let entry: Entry =
            serde_saphyr::from_str(&yaml).map_err(|error| syntax(error.without_snippet().to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (mut problems, mut workflows) = (Vec::new(), Vec::<FixedConductor>::new());
        if let Err(error) = WorkerId::new(format!("{}-{}", entry.name, entry.version)) {
            problems.push(format!("name and version: {error}"));
        }
        if !(1..=WORKFLOWS_MAX).contains(&entry.workflows.len()) {
            let count = entry.workflows.len();
            problems.push(format!("workflows has {count} entries, it must have 1 to {WORKFLOWS_MAX}"));
        }
        for path in &entry.workflows {
            let workflow =
                FixedConductor::read(&folder.join(path), Arc::clone(&pool)).map_err(SetError::Workflow)?;
            if workflow.id() == PLANNED || workflows.iter().any(|other| other.id() == workflow.id()) {
                problems.push(format!("workflows: two choices have the name `{}`", workflow.id()));
            }
            workflows.push(workflow);
        }
        if !problems.is_empty() {
            return Err(SetError::File(WorkflowError::Invalid { file, problems }));
        }
        Ok(Self {
            name: entry.name,
            version: entry.version,
            file: path.to_owned(),
            pool,
            head: entry.head.map(|head| folder.join(head)),
            planned: entry.planned,
            workflows,
        })
    }

    /// Name and version, as runs record them.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Whether [`PLANNED`] is a choice.
    pub fn offers_planned(&self) -> bool {
        self.planned
    }

    pub(super) fn into_workflows(self) -> Vec<FixedConductor> {
        self.workflows
    }

    /// The names of all choices: the workflows, and [`PLANNED`] if the file offers it.
    pub fn choices(&self) -> Vec<WorkerId> {
        let names = self.workflows.iter().map(FixedConductor::id);
        let planned = self.planned.then_some(PLANNED);
        names.chain(planned).filter_map(|name| WorkerId::new(name).ok()).collect()
    }

    /// The plan of a workflow for a question, under a policy that allows everything. `None` for [`PLANNED`].
    pub fn plan(&self, choice: &WorkerId, question: &str) -> Option<Plan> {
        let workflow = self.workflows.iter().find(|workflow| workflow.id() == choice.as_str())?;
        workflow.plan_for(question, STEPS_MAX).ok()
    }

    /// The identity of these choices: the lower-case hexadecimal SHA-256 of their names, their steps, and the models of their workers.
    pub fn hash(&self, choices: &[WorkerId]) -> Result<String, SetError> {
        let mut parts = Vec::with_capacity(choices.len());
        for choice in choices {
            // The question does not matter: it stands for the place where it is inserted.
            let plan = self.plan(choice, "{{ question }}");
            let steps = plan.as_ref().map(Plan::steps).unwrap_or_default();
            let workers: Vec<WorkerId> = steps.iter().map(|step| step.worker.clone()).collect();
            parts.push(serde_json::json!([choice, steps, slots_hash(&self.pool, &workers)?]));
        }
        Ok(podium_bundle::sha256(serde_json::Value::from(parts).to_string().as_bytes()))
    }

    /// The head that the file names.
    pub(super) fn head(&self) -> Result<Head, SetError> {
        let file = || self.file.display().to_string();
        let path = self.head.as_ref().ok_or_else(|| SetError::NoHead { file: file() })?;
        Head::read(path).map_err(|source| SetError::Head { file: file(), source })
    }

    /// Checks that the head chooses among these workflows, unchanged, and reads the vectors that are computed here.
    pub(super) fn check(&self, head: &Head) -> Result<(), SetError> {
        let other = |problem: String| SetError::OtherHead { file: self.file.display().to_string(), problem };
        if head.choices() != Choices::Workflows {
            return Err(other("it chooses among workers, not workflows".to_owned()));
        }
        if *head.source() != words::source() {
            return Err(other(format!(
                "it reads other vectors ({}), not the words of questions",
                head.source()
            )));
        }
        let choices = self.choices();
        if let Some(unknown) = head.slots().iter().find(|slot| !choices.contains(slot)) {
            return Err(other(format!("it may choose `{unknown}`, which the file does not offer")));
        }
        if head.pool_sha256() != self.hash(head.slots())? {
            return Err(other("a workflow has other steps or models than in training".to_owned()));
        }
        Ok(())
    }
}
