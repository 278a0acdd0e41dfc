//! The listener of a process without API: `/healthz` (it is alive), `/readyz` (it can work) and `/metrics`.

use std::io;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use podium_telemetry::Page;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::connections::Readiness;

/// The phase of a process's start-up.
#[derive(Clone)]
pub(crate) enum Phase {
    /// Not ready yet.
    Starting,
    /// It will never be ready, for this reason; it stays alive.
    Refused(String),
    /// Ready as long as its connections are.
    Working(Readiness),
}

/// The end of a process.
#[derive(Clone)]
pub(crate) struct Lifetime {
    /// It has begun to stop, and is not ready.
    pub(crate) stopping: CancellationToken,
    /// It has stopped.
    pub(crate) ended: CancellationToken,
}

#[derive(Clone)]
struct Health {
    phase: watch::Receiver<Phase>,
    stopping: CancellationToken,
}

/// Serves until the process has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    phase: watch::Receiver<Phase>,
    Lifetime { stopping, ended }: Lifetime,
    page: Option<Page>,
) -> io::Result<()> {
    let page = page.as_ref().map(Page::router).unwrap_or_default();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Health { phase, stopping })
        .merge(page);
    axum::serve(listener, router).with_graceful_shutdown(async move { ended.cancelled().await }).await
}

/// With the query `verbose`, the response has a line for each part that the process depends on.
async fn ready(State(health): State<Health>, RawQuery(query): RawQuery) -> Response {
    let unready = |reason: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response();
    if health.stopping.is_cancelled() {
        return unready("stopping");
    }
    let phase = health.phase.borrow().clone();
    let readiness = match phase {
        Phase::Starting => return unready("starting"),
        Phase::Refused(reason) => return unready(&reason),
        Phase::Working(readiness) => readiness.check().await,
    };
    let is_verbose = query.is_some_and(|query| query.starts_with("verbose"));
    match readiness.outcome() {
        outcome if is_verbose => {
            let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, readiness.to_string()).into_response()
        }
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "not ready");
            unready(&error.to_string())
        }
    }
}
