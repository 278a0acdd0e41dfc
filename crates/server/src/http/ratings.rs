//! `POST /v1/runs/{id}/rating`: rates a run.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use podium_api::openai::RatingRequest;
use serde::Serialize;

use super::reply::{Refusal, json, name_run};
use super::{ServerState, parsed, run_id, segment};
use crate::auth::Caller;
use crate::error_mapping;
use crate::use_cases;

#[derive(Serialize)]
struct RatingBody<'a> {
    object: &'static str,
    run_id: String,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
}

pub(super) async fn rate(
    State(state): State<ServerState>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    let RatingRequest { score, comment } = parsed(body, RatingRequest::parse).await?;
    let rating = use_cases::rating(score, comment)?;
    use_cases::rate(&state.engine, &caller.tenant, id, &rating).await?;
    let body = RatingBody {
        object: "run.rating",
        run_id: id.to_string(),
        score: rating.score(),
        comment: rating.comment(),
    };
    let mut response = json(serde_json::to_string(&body).map_err(|e| error_mapping::defect(&e))?);
    name_run(&mut response, id);
    Ok(response)
}
