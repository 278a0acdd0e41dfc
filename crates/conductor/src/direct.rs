//! No conductor model: the whole question goes to one worker. Used without a planning model, and as the baseline that
//! planning models are compared with.

use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::policy::FailedStep;
use podium_domain::pool::{Pool, UnknownWorker};
use podium_domain::prompt;
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use tokio_util::sync::CancellationToken;

/// Plans one step: one worker, the whole question.
#[derive(Clone, Debug)]
pub struct DirectConductor {
    id: String,
    pool: Arc<Pool>,
    worker: Option<WorkerId>,
}

impl DirectConductor {
    /// Sends every question to the safest worker that its policy allows.
    pub fn to_safest(pool: Arc<Pool>) -> Self {
        Self { id: "direct".to_owned(), pool, worker: None }
    }

    /// Sends every question to `worker`.
    pub fn to_worker(pool: Arc<Pool>, worker: WorkerId) -> Result<Self, UnknownWorker> {
        if pool.worker(&worker).is_none() {
            return Err(UnknownWorker { id: worker });
        }
        Ok(Self { id: format!("direct-{worker}"), pool, worker: Some(worker) })
    }

    fn planned(&self, request: &PlanRequest) -> Result<Planned, String> {
        let safest = || self.pool.safest(&request.policy).map(|worker| &worker.id);
        let worker = self.worker.as_ref().or_else(safest).ok_or("the policy allows no worker of the pool")?;
        let draft = PlanDraft::single(worker, prompt::whole_question_subtask(&request.question));
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| error.to_string())?;
        Ok(Planned { plan, reasoning: String::new(), fallback: None })
    }
}

#[async_trait]
impl Conductor for DirectConductor {
    fn id(&self) -> &str {
        &self.id
    }

    fn abilities(&self) -> Abilities {
        Abilities { steps_max: 1, rounds_max: 1, failed_step: FailedStep::Fail }
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

/// The outcome of planning without a model: it costs nothing, and a retry cannot help.
pub(crate) fn without_model(planned: Result<Planned, String>) -> Result<PlanOutcome, ConductorError> {
    let (usage, cost) = (Usage::default(), Cost::ZERO);
    match planned {
        Ok(planned) => Ok(PlanOutcome { result: PlanResult::Plan(planned), usage, cost }),
        Err(message) => Err(ConductorError::NoPlan { tries: 1, message, usage, cost }),
    }
}
