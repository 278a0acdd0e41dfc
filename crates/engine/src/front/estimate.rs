//! What a run could cost, before there is one.

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::run::PlanResult;
use podium_ports::conductor::Conductor;
use podium_ports::store::StoreError;

use crate::cost_bounds::Question;
use crate::engine::Engine;
use crate::front::submit::{Submit, SubmitError};

/// How many of a tenant's latest runs are looked at for what is typical.
const LATEST_MAX: u32 = 200;
/// Fewer of them say nothing.
const TYPICAL_RUNS_MIN: usize = 5;
/// The state of a run with an answer, as stores name it.
const SUCCEEDED: &str = "succeeded";

/// What a run could cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The most that it costs if each of its steps needs one attempt. A cap of the run bounds it.
    pub cost_max: Cost,
    /// The share of it that planning costs at most.
    pub planning_cost_max: Cost,
    /// The least that a budget must have room for.
    pub cost_min: Cost,
    /// Each step of the plan and the most that one attempt at it costs, where the plan is known without asking a model.
    pub steps: Vec<(WorkerId, Cost)>,
    /// What such runs did cost; none where too few are known.
    pub typical: Option<Typical>,
}

/// What the tenant's latest successful runs of the same model cost, whatever they asked and with whatever effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// The median.
    pub cost: Cost,
    /// How many runs that is.
    pub runs: u32,
}

impl Engine {
    /// What a run could cost: by its plan where that needs no model, else by the bounds of its policy. Nobody is called, nothing
    /// is stored. The bounds hold for this run; what is typical is what others did cost.
    pub async fn estimate(&self, request: &Submit) -> Result<Estimate, SubmitError> {
        let bounds = self.bounds(request)?;
        Ok(Estimate { typical: self.typical(request).await?, ..bounds })
    }

    async fn typical(&self, request: &Submit) -> Result<Option<Typical>, StoreError> {
        let latest = self.list(&request.tenant, None, LATEST_MAX).await?;
        let alike = latest.iter().filter(|run| run.model == request.model && run.state == SUCCEEDED);
        let mut costs: Vec<_> = alike.map(|run| run.sums.cost).collect();
        costs.sort_unstable();
        let median = costs.get(costs.len() / 2).filter(|_| costs.len() >= TYPICAL_RUNS_MIN);
        Ok(median.map(|cost| Typical { cost: *cost, runs: u32::try_from(costs.len()).unwrap_or(u32::MAX) }))
    }

    fn bounds(&self, request: &Submit) -> Result<Estimate, SubmitError> {
        let conductors = &self.parts().conductors;
        if let Some(pinned) = &request.conductor {
            let conductor = conductors.all().find(|conductor| conductor.id() == pinned);
            let unknown = || SubmitError::UnknownConductor { pinned: pinned.clone() };
            return self.estimate_by(&**conductor.ok_or_else(unknown)?, request);
        }
        // Which of them a run gets is known with its id: the dearest one bounds what it costs.
        let estimates = conductors.all().map(|conductor| self.estimate_by(&**conductor, request));
        let estimates: Vec<_> = estimates.collect::<Result<_, _>>()?;
        estimates.into_iter().max_by_key(|estimate| estimate.cost_max).ok_or(SubmitError::NoWorkerAllowed)
    }

    fn estimate_by(&self, conductor: &dyn Conductor, request: &Submit) -> Result<Estimate, SubmitError> {
        let (parts, policy) = (self.parts(), self.bounded(conductor, request)?);
        let question = Question {
            conversation: &request.conversation,
            policy: &policy,
            answer_tokens_max: request.answer_tokens_max,
            at: self.now(),
        };
        let first = self.first_request(&request.conversation, policy.clone());
        let rounds = usize::from(policy.rounds_max);
        let times = |cost: Cost, rounds: usize| std::iter::repeat_n(cost, rounds).sum::<Cost>();
        let mut steps = Vec::new();
        let at_once = conductor.plan_at_once(&first).map(|outcome| outcome.result);
        let (work, planning) = if let Some(PlanResult::Plan(planned)) = at_once {
            steps = question.steps_max(&parts.pool, &planned.plan).collect();
            (steps.iter().map(|(_, cost)| *cost).sum::<Cost>(), Cost::ZERO)
        } else {
            // Each round after the first one is also shown the round before.
            let further = self.further_request(&request.conversation, policy.clone());
            let further = times(conductor.plan_cost_max(&further), rounds.saturating_sub(1));
            (times(question.round_max(&parts.pool), rounds), conductor.plan_cost_max(&first) + further)
        };
        let cap = policy.cost_max.unwrap_or(Cost::from_nano_usd(u64::MAX));
        let cost_max = (work + planning).min(cap);
        let cost_min = if steps.is_empty() { self.least(conductor, &question) } else { work };
        Ok(Estimate { cost_max, planning_cost_max: planning.min(cap), cost_min, steps, typical: None })
    }
}
