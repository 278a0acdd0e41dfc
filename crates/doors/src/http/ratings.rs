//! `POST /v1/runs/{id}/rating`: what a client thinks of a run.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use podium_api::openai::RatingRequest;
use serde::Serialize;

use super::reply::{Refusal, json, name_run};
use super::{Door, parsed, run_id, segment};
use crate::access::Caller;
use crate::asking;

#[derive(Serialize)]
struct RatingBody<'a> {
    object: &'static str,
    run_id: String,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
}

pub(super) async fn rate(
    State(door): State<Door>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    let RatingRequest { score, comment } = parsed(body, RatingRequest::parse).await?;
    let rating = asking::rating(score, comment)?;
    asking::rate(&door.engine, &caller.tenant, id, &rating).await?;
    let body = RatingBody {
        object: "run.rating",
        run_id: id.to_string(),
        score: rating.score(),
        comment: rating.comment(),
    };
    let mut response = json(serde_json::to_string(&body).map_err(|e| asking::defect(&e))?);
    name_run(&mut response, id);
    Ok(response)
}
