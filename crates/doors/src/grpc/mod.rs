//! The gRPC door: `podium.v1`, health, reflection.

mod deadline;
mod ratings;
mod service;
mod watch;

use std::convert::Infallible;
use std::time::Duration;

use podium_api::v1::podium_service_server::PodiumServiceServer;
use podium_engine::Engine;
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::access::Access;

pub use service::Runs;

/// Most bytes of one message, in or out. A request is bounded far below that; a run with its outputs may be large.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// How often the health service follows readiness.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);
const STREAMS_MAX: u32 = 1024;
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// The service over an engine; its watches end when `stop` is cancelled.
fn service(engine: Engine, access: Access, stop: CancellationToken) -> PodiumServiceServer<Runs> {
    PodiumServiceServer::new(Runs::new(engine, access, stop))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Why the door does not open or broke down.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The descriptors that the build made do not read.
    #[error("reflection does not start")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server ended by itself.
    #[error("the gRPC door broke down")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves gRPC until `stop` is cancelled and the calls under way are done.
pub(crate) async fn serve(
    listener: TcpListener,
    (engine, access): (Engine, Access),
    stop: CancellationToken,
) -> Result<(), GrpcError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // Alive as long as anything turns, also while it drains: a restart would help nobody then.
    health.set_service_status("liveness", ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(podium_api::FILE_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let follow = follow_readiness(engine.clone(), health.clone());
    let (stopped, stopping) = (stop.clone(), stop.clone());
    let shutdown = async move {
        stopped.cancelled().await;
        health.set_not_serving::<PodiumServiceServer<Runs>>().await;
        health.set_service_status("", ServingStatus::NotServing).await;
    };
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .layer(deadline::DeadlineLayer)
        .add_service(service(engine, access, stop))
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), shutdown);
    tokio::select! {
        served = serving => Ok(served?),
        never = follow_until(follow, stopping) => match never {},
    }
}

/// Follows until the server stops; what it says then is not changed any more.
async fn follow_until(follow: impl Future<Output = Infallible>, stop: CancellationToken) -> Infallible {
    tokio::select! {
        biased;
        () = stop.cancelled() => std::future::pending().await,
        never = follow => never,
    }
}

/// Keeps the health service at what `/readyz` says.
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
