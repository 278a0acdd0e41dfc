//! The metrics page, `/metrics`, in the Prometheus text format.

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

/// Renders the metrics page.
#[derive(Clone, Debug)]
pub struct Page {
    registry: Registry,
}

/// The page cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[error("the metrics page cannot be encoded")]
pub struct PageError(#[source] prometheus::Error);

impl Page {
    /// Creates a page and the exporter that fills it.
    pub(crate) fn new() -> Result<(Self, PrometheusExporter), OTelSdkError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        Ok((Self { registry }, exporter))
    }

    /// The current values of all metrics.
    pub fn text(&self) -> Result<String, PageError> {
        TextEncoder::new().encode_to_string(&self.registry.gather()).map_err(PageError)
    }

    /// The route `/metrics`. It shows data of all tenants, so it belongs on a listener that only operators can reach.
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
            tracing::warn!(error = &error as &dyn std::error::Error, "the metrics page cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
