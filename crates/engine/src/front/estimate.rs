//! Estimates the cost of a run before it is accepted.

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::request::RunRequest;
use podium_domain::run::PlanResult;
use podium_domain::tools::ToolUse;
use podium_ports::conductor_profile::ConductorProfile;
use podium_ports::store::{RunFilter, StoreError};

use super::submit::{Submit, SubmitError, bounded, least, no_worker_allowed};
use crate::context::Context;
use crate::cost_bounds::Question;
use crate::planner::request::{first_request, follow_up_request};

/// Most of a tenant's latest runs that are read for the typical cost.
const LATEST_MAX: u32 = 200;
/// With fewer runs there is no typical cost.
const TYPICAL_RUNS_MIN: usize = 5;
/// The state of a run with an answer, in the stores' terms.
const SUCCEEDED: &str = "succeeded";

/// The cost of a run, estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The highest cost with one attempt at each step, bounded by the run's cap.
    pub cost_max: Cost,
    /// The highest cost of planning, included in `cost_max`.
    pub planning_cost_max: Cost,
    /// The least capacity that a budget must have.
    pub cost_min: Cost,
    /// The worker of each step and the highest cost of one attempt, if the plan needs no model.
    pub steps: Vec<(WorkerId, Cost)>,
    /// The cost of similar runs; `None` if there are too few.
    pub typical: Option<Typical>,
}

/// The cost of runs of the same model and tenant, with any question and effort: those of the tenant's latest [`LATEST_MAX`] runs that
/// succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// The median.
    pub cost: Cost,
    /// The number of runs, at least [`TYPICAL_RUNS_MIN`].
    pub runs: u32,
}

/// Bounds by the plan if it needs no model, else by the policy. No worker is called, and nothing is stored. The bounds hold for this
/// run; [`Estimate::typical`] is the cost of other runs.
pub(crate) async fn estimate(context: &Context, request: &Submit) -> Result<Estimate, SubmitError> {
    let bounds = bounds(context, request)?;
    Ok(Estimate { typical: typical(context, request).await?, ..bounds })
}

async fn typical(context: &Context, request: &Submit) -> Result<Option<Typical>, StoreError> {
    let latest = context.parts().store.list(&request.tenant, &RunFilter::default(), None, LATEST_MAX).await?;
    let alike = latest.iter().filter(|run| run.model == request.model && run.state == SUCCEEDED);
    let mut costs: Vec<_> = alike.map(|run| run.sums.cost).collect();
    costs.sort_unstable();
    let median = costs.get(costs.len() / 2).filter(|_| costs.len() >= TYPICAL_RUNS_MIN);
    Ok(median.map(|cost| Typical { cost: *cost, runs: u32::try_from(costs.len()).unwrap_or(u32::MAX) }))
}

fn bounds(context: &Context, submit: &Submit) -> Result<Estimate, SubmitError> {
    if let Some(pinned) = &submit.conductor {
        let conductor = context.parts().conductor(pinned);
        let unknown = || SubmitError::UnknownConductor { pinned: pinned.clone() };
        return estimate_by(context, conductor.ok_or_else(unknown)?, &submit.request);
    }
    // The run's id decides which of them the run gets: the most expensive one bounds the cost.
    let all = context.parts().conductors.all();
    let estimates = all.map(|conductor| estimate_by(context, conductor, &submit.request));
    let estimates: Vec<_> = estimates.collect::<Result<_, _>>()?;
    estimates
        .into_iter()
        .max_by_key(|estimate| estimate.cost_max)
        .ok_or_else(|| no_worker_allowed(&submit.request.policy))
}

fn estimate_by(
    context: &Context,
    conductor: &ConductorProfile,
    request: &RunRequest,
) -> Result<Estimate, SubmitError> {
    let (pool, policy) = (context.pool(), bounded(context, conductor, request)?);
    let question = Question {
        conversation: &request.conversation,
        policy: &policy,
        answer_tokens_max: request.answer_tokens_max,
        tools_bytes: request.tools.as_ref().map_or(0, ToolUse::bytes),
        at: context.now(),
    };
    let first = first_request(context, &request.conversation, policy.clone());
    let rounds = usize::from(policy.rounds_max);
    let times = |cost: Cost, rounds: usize| std::iter::repeat_n(cost, rounds).sum::<Cost>();
    let mut steps = Vec::new();
    let at_once = conductor.plan_at_once(&first).map(|outcome| outcome.result);
    let (work, planning) = if let Some(PlanResult::Plan(planned)) = at_once {
        steps = question.steps_max(pool, &planned.plan).collect();
        (steps.iter().map(|(_, cost)| *cost).sum::<Cost>(), Cost::ZERO)
    } else {
        // The prompt of a follow-up round contains the round before it.
        let follow_up = follow_up_request(context, &request.conversation, policy.clone());
        let follow_ups = times(conductor.plan_cost_max(&follow_up), rounds.saturating_sub(1));
        (times(question.round_max(pool), rounds), conductor.plan_cost_max(&first) + follow_ups)
    };
    let cap = policy.cost_max.unwrap_or(Cost::from_nano_usd(u64::MAX));
    let cost_max = (work + planning).min(cap);
    let cost_min = if steps.is_empty() { least(context, conductor, &question) } else { work };
    Ok(Estimate { cost_max, planning_cost_max: planning.min(cap), cost_min, steps, typical: None })
}
