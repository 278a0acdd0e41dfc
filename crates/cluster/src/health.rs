//! The health server of a process that has no other server: `/healthz` (it is alive) and `/readyz` (what it stands on answers),
//! `/metrics` (what it measured).

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

use crate::backbone::Readiness;

/// How far a process is.
#[derive(Clone)]
pub(crate) enum Phase {
    /// Not ready yet.
    Starting,
    /// It will never be ready, and says why; it lives on.
    Refused(String),
    /// Ready as long as what it stands on is.
    Working(Readiness),
}

#[derive(Clone)]
struct Health {
    phase: watch::Receiver<Phase>,
    stopping: CancellationToken,
}

/// Serves until `ended`; not ready from `stopping` on.
pub(crate) async fn serve(
    listener: TcpListener,
    phase: watch::Receiver<Phase>,
    (stopping, ended): (CancellationToken, CancellationToken),
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

/// With the query `verbose`, a line for each part that the process stands on.
async fn ready(State(health): State<Health>, RawQuery(query): RawQuery) -> Response {
    let unready = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
    if health.stopping.is_cancelled() {
        return unready("stopping");
    }
    let phase = health.phase.borrow().clone();
    let readiness = match phase {
        Phase::Starting => return unready("starting"),
        Phase::Refused(why) => return unready(&why),
        Phase::Working(readiness) => readiness.look().await,
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
