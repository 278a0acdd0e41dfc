//! `podium-max`: for each question a trained head chooses one of the operator's workflows by what it is expected to be worth.

mod file;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::policy::FailedStep;
use podium_domain::pool::Pool;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_head::{Head, Input, text, words};
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;

use crate::FixedConductor;
use crate::direct::without_model;

pub use file::{PLANNED, SetError, WORKFLOWS_MAX, WorkflowSet};

/// Lets a head choose the workflow of each run.
pub struct WorkflowHead {
    id: String,
    head: Head,
    workflows: Vec<FixedConductor>,
    /// Plans the choice [`PLANNED`], if the file offers it.
    planner: Option<Planner>,
    abilities: Abilities,
}

/// The conductor whose plan is the choice [`PLANNED`].
#[derive(Clone)]
pub enum Planner {
    /// A conductor of this process.
    Here(Arc<dyn Conductor>),
    /// A conductor of another process, with these abilities.
    Elsewhere(Abilities),
}

impl Planner {
    fn abilities(&self) -> Abilities {
        match self {
            Self::Here(conductor) => conductor.abilities(),
            Self::Elsewhere(abilities) => *abilities,
        }
    }

    fn here(&self) -> Option<&dyn Conductor> {
        match self {
            Self::Here(conductor) => Some(&**conductor),
            Self::Elsewhere(_) => None,
        }
    }
}

/// The workflow that the head chose.
enum Choice {
    /// The plan of a workflow.
    Fixed(Planned),
    /// The plan of the conductor.
    Planned,
}

impl WorkflowHead {
    /// Reads the file of the workflows, these, and the head. It blocks the thread and is meant for start-up.
    pub fn read(path: &Path, pool: Arc<Pool>, planner: Planner) -> Result<Self, SetError> {
        let set = WorkflowSet::read(path, pool)?;
        let head = set.head()?;
        Self::new(set, head, planner)
    }

    /// Lets this head choose among the workflows of the set.
    pub fn new(set: WorkflowSet, head: Head, planner: Planner) -> Result<Self, SetError> {
        set.check(&head)?;
        let (id, planner) = (set.id(), set.offers_planned().then_some(planner));
        let workflows = set.into_workflows();
        let steps_max = workflows.iter().map(|workflow| workflow.abilities().steps_max);
        let steps_max = steps_max.chain(planner.iter().map(|planner| planner.abilities().steps_max)).max();
        let abilities = Abilities {
            steps_max: steps_max.unwrap_or(1),
            rounds_max: 1,
            // A new first plan is another choice, without the workflows whose workers failed.
            failed_step: FailedStep::Replan,
        };
        Ok(Self { id, head, workflows, planner, abilities })
    }

    /// The best of the workflows that the policy of the request allows.
    fn choose(&self, request: &PlanRequest) -> Result<Choice, String> {
        let mut plans: Vec<(&FixedConductor, Planned)> = Vec::new();
        for workflow in &self.workflows {
            if let Ok(planned) = workflow.planned(request) {
                plans.push((workflow, planned));
            }
        }
        let (hidden, form) = (words::vector(&request.question), text::form(&request.question));
        let input = Input { hidden: &hidden, form: Some(&form) };
        let allowed = |id: &WorkerId| {
            id.as_str() == PLANNED || plans.iter().any(|(workflow, _)| workflow.id() == id.as_str())
        };
        let chosen = self.head.choose_any(input, allowed).map_err(|reason| {
            format!(
                "podium-max chooses no workflow: {reason}; the policy must allow the workers and steps of one"
            )
        })?;
        let at = plans.iter().position(|(workflow, _)| workflow.id() == chosen.as_str());
        let Some((_, planned)) = at.map(|at| plans.swap_remove(at)) else {
            return Ok(Choice::Planned);
        };
        let reasoning = format!("The head chose the workflow `{chosen}`.");
        Ok(Choice::Fixed(Planned { reasoning, ..planned }))
    }
}

#[async_trait]
impl Conductor for WorkflowHead {
    fn id(&self) -> &str {
        &self.id
    }

    /// As many steps as the longest workflow has. The policy of a run may allow only shorter ones.
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        if stop.is_cancelled() {
            return Err(ConductorError::Stopped);
        }
        match (self.choose(request), self.planner.as_ref().and_then(Planner::here)) {
            (Ok(Choice::Planned), Some(conductor)) => conductor.plan(request, text, stop).await,
            (Ok(Choice::Planned), None) => Err(ConductorError::Absent { id: PLANNED.to_owned() }),
            (Ok(Choice::Fixed(planned)), _) => without_model(Ok(planned)),
            (Err(message), _) => without_model(Err(message)),
        }
    }

    fn plan_at_once(&self, request: &PlanRequest) -> Option<PlanOutcome> {
        match self.choose(request).ok()? {
            Choice::Fixed(planned) => {
                let (usage, cost) = (Usage::default(), Cost::ZERO);
                Some(PlanOutcome { result: PlanResult::Plan(planned), usage, cost })
            }
            Choice::Planned => self.planner.as_ref()?.here()?.plan_at_once(request),
        }
    }

    fn plan_cost_max(&self, request: &PlanRequest) -> Cost {
        self.planner
            .as_ref()
            .and_then(Planner::here)
            .map_or(Cost::ZERO, |conductor| conductor.plan_cost_max(request))
    }
}
