//! What runs could cost and what budgets hold, as JSON. Amounts are billionths of a US dollar.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use podium_engine::Estimate;
use podium_ports::accounts::BudgetSum;
use serde::Serialize;

use super::Door;
use super::reply::{Refusal, json};
use crate::access::Caller;
use crate::asking;

/// What a run could cost.
#[derive(Serialize)]
pub(super) struct EstimateBody {
    object: &'static str,
    cost_max_nano_usd: u64,
    planning_cost_max_nano_usd: u64,
    cost_min_nano_usd: u64,
    steps: Vec<StepBody>,
    typical: Option<TypicalBody>,
}

/// What runs of the same model did cost.
#[derive(Serialize)]
struct TypicalBody {
    cost_nano_usd: u64,
    runs: u32,
}

#[derive(Serialize)]
struct StepBody {
    worker: String,
    cost_max_nano_usd: u64,
}

impl EstimateBody {
    pub(super) fn of(estimate: &Estimate) -> Self {
        let steps = estimate.steps.iter().map(|(worker, cost)| StepBody {
            worker: worker.to_string(),
            cost_max_nano_usd: cost.nano_usd(),
        });
        Self {
            object: "estimate",
            cost_max_nano_usd: estimate.cost_max.nano_usd(),
            planning_cost_max_nano_usd: estimate.planning_cost_max.nano_usd(),
            cost_min_nano_usd: estimate.cost_min.nano_usd(),
            steps: steps.collect(),
            typical: estimate
                .typical
                .map(|typical| TypicalBody { cost_nano_usd: typical.cost.nano_usd(), runs: typical.runs }),
        }
    }
}

#[derive(Serialize)]
struct BudgetsBody {
    object: &'static str,
    data: Vec<BudgetBody>,
}

#[derive(Serialize)]
struct BudgetBody {
    object: &'static str,
    payer: String,
    period: &'static str,
    period_start_ms: u64,
    cap_nano_usd: Option<u64>,
    spent_nano_usd: u64,
    reserved_nano_usd: u64,
}

impl BudgetBody {
    fn of(sum: &BudgetSum) -> Self {
        Self {
            object: "budget",
            payer: sum.budget.payer.to_string(),
            period: sum.budget.period.as_str(),
            period_start_ms: sum.from.unix_ms(),
            cap_nano_usd: sum.budget.cap.map(podium_domain::money::Cost::nano_usd),
            spent_nano_usd: sum.charge.spent.nano_usd(),
            reserved_nano_usd: sum.charge.reserved.nano_usd(),
        }
    }
}

/// `GET /v1/budgets`: those that the caller's runs are charged to.
pub(super) async fn budgets(
    State(door): State<Door>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let sums = door.access.sums(&caller).await?;
    let body = BudgetsBody { object: "list", data: sums.iter().map(BudgetBody::of).collect() };
    Ok(json(serde_json::to_string(&body).map_err(|e| asking::defect(&e))?))
}
