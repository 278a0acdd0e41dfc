//! `GET /v1/budgets`. Amounts are billionths of a US dollar.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use podium_ports::accounts::BudgetSum;
use serde::Serialize;

use super::ServerState;
use super::reply::{Refusal, json};
use crate::auth::Caller;
use crate::error_mapping;

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

/// Lists the budgets that the caller's runs are charged to.
pub(super) async fn list(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let sums = state.auth.sums(&caller).await?;
    let body = BudgetsBody { object: "list", data: sums.iter().map(BudgetBody::of).collect() };
    Ok(json(serde_json::to_string(&body).map_err(|e| error_mapping::defect(&e))?))
}
