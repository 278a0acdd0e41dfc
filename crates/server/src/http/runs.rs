//! `GET /v1/runs`, `GET /v1/runs/{id}` and `POST /v1/runs/{id}/cancel`.

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use podium_api::openai::{run_body, unix_seconds};
use podium_api::{ApiError, ErrorCode};
use podium_ports::store::RunSummary;
use serde::Serialize;

use super::reply::{Refusal, json, run_json, unread_json};
use super::run_page::RunPage;
use super::{ServerState, run_id, segment};
use crate::auth::Caller;
use crate::connections::Unread;
use crate::error_mapping;
use crate::use_cases;

#[derive(Serialize)]
struct ListBody<'a> {
    object: &'static str,
    data: Vec<SummaryBody<'a>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

#[derive(Serialize)]
struct SummaryBody<'a> {
    id: String,
    object: &'static str,
    state: &'a str,
    model: &'a str,
    /// The beginning of the question.
    question: &'a str,
    created: u64,
    ended: Option<u64>,
    step_count: u32,
    cost_nano_usd: u64,
    wasted_cost_nano_usd: u64,
    fallbacks: u32,
    /// This field and the next two are null while the run is active, and for runs of earlier versions.
    failed_step_count: Option<u32>,
    degraded: Option<bool>,
    refused: Option<bool>,
}

impl<'a> SummaryBody<'a> {
    fn of(run: &'a RunSummary) -> Self {
        Self {
            id: run.id.to_string(),
            object: "run.summary",
            state: &run.state,
            model: &run.model,
            question: &run.question,
            created: unix_seconds(run.accepted_at),
            ended: run.ended_at.map(unix_seconds),
            step_count: run.sums.steps,
            cost_nano_usd: run.sums.cost.nano_usd(),
            wasted_cost_nano_usd: run.sums.wasted.nano_usd(),
            fallbacks: run.sums.fallbacks,
            failed_step_count: run.sums.lack.map(|lack| lack.failed_steps),
            degraded: run.sums.lack.map(|lack| lack.degraded),
            refused: run.sums.lack.map(|lack| lack.refused),
        }
    }
}

/// Lists the tenant's runs, the newest first.
pub(super) async fn list(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, Refusal> {
    let invalid = |e: QueryRejection| ApiError::new(ErrorCode::InvalidValue, e.body_text());
    let page = RunPage::of(&query.map_err(invalid)?.0)?;
    // One more than requested: it shows whether there is another page.
    let runs = state.engine.list(&caller.tenant, &page.filter, page.after, page.limit + 1).await;
    let mut runs = runs.map_err(|e| error_mapping::store_error(&e))?;
    let has_more = runs.len() > page.limit as usize;
    runs.truncate(page.limit as usize);
    let id = |run: Option<&RunSummary>| run.map(|run| run.id.to_string());
    let body = ListBody {
        object: "list",
        first_id: id(runs.first()),
        last_id: id(runs.last()),
        data: runs.iter().map(SummaryBody::of).collect(),
        has_more,
    };
    Ok(json(serde_json::to_string(&body).map_err(|e| error_mapping::defect(&e))?))
}

/// Reads a run.
pub(super) async fn one(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    Extension(unread): Extension<Unread>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    let run = use_cases::load(&state.engine, &caller.tenant, id).await?;
    unread_json(&run, run_body(&run), &unread)
}

/// Cancels a run. A cancelled run may be cancelled again.
pub(super) async fn cancel(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    use_cases::load(&state.engine, &caller.tenant, id).await?;
    let run = state.engine.cancel(id).await.map_err(|e| error_mapping::command_error(id, &e))?;
    Ok(run_json(&run, run_body(&run)))
}
