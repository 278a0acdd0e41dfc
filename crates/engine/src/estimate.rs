//! What a run could cost, before there is one.

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::run::PlanResult;

use crate::engine::Engine;
use crate::submit::{Submit, SubmitError};
use crate::worth::Question;

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
}

impl Engine {
    /// What a run could cost: by its plan where that needs no model, else by the bounds of its policy. Nobody is called, nothing
    /// is stored.
    pub fn estimate(&self, request: Submit) -> Result<Estimate, SubmitError> {
        let (parts, policy) = (self.parts(), self.within_abilities(request.policy));
        policy.check()?;
        if parts.pool.safest(&policy).is_none() {
            return Err(SubmitError::NoWorkerAllowed);
        }
        let question = Question {
            conversation: &request.conversation,
            policy: &policy,
            answer_tokens_max: request.answer_tokens_max,
            at: self.now(),
        };
        let first = self.first_request(&request.conversation, policy.clone());
        let rounds = usize::from(policy.rounds_max);
        let times = |cost: Cost| std::iter::repeat_n(cost, rounds).sum::<Cost>();
        let mut steps = Vec::new();
        let (work, planning) = match parts.conductor.plan_at_once(&first).map(|outcome| outcome.result) {
            Some(PlanResult::Plan(planned)) => {
                steps = question.steps_max(&parts.pool, &planned.plan).collect();
                (steps.iter().map(|(_, cost)| *cost).sum::<Cost>(), Cost::ZERO)
            }
            _ => (times(question.round_max(&parts.pool)), times(parts.conductor.plan_cost_max(&first))),
        };
        let cap = policy.cost_max.unwrap_or(Cost::from_nano_usd(u64::MAX));
        let cost_max = (work + planning).min(cap);
        let cost_min = if steps.is_empty() { self.least(&question) } else { work };
        Ok(Estimate { cost_max, planning_cost_max: planning.min(cap), cost_min, steps })
    }
}
