//! `GET /v1/runs/{id}` and `POST /v1/runs/{id}/cancel`.

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use podium_api::openai::run_body;
use podium_domain::ids::RunId;
use podium_domain::run::Run;

use super::reply::{Refusal, json, name_run};
use super::{Door, run_id, segment};
use crate::access::Caller;
use crate::asking;

/// A run as it stands.
pub(super) async fn one(
    State(door): State<Door>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    Ok(body(id, &asking::load(&door.engine, &caller.tenant, id).await?))
}

/// Cancels a run. Cancelling a cancelled run is no error.
pub(super) async fn cancel(
    State(door): State<Door>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = run_id(&segment(path)?)?;
    asking::load(&door.engine, &caller.tenant, id).await?;
    let run = door.engine.cancel(id).await.map_err(|e| asking::command_error(id, &e))?;
    Ok(body(id, &run))
}

fn body(id: RunId, run: &Run) -> Response {
    let mut response = json(run_body(run));
    name_run(&mut response, id);
    response
}
