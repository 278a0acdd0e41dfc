//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use podium_api::openai::{Model, ModelList};
use podium_api::{ApiError, ErrorCode, ModelName};

use super::reply::{Refusal, json};
use super::request_checks::shown;
use super::{ServerState, segment};
use crate::error_mapping;

pub(super) async fn list(State(state): State<ServerState>) -> Result<Response, Refusal> {
    let names = ModelName::served_by(state.engine.conductor_ids());
    let models = names.iter().map(|name| Model::new(name.to_string(), state.started)).collect();
    body(&ModelList::new(models))
}

pub(super) async fn one(
    State(state): State<ServerState>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = segment(path)?;
    let name = id.parse::<ModelName>().ok().filter(|name| name.is_served_by(state.engine.conductor_ids()));
    let name = name.ok_or_else(|| {
        let message = format!("unknown model `{}`; GET /v1/models lists the models", shown(&id));
        ApiError::on_field(ErrorCode::ModelNotFound, "model", message)
    })?;
    body(&Model::new(name.to_string(), state.started))
}

fn body(value: &impl serde::Serialize) -> Result<Response, Refusal> {
    Ok(json(serde_json::to_string(value).map_err(|e| error_mapping::defect(&e))?))
}
