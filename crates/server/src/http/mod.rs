//! The HTTP API: OpenAI's Chat Completions and Responses, Anthropic's Messages, runs, models, estimates, budgets, ratings, health.
//!
//! If a client disconnects from a request without an `Idempotency-Key`, the run is cancelled, since nobody else could read the
//! answer. With a key the run goes on, and a repeated request with the same key finds it.

mod answer;
mod budgets;
mod chat;
mod conversations;
mod disconnect;
mod estimates;
mod events;
mod forward;
mod layers;
mod messages;
mod models;
mod ratings;
mod reply;
mod request_checks;
mod responses;
mod run_page;
mod runs;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use podium_api::openai::TurnKey;
use podium_api::{ApiError, ErrorCode, NewRun};
use podium_domain::ids::{InvalidId, RequestId, RunId};
use podium_domain::trace::TRACE_PARENT;
use podium_engine::Engine;
use podium_ports::causes::with_causes;
use podium_ports::objects::Objects;
use podium_ports::server::ServerLimits;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::Authenticator;
use crate::cells::CellRouter;
use crate::connections::BodyTimeout;
use crate::conversations::Conversations;
use crate::request_metrics::{self, RequestMetrics};
use crate::slots::Slots;
use crate::tenant_streams::TenantStreams;
use crate::{Backend, Closing, error_mapping};
use forward::Forwarding;
pub(crate) use layers::random_id;
use reply::Refusal;
use request_checks::shown;

/// Most bytes of a request: the longest conversation that is accepted, with its JSON escapes.
const BODY_BYTES_MAX: usize = 2 << 20;
/// A body that is longer is parsed on a thread of its own: parsing takes milliseconds.
const PARSE_AT_ONCE_MAX: usize = 256 << 10;
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The state that all handlers share.
#[derive(Clone)]
struct ServerState {
    engine: Engine,
    auth: Authenticator,
    objects: Arc<dyn Objects>,
    /// Seals reasoning items.
    turn_key: Arc<OnceCell<Arc<TurnKey>>>,
    streams: TenantStreams,
    requests: Slots,
    sockets: Slots,
    /// None if this cluster is the only cell.
    cells: Option<CellRouter>,
    hosts_allowed: Arc<[String]>,
    /// Origins of web pages that may use the API.
    cors_origins: Arc<[String]>,
    /// When the server started, in seconds since the Unix epoch.
    started: u64,
    /// The server is not ready any more.
    leaving: CancellationToken,
    /// The server takes no new work.
    stopping: CancellationToken,
    /// Streams under way end now.
    cut: CancellationToken,
    /// Work that outlives a client's connection.
    left: TaskTracker,
}

impl ServerState {
    fn conversations(&self) -> Conversations {
        Conversations::new(self.engine.clone(), Arc::clone(&self.objects), self.auth.clone())
    }
}

/// The HTTP API, and the routes of the listener for probes. `started` is in seconds since the Unix epoch.
pub(crate) fn routers(
    Backend { engine, auth, objects, streams, requests, sockets, cells, metrics }: Backend,
    limits: &ServerLimits,
    started: u64,
    closing: Closing,
) -> (Router, Router) {
    let Closing { leaving, stopping, cut, left } = closing;
    let hosts_allowed = limits.hosts_allowed.as_slice().into();
    let cors_origins = limits.cors_origins.as_slice().into();
    let state = ServerState {
        engine,
        auth,
        objects,
        turn_key: Arc::default(),
        streams,
        requests,
        sockets,
        cells: cells.clone(),
        hosts_allowed,
        cors_origins,
        started,
        leaving,
        stopping,
        cut,
        left,
    };
    let probes =
        Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready)).with_state(state.clone());
    (api(state, cells, limits, metrics), probes)
}

fn api(
    state: ServerState,
    cells: Option<CellRouter>,
    limits: &ServerLimits,
    metrics: RequestMetrics,
) -> Router {
    let api = Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::create).get(responses::connect))
        .route("/v1/responses/compact", post(responses::compact))
        .route("/v1/responses/input_tokens", post(responses::count))
        .route("/v1/responses/{id}", get(responses::one).delete(responses::remove))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/conversations", post(conversations::create))
        .route(
            "/v1/conversations/{id}",
            get(conversations::one).post(conversations::change).delete(conversations::remove),
        )
        .route("/v1/conversations/{id}/items", get(conversations::items).post(conversations::add_items))
        .route(
            "/v1/conversations/{id}/items/{item}",
            get(conversations::item).delete(conversations::remove_item),
        )
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/estimates", post(estimates::estimate))
        .route("/v1/budgets", get(budgets::list))
        .route("/v1/runs", get(runs::list))
        .route("/v1/runs/{id}", get(runs::one))
        .route("/v1/runs/{id}/cancel", post(runs::cancel))
        .route("/v1/runs/{id}/events", get(events::watch))
        .route("/v1/runs/{id}/rating", post(ratings::rate))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one));
    // The caller must be known before its cell can be found.
    let api = match cells {
        None => api,
        Some(cells) => {
            let forwarding = Forwarding { state: state.clone(), cells };
            api.route_layer(middleware::from_fn_with_state(forwarding, forward::forward))
        }
    };
    let api = api.route_layer(middleware::from_fn_with_state(state.clone(), request_checks::check));
    let all = api
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/api/hello", get(messages::hello))
        .route("/openapi.json", get(openapi))
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(CatchPanicLayer::custom(|_| panicked()))
        .layer(middleware::from_fn(layers::write_anthropic_errors))
        .layer(middleware::from_fn(layers::compress))
        .layer(middleware::from_fn(layers::add_request_id))
        .with_state(state);
    // Without an origin, `OPTIONS` has no meaning and no header is added.
    let all =
        if limits.cors_origins.is_empty() { all } else { all.layer(layers::cors(&limits.cors_origins)) };
    let all = all.layer(middleware::from_fn_with_state(limits.header_bytes_max, request_checks::bound_head));
    let all = all.layer(middleware::from_fn_with_state(metrics, request_metrics::measure_http));
    Router::new().fallback_service(all.map_request(request_checks::without_slash))
}

/// Reads the whole body of a request.
pub(crate) async fn whole(mut body: Body) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broke_off(&error))?.into_data() else { continue };
        if whole.len() + data.len() > BODY_BYTES_MAX {
            request_checks::discard(body).await;
            return Err(request_checks::too_large());
        }
        if whole.is_empty() && http_body::Body::is_end_stream(&body) {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

fn broke_off(error: &axum::Error) -> ApiError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(timeout) = error.downcast_ref::<BodyTimeout>() {
            return ApiError::new(ErrorCode::RequestTimeout, timeout.to_string());
        }
        cause = error.source();
    }
    ApiError::new(
        ErrorCode::InvalidJson,
        "the connection broke before the request's body was complete; send it again",
    )
}

/// Reads and parses the whole body of a request.
async fn parsed<T: Send + 'static>(
    body: Body,
    parse: fn(&[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let bytes = whole(body).await?;
    if bytes.len() <= PARSE_AT_ONCE_MAX {
        return parse(&bytes);
    }
    tokio::task::spawn_blocking(move || parse(&bytes)).await.map_err(|e| error_mapping::defect(&e))?
}

/// The client's own name for its request, by which a repetition finds the same run.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<RequestId>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let wrong = |problem: String| {
        ApiError::on_field(ErrorCode::InvalidValue, IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {problem}"))
    };
    let text = value.to_str().map_err(|_| wrong("must be ASCII".to_owned()))?;
    RequestId::new(text).map(Some).map_err(|e| wrong(e.to_string()))
}

/// Takes the client's name for the request and its span from the headers.
fn take_context(headers: &HeaderMap, new_run: &mut NewRun) -> Result<(), ApiError> {
    new_run.request_id = idempotency_key(headers)?;
    // An invalid header counts as none, as W3C Trace Context requires.
    let parent = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok());
    new_run.request.trace = parent.and_then(|parent| parent.parse().ok());
    Ok(())
}

/// The named segment of a path.
fn segment(path: Result<Path<String>, PathRejection>) -> Result<String, ApiError> {
    let invalid = |_| ApiError::new(ErrorCode::RouteNotFound, "the path is not valid UTF-8");
    path.map(|Path(segment)| segment).map_err(invalid)
}

/// The id of a run in a path.
fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse()
        .map_err(|e: InvalidId| ApiError::on_field(ErrorCode::InvalidValue, "run_id", format!("run_id: {e}")))
}

/// The description of this API.
async fn openapi() -> Response {
    reply::json(podium_api::openapi::document(env!("CARGO_PKG_VERSION")).to_string())
}

/// The process is alive.
async fn healthy() -> &'static str {
    "ok\n"
}

/// The process can take requests. The query `verbose` adds a line for each part that it depends on.
async fn ready(State(state): State<ServerState>, RawQuery(query): RawQuery) -> Response {
    if state.leaving.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let readiness = state.engine.readiness().await;
    let is_verbose = query.is_some_and(|query| query.starts_with("verbose"));
    match readiness.outcome() {
        outcome if is_verbose => {
            let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, readiness.to_string()).into_response()
        }
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            tracing::warn!(error = with_causes(&error), "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}

async fn unknown_route(request: Request) -> Refusal {
    let (method, path) = (shown(request.method().as_str()), shown(request.uri().path()));
    let message = format!("unknown route {method} {path}");
    ApiError::new(ErrorCode::RouteNotFound, message).into()
}

async fn unknown_method(request: Request) -> Refusal {
    let (method, path) = (shown(request.method().as_str()), shown(request.uri().path()));
    let message = format!("{path} does not support the method {method}");
    ApiError::new(ErrorCode::MethodNotAllowed, message).into()
}

fn panicked() -> Response {
    tracing::error!("a handler panicked");
    Refusal::from(ApiError::new(ErrorCode::Internal, "the server has a defect; its log says more"))
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use podium_api::openapi::ROUTES;

    #[test]
    fn the_document_has_the_routes_of_the_router() {
        let source = include_str!("mod.rs").split("#[cfg(test)]").next().unwrap();
        let routes = source.split(".route(").skip(1).map(|rest| rest.split('"').nth(1).unwrap());
        let documented: BTreeSet<_> = ROUTES.iter().map(|route| route.path).collect();
        assert_eq!(routes.collect::<BTreeSet<_>>(), documented);
    }
}
