//! The page of metrics, `/metrics`, in Prometheus' text format.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::error::OTelSdkError;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the page says.
#[derive(Clone, Debug)]
pub struct Page {
    registry: Registry,
}

/// The page cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the page of metrics cannot be written")]
pub struct PageError(#[source] prometheus::Error);

impl Page {
    /// A page, and what it reads from.
    pub(crate) fn new() -> Result<(Self, PrometheusExporter), OTelSdkError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        Ok((Self { registry }, exporter))
    }

    /// All that was measured by now.
    pub fn text(&self) -> Result<String, PageError> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(PageError)
    }

    /// The route `/metrics`, for a door that others reach on purpose only: what it shows is of all tenants.
    pub fn router(&self) -> Router {
        Router::new().route("/metrics", get(show)).with_state(self.clone())
    }

    /// Serves the page alone until `ended`.
    pub(crate) async fn serve(self, listener: TcpListener, ended: CancellationToken) -> std::io::Result<()> {
        let router = self.router();
        axum::serve(listener, router).with_graceful_shutdown(async move { ended.cancelled().await }).await
    }
}

async fn show(State(page): State<Page>) -> Response {
    match page.text() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no metrics are shown");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
