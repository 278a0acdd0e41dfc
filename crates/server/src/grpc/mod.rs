//! The gRPC API: `podium.v1`, health, reflection.

mod conversations;
mod deadline;
mod filter;
mod forward;
mod models;
mod ratings;
mod service;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::Response;
use podium_api::v1::podium_service_server::{PodiumServiceServer, SERVICE_NAME};
use podium_api::{ApiError, ErrorCode};
use podium_engine::Engine;
use podium_ports::objects::Objects;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::auth::Authenticator;
use crate::connections::{Connections, Protocol};
use crate::request_metrics;
use crate::slots::{Slots, held};
use crate::tenant_streams::TenantStreams;
use crate::{Backend, Closing};

use forward::Forwarding;

pub use service::Runs;

/// Most bytes of a request: the longest conversation that is accepted, and its other fields.
const REQUEST_BYTES_MAX: usize = 2 << 20;
/// Most bytes of a response. A run with its outputs may be large.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// How often the health service follows readiness.
const HEALTH_EVERY: Duration = Duration::from_secs(1);

/// The service over an engine; its watches end when `stop` is cancelled.
fn service(
    engine: Engine,
    auth: Authenticator,
    objects: Arc<dyn Objects>,
    streams: TenantStreams,
    stop: CancellationToken,
) -> PodiumServiceServer<Runs> {
    PodiumServiceServer::new(Runs::new(engine, auth, objects, stop).within(streams))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX)
        .accept_compressed(Gzip)
        .send_compressed(Gzip)
}

/// Authenticates the caller before the message is read, and adds details to errors of the transport.
async fn identify(
    State((auth, requests)): State<(Authenticator, Slots)>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_ours = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)).is_some();
    if !is_ours {
        return next.run(request).await;
    }
    let slot = match requests.begin() {
        Ok(slot) => slot,
        Err(error) => return Status::from(error).into_http(),
    };
    // A value that is not text cannot be a key.
    let shown = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    match auth.caller(shown).await {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(error) => return Status::from(error).into_http(),
    };
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    match detailed(&response, &path) {
        Some(status) => status.into_http(),
        None => held(response, slot),
    }
}

/// The status of a call that failed before it reached the service, with details.
fn detailed(response: &Response, path: &str) -> Option<Status> {
    let status = Status::from_header_map(response.headers()).filter(|status| status.details().is_empty())?;
    let code = match status.code() {
        Code::OutOfRange => ErrorCode::BodyTooLarge,
        Code::Internal | Code::InvalidArgument => ErrorCode::InvalidValue,
        Code::Unimplemented if status.message().is_empty() => {
            let message = format!("unknown method {path}");
            return Some(ApiError::new(ErrorCode::RouteNotFound, message).into());
        }
        Code::Unimplemented => ErrorCode::RouteNotFound,
        _ => return None,
    };
    Some(ApiError::new(code, status.message()).into())
}

/// The server does not start.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The descriptors that the build made cannot be decoded.
    #[error("cannot start gRPC reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves gRPC until the server stops and the calls under way are done.
pub(crate) async fn serve(
    listener: TcpListener,
    connections: Arc<Connections>,
    Backend { engine, auth, streams, requests, cells, objects, metrics, sockets: _ }: Backend,
    Closing { leaving, stopping: stop, .. }: Closing,
) -> Result<(), GrpcError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // A draining process counts as alive: a restart would only drop its requests.
    health.set_service_status("liveness", ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(podium_api::FILE_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let follow = follow_readiness(engine.clone(), health.clone());
    let services = Routes::new(service(engine, auth.clone(), objects, streams, stop.clone()))
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .prepare();
    let router = match cells {
        None => services.into_axum_router(),
        Some(cells) => {
            let forwarding = Forwarding { cells, stop: stop.clone() };
            services.into_axum_router().layer(middleware::from_fn_with_state(forwarding, forward::forward))
        }
    };
    let router = router
        .layer(middleware::from_fn_with_state((auth, requests), identify))
        .layer(deadline::DeadlineLayer)
        .layer(middleware::from_fn_with_state(metrics, request_metrics::measure_rpc));
    let not_serving = async {
        leaving.cancelled().await;
        health.set_not_serving::<PodiumServiceServer<Runs>>().await;
        health.set_service_status("", ServingStatus::NotServing).await;
    };
    let serving = connections.serve(listener, router, Protocol::Grpc, stop.clone());
    tokio::select! {
        _ = futures::future::join(serving, not_serving) => Ok(()),
        never = follow_until(follow, leaving.clone()) => match never {},
    }
}

/// Follows until `stop`. From then on the health service's status stays as it is.
async fn follow_until(follow: impl Future<Output = Infallible>, stop: CancellationToken) -> Infallible {
    tokio::select! {
        biased;
        () = stop.cancelled() => std::future::pending().await,
        never = follow => never,
    }
}

/// Keeps the health service in step with `/readyz`.
async fn follow_readiness(engine: Engine, health: HealthReporter) -> Infallible {
    let mut looks = tokio::time::interval(HEALTH_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let is_ready = engine.ready().await.is_ok();
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in [PodiumServiceServer::<Runs>::NAME, ""] {
            health.set_service_status(service, status).await;
        }
    }
}
