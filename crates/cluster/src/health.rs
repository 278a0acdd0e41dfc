//! The health door of a process that has no other: `/healthz` (it turns) and `/readyz` (what it stands on answers).

use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::backbone::Readiness;

#[derive(Clone)]
struct Health {
    readiness: Readiness,
    stopping: CancellationToken,
}

/// Serves until `ended`; not ready from `stopping` on.
pub(crate) async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    stopping: CancellationToken,
    ended: CancellationToken,
) -> io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Health { readiness, stopping });
    axum::serve(listener, router).with_graceful_shutdown(async move { ended.cancelled().await }).await
}

async fn ready(State(health): State<Health>) -> Response {
    if health.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    match health.readiness.check().await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}
