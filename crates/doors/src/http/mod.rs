//! The HTTP door: OpenAI's Chat Completions, the models, what runs could cost, budgets, ratings, health.
//!
//! A client that goes away cancels nothing: its run goes on, and a repeated request with the same `Idempotency-Key` finds
//! it. Taking a run back is an act of its own, at the gRPC door.

mod chat;
mod models;
mod money;
mod ratings;
mod reply;

use axum::Router;
use axum::extract::{DefaultBodyLimit, RawQuery, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use podium_api::{ApiError, ErrorCode};
use podium_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::access::{Access, Caller};
use crate::{Closing, asking};
use reply::Refusal;

/// Most bytes of a request: a conversation of the longest kind, with room for escapes.
const BODY_BYTES_MAX: usize = 2 << 20;
const REQUEST_ID: &str = "x-request-id";

/// What every handler may use.
#[derive(Clone)]
struct Door {
    engine: Engine,
    access: Access,
    /// When the server started, in seconds since the Unix epoch.
    started: u64,
    /// No new work, please.
    stopping: CancellationToken,
    /// Streams under way end now.
    cut: CancellationToken,
}

impl Door {
    /// Who asks.
    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        // What is no text is no key either.
        let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        self.access.caller(authorization).await
    }
}

/// Serves HTTP until `closing.stopping` and the requests under way are done. `started` is in seconds since the Unix epoch.
pub(crate) async fn serve(
    listener: TcpListener,
    (engine, access): (Engine, Access),
    started: u64,
    closing: Closing,
) -> std::io::Result<()> {
    let listener = listener.tap_io(|connection| {
        // A stream of small chunks must not wait to fill packets; a connection that refuses works all the same.
        let _ = connection.set_nodelay(true);
    });
    let stopping = closing.stopping.clone();
    let router = router((engine, access), started, closing);
    axum::serve(listener, router).with_graceful_shutdown(async move { stopping.cancelled().await }).await
}

fn router((engine, access): (Engine, Access), started: u64, closing: Closing) -> Router {
    let door = Door { engine, access, started, stopping: closing.stopping, cut: closing.cut };
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/estimates", post(chat::estimate))
        .route("/v1/budgets", get(money::budgets))
        .route("/v1/runs/{id}/rating", post(ratings::rate))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(CatchPanicLayer::custom(|_| panicked()))
        .layer(middleware::from_fn(name_request))
        .with_state(door)
}

/// The process turns.
async fn healthy() -> &'static str {
    "ok\n"
}

/// The process can take requests. With the query `verbose`, a line for each part that it stands on.
async fn ready(State(door): State<Door>, RawQuery(query): RawQuery) -> Response {
    if door.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let readiness = door.engine.readiness().await;
    let is_verbose = query.is_some_and(|query| query.starts_with("verbose"));
    match readiness.outcome() {
        outcome if is_verbose => {
            let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, readiness.to_string()).into_response()
        }
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            tracing::warn!(error = asking::chain(&error), "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}

async fn unknown_route(request: Request) -> Refusal {
    let message = format!("there is no route {} {}", request.method(), request.uri().path());
    ApiError::new(ErrorCode::RouteNotFound, message).into()
}

async fn unknown_method(request: Request) -> Refusal {
    let message = format!("{} has no method {}", request.uri().path(), request.method());
    ApiError::new(ErrorCode::MethodNotAllowed, message).into()
}

fn panicked() -> Response {
    tracing::error!("a handler panicked");
    Refusal::from(ApiError::new(ErrorCode::Internal, "the server has a defect; its log says more"))
        .into_response()
}

/// Gives every response the name of its request: the client's own, if it sent a usable one, else a new one.
async fn name_request(request: Request, next: Next) -> Response {
    let own = request.headers().get(REQUEST_ID).filter(|id| is_usable(id)).cloned();
    let id = own.or_else(|| HeaderValue::from_str(&http_request_id()).ok());
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// A name for one request, for logs and for the client.
#[expect(clippy::disallowed_methods, reason = "a name for a log line; nothing depends on it")]
fn http_request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn is_usable(id: &HeaderValue) -> bool {
    (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}
