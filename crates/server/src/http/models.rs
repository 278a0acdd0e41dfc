//! `GET /v1/models` and `GET /v1/models/{id}`, in Anthropic's format for its clients and in OpenAI's for others.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use podium_api::openai::{Model, ModelList};
use podium_api::{ApiError, ErrorCode, ModelName, anthropic};
use prost_types::Timestamp;

use super::layers::ANTHROPIC_VERSION;
use super::reply::{Refusal, json};
use super::request_checks::shown;
use super::{ServerState, segment};
use crate::error_mapping;
use crate::use_cases::served;

pub(super) async fn list(State(state): State<ServerState>, headers: HeaderMap) -> Result<Response, Refusal> {
    let names = served(&state.engine).names();
    if headers.contains_key(ANTHROPIC_VERSION) {
        let models = names.iter().map(|name| anthropic_model(name, &state)).collect();
        return body(&anthropic::ModelPage::of_all(models));
    }
    let models = names.iter().map(|name| Model::new(name.to_string(), state.started)).collect();
    body(&ModelList::new(models))
}

pub(super) async fn one(
    State(state): State<ServerState>,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = segment(path)?;
    let served = served(&state.engine);
    let is_served = |name: &ModelName| served.conductor_of(name).is_ok();
    let name = id.parse::<ModelName>().ok().filter(is_served);
    let name = name.ok_or_else(|| {
        let message = format!("unknown model `{}`; GET /v1/models lists the models", shown(&id));
        ApiError::on_field(ErrorCode::ModelNotFound, "model", message)
    })?;
    if headers.contains_key(ANTHROPIC_VERSION) {
        return body(&anthropic_model(&name, &state));
    }
    body(&Model::new(name.to_string(), state.started))
}

fn anthropic_model(name: &ModelName, state: &ServerState) -> anthropic::Model {
    let started = Timestamp { seconds: i64::try_from(state.started).unwrap_or_default(), nanos: 0 };
    anthropic::Model::new(name.to_string(), started.to_string())
}

fn body(value: &impl serde::Serialize) -> Result<Response, Refusal> {
    Ok(json(serde_json::to_string(value).map_err(|e| error_mapping::defect(&e))?))
}
