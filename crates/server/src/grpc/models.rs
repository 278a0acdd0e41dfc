//! The models that this server serves.

use podium_api::{ApiError, ErrorCode, ModelName, v1};
use podium_engine::Engine;

use crate::use_cases::served;

/// Most characters of a client's text that an error repeats.
const SHOWN_CHARS_MAX: usize = 100;

pub(super) fn list(engine: &Engine) -> v1::ListModelsResponse {
    let models = served(engine).names();
    v1::ListModelsResponse { models: models.iter().map(message).collect() }
}

pub(super) fn one(engine: &Engine, name: &str) -> Result<v1::GetModelResponse, ApiError> {
    let served = served(engine);
    let is_served = |model: &ModelName| served.conductor_of(model).is_ok();
    let model = name.parse::<ModelName>().ok().filter(is_served);
    let model = model.ok_or_else(|| {
        let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
        let message = format!("unknown model `{shown}`; ListModels lists the models");
        ApiError::on_field(ErrorCode::ModelNotFound, "name", message)
    })?;
    Ok(v1::GetModelResponse { model: Some(message(&model)) })
}

fn message(model: &ModelName) -> v1::Model {
    v1::Model {
        name: model.to_string(),
        tier: v1::Tier::from(model.tier()).into(),
        pin: model.pin.clone().unwrap_or_default(),
    }
}
