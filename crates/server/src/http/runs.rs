//! `GET /v1/runs`, `GET /v1/runs/{id}` and `POST /v1/runs/{id}/cancel`.

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use podium_api::openai::{run_body, unix_seconds};
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::RunId;
use podium_ports::store::RunSummary;
use serde::Serialize;

use super::reply::{Refusal, json, name_run, unread_json};
use super::request_checks::shown;
use super::{ServerState, run_id, segment};
use crate::auth::Caller;
use crate::connections::Unread;
use crate::error_mapping;
use crate::use_cases;

const PAGE_SIZE_DEFAULT: u32 = 20;
const PAGE_SIZE_MAX: u32 = 200;

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

/// The requested page of the list.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    /// The last run of the previous page.
    after: Option<RunId>,
    limit: u32,
}

impl Page {
    fn of(query: &str) -> Result<Self, ApiError> {
        let mut page = Self { after: None, limit: PAGE_SIZE_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let invalid = |what: &str| {
                let message = format!("{name} must be {what} (got `{}`)", shown(value));
                ApiError::on_field(ErrorCode::InvalidValue, name, message)
            };
            match name {
                "after" => {
                    let id = value.parse().map_err(|_| invalid("the last_id of an earlier page"))?;
                    page.after = Some(id);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE_SIZE_MAX).contains(limit));
                    page.limit = limit.ok_or_else(|| invalid("a number from 1 to 200"))?;
                }
                _ => {
                    let message = format!("unknown parameter `{}`; use `after` and `limit`", shown(name));
                    return Err(ApiError::on_field(ErrorCode::UnknownParameter, name, message));
                }
            }
        }
        Ok(page)
    }
}

/// Lists the tenant's runs, the newest first.
pub(super) async fn list(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let page = Page::of(query.as_deref().unwrap_or_default())?;
    // One more than requested: it shows whether there is another page.
    let runs = state.engine.list(&caller.tenant, page.after, page.limit + 1).await;
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
    unread_json(id, run_body(&run), &unread)
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
    Ok(named(id, run_body(&run)))
}

fn named(id: RunId, body: String) -> Response {
    let mut response = json(body);
    name_run(&mut response, id);
    response
}
