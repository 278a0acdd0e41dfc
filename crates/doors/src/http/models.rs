//! The list of models.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use podium_api::openai::{Model, ModelList};
use podium_api::{ApiError, ErrorCode, ModelName};

use super::Door;
use super::reply::{Refusal, json};
use crate::asking;

pub(super) async fn list(State(door): State<Door>, headers: HeaderMap) -> Result<Response, Refusal> {
    door.caller(&headers).await?;
    let names = ModelName::served_by(door.engine.conductor_ids());
    let models = names.iter().map(|name| Model::new(name.to_string(), door.started)).collect();
    body(&ModelList::new(models))
}

pub(super) async fn one(
    State(door): State<Door>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    door.caller(&headers).await?;
    let name = id.parse::<ModelName>().ok().filter(|name| name.is_served_by(door.engine.conductor_ids()));
    let name = name.ok_or_else(|| {
        let shown: String = id.chars().take(100).collect();
        ApiError::on_field(ErrorCode::ModelNotFound, "model", format!("there is no model `{shown}`"))
    })?;
    body(&Model::new(name.to_string(), door.started))
}

fn body(value: &impl serde::Serialize) -> Result<Response, Refusal> {
    Ok(json(serde_json::to_string(value).map_err(|e| asking::defect(&e))?))
}
