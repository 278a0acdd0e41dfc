//! `POST /v1/estimates`. Amounts are billionths of a US dollar.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use podium_api::openai::ChatRequest;
use podium_engine::Estimate;
use serde::Serialize;

use super::reply::{Refusal, json};
use super::{ServerState, parsed};
use crate::auth::Caller;
use crate::error_mapping;
use crate::use_cases;

/// The possible cost of a run.
#[derive(Serialize)]
struct EstimateBody {
    object: &'static str,
    cost_max_nano_usd: u64,
    planning_cost_max_nano_usd: u64,
    cost_min_nano_usd: u64,
    steps: Vec<StepBody>,
    typical: Option<TypicalBody>,
}

/// The cost of earlier runs of the same model.
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
    fn of(estimate: &Estimate) -> Self {
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

/// Estimates the cost of a request for a completion.
pub(super) async fn estimate(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refusal> {
    let request = parsed(body, ChatRequest::parse).await?;
    let estimate = use_cases::estimate(&state.engine, caller, request.new_run).await?;
    let body = serde_json::to_string(&EstimateBody::of(&estimate)).map_err(|e| error_mapping::defect(&e))?;
    Ok(json(body))
}
