//! The simulator's own routes: behaviours, the log of calls, reset.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
};
use serde_json::{Value, json};

use super::error::ApiError;
use crate::{
    behaviour::{Behaviour, BehaviourError},
    sim::{Shared, named},
};

pub(super) async fn behaviour(
    State(shared): State<Arc<Shared>>,
    Path(model): Path<String>,
) -> Result<Json<Behaviour>, ApiError> {
    let found = named(&model).and_then(|model| shared.behaviour(model));
    found.map(Json).map_err(|error| refused(&model, &error))
}

pub(super) async fn set_behaviour(
    State(shared): State<Arc<Shared>>,
    Path(model): Path<String>,
    body: Bytes,
) -> Result<Json<Behaviour>, ApiError> {
    let behaviour: Behaviour = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid_body(format!("not a behaviour: {error}")))?;
    let set = named(&model).and_then(|model| shared.set_behaviour(model, behaviour.clone()));
    set.map(|()| Json(behaviour)).map_err(|error| refused(&model, &error))
}

fn refused(model: &str, error: &BehaviourError) -> ApiError {
    match error {
        BehaviourError::UnknownModel(_) => ApiError::unknown_model(model),
        error => ApiError::invalid_body(error.to_string()),
    }
}

pub(super) async fn calls(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({ "received": shared.calls.received(), "calls": shared.calls.snapshot() }))
}

pub(super) async fn reset(State(shared): State<Arc<Shared>>) -> Json<Value> {
    shared.reset();
    Json(json!({ "status": "reset" }))
}
