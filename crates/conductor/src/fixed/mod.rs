//! A workflow written by a person: every question runs in the same way.
//!
//! The baselines that conductors are compared with (several answers and a vote, an answer and its critique, a mixture of
//! agents) are such workflows, so they run on the same engine and are measured in the same way.

mod file;
mod template;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::plan::{Plan, PlanDraft, RawAccess, RawId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::prompt;
use podium_domain::run::Planned;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;

use crate::direct::without_model;
use file::{Role, Workflow};
use template::Blanks;

pub(crate) use file::read;
pub use file::{WORKFLOW_BYTES_MAX, WorkflowError};

/// Plans the workflow of a file.
#[derive(Debug)]
pub struct FixedConductor {
    id: String,
    pool: Arc<Pool>,
    workflow: Workflow,
}

impl FixedConductor {
    /// Reads and checks a workflow's file. It blocks the thread and is meant for start-up.
    pub fn read(path: &Path, pool: Arc<Pool>) -> Result<Self, WorkflowError> {
        let file = path.display().to_string();
        let yaml = file::read(path, &file)?;
        Self::parse(&file, &yaml, pool)
    }

    /// Checks a workflow's text and reports all its problems at once. Errors call it `file`.
    pub fn parse(file: &str, yaml: &str, pool: Arc<Pool>) -> Result<Self, WorkflowError> {
        let workflow = Workflow::parse(file, yaml, &pool)?;
        let id = format!("{}-{}", workflow.name, workflow.version);
        Ok(Self { id, pool, workflow })
    }

    /// The author's description of the workflow.
    pub fn description(&self) -> &str {
        &self.workflow.description
    }

    pub(crate) fn planned(&self, request: &PlanRequest) -> Result<Planned, String> {
        let plan = self.plan_under(&request.question, &request.policy)?;
        Ok(Planned { plan, reasoning: String::new(), fallback: None })
    }

    /// The plan for a question, under a policy that allows every worker and `steps_max` steps.
    pub(crate) fn plan_for(&self, question: &str, steps_max: u16) -> Result<Plan, String> {
        let policy = Policy { steps_max, ..Policy::new(Tier::Ultra, Effort::Medium) };
        self.plan_under(question, &policy)
    }

    fn plan_under(&self, question: &str, policy: &Policy) -> Result<Plan, String> {
        // A question that is too long for a subtask is not copied into it: every worker sees the question anyway.
        let question = prompt::whole_question_subtask(question);
        let blanks = Blanks { question: &question, steps_max: policy.steps_max };
        let mut draft = PlanDraft::default();
        for step in &self.workflow.steps {
            let worker = match &step.worker {
                Role::Named(worker) => worker,
                Role::Any => {
                    let safest = self.pool.safest(policy);
                    &safest.ok_or("the policy allows no worker of the pool")?.id
                }
            };
            draft.model_id.push(RawId::Name(worker.as_str().to_owned()));
            draft.subtasks.push(self.workflow.templates.fill(&step.template, blanks)?);
            draft.access_list.push(RawAccess::Indices(step.sees.clone()));
        }
        let conditions: Vec<_> = self.workflow.steps.iter().map(|step| step.unless_agree.clone()).collect();
        let plan = draft.check(&self.pool, policy).and_then(|plan| plan.with_conditions(&conditions));
        plan.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Conductor for FixedConductor {
    fn id(&self) -> &str {
        &self.id
    }

    /// As many steps as the workflow has. A run with a smaller limit gets no plan.
    fn abilities(&self) -> Abilities {
        let steps_max = u16::try_from(self.workflow.steps.len()).unwrap_or(u16::MAX);
        Abilities { steps_max, rounds_max: 1, failed_step: self.workflow.failed_step }
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        _text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        if stop.is_cancelled() {
            return Err(ConductorError::Stopped);
        }
        without_model(self.planned(request))
    }

    fn plan_at_once(&self, request: &PlanRequest) -> Option<PlanOutcome> {
        without_model(self.planned(request)).ok()
    }
}
