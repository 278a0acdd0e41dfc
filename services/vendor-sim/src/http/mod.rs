//! The HTTP API on one listener: OpenAI Chat Completions and Responses, Anthropic Messages, Google Gemini, and the simulator's
//! control routes. Each format parses requests to an `Ask` and encodes a `Completion`; `serve` does not depend on the formats.

mod ask;
pub(crate) mod cache;
mod chat;
mod completion;
mod control;
mod error;
mod format;
mod gemini;
mod messages;
pub(crate) mod quota;
mod responses;
mod serve;
mod spoil;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{HeaderMap, Method, Uri},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};
use serde_json::{Value, json};

pub(crate) use self::spoil::ResetAtEnd;
use self::{error::ApiError, format::Format};
use podium_demo_workers::Model;

use crate::{recorded, sim::Shared};

/// The largest request body.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Builds all routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let vendor = Router::new()
        .route("/v1/chat/completions", post(serve::chat_completions))
        .route("/v1/responses", post(serve::create_response))
        .route("/v1/messages", post(serve::create_message))
        .route("/v1beta/models/{action}", post(serve::generate_content))
        .route("/v1/models", get(models))
        // Google's clients use different API versions.
        .route("/v1/models/{model}", get(model).post(serve::generate_content))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), require_key));
    let control = Router::new()
        .route("/control/behaviour/{model}", get(control::behaviour).put(control::set_behaviour))
        .route("/control/calls", get(control::calls))
        .route("/control/reset", post(control::reset))
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }));
    vendor
        .merge(control)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// Headers with a key: OpenAI's, Azure's, Anthropic's and Google's.
const KEY_HEADERS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];

async fn require_key(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let format = Format::at(request.uri().path());
    let shown = KEY_HEADERS.iter().find_map(|name| headers.get(*name)?.to_str().ok());
    let shown = shown.map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    match (shared.api_key(), shown) {
        (None, _) => next.run(request).await,
        (Some(key), Some(shown)) if key == shown => next.run(request).await,
        (Some(_), Some(_)) => ApiError::wrong_key().response(format),
        (Some(_), None) => ApiError::missing_key().response(format),
    }
}

async fn models(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let programs = Model::ALL.map(|model| described(model.id()));
    let recorded = shared.recorded().models();
    let recorded = recorded.into_iter().map(|name| described(&format!("{}{name}", recorded::PREFIX)));
    Json(json!({ "object": "list", "data": programs.into_iter().chain(recorded).collect::<Vec<_>>() }))
}

async fn model(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    shared.asked(&id).map(|_| Json(described(&id))).ok_or_else(|| ApiError::unknown_model(&id))
}

fn described(id: &str) -> Value {
    // The programs have no creation date; a fixed one keeps answers the same between runs.
    json!({ "id": id, "object": "model", "created": 1_735_689_600, "owned_by": "vendor-sim" })
}

async fn unknown_route(method: Method, uri: Uri) -> Response {
    ApiError::unknown_route(&method, uri.path()).response(Format::at(uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    ApiError::wrong_method(&method, uri.path()).response(Format::at(uri.path()))
}
