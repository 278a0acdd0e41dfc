//! `POST /v1/runs/{id}/rating`: what a client thinks of a run.

use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use podium_api::openai::RatingRequest;
use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::{InvalidId, RunId};
use serde::Serialize;

use super::Door;
use super::chat::whole;
use super::reply::{Refusal, json, name_run};
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
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let tenant = door.caller(&headers).await?.tenant;
    let id: RunId = id.parse().map_err(|e: InvalidId| {
        ApiError::on_field(ErrorCode::InvalidValue, "run_id", format!("run_id: {e}"))
    })?;
    let RatingRequest { score, comment } = RatingRequest::parse(&whole(body)?)?;
    let rating = asking::rating(score, comment)?;
    asking::rate(&door.engine, &tenant, id, &rating).await?;
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
