//! Delivers metrics to a collector, within bounds, and says once when it is away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use tokio::runtime::Handle;
use tracing::{info, warn};

/// Longest time for one delivery, connecting included. The library bounds the call alone, and no connecting.
const DELIVERY_MAX: Duration = Duration::from_secs(10);

/// A collector, as the thread knows it that delivers.
#[derive(Debug)]
pub(crate) struct Collector {
    exporter: MetricExporter,
    /// Whose timers are used: the thread has none.
    runtime: Handle,
    is_away: AtomicBool,
}

impl Collector {
    pub(crate) fn new(exporter: MetricExporter, runtime: Handle) -> Self {
        Self { exporter, runtime, is_away: AtomicBool::new(false) }
    }

    fn note(&self, delivered: &OTelSdkResult) {
        match delivered {
            Ok(()) if self.is_away.swap(false, Ordering::Relaxed) => info!("metrics are delivered again"),
            Err(error) if !self.is_away.swap(true, Ordering::Relaxed) => {
                warn!(%error, "metrics are not delivered: they are kept and added up until they are");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

impl PushMetricExporter for Collector {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let bounded = {
            let _timers = self.runtime.enter();
            tokio::time::timeout(DELIVERY_MAX, self.exporter.export(metrics))
        };
        let delivered = bounded.await.unwrap_or(Err(OTelSdkError::Timeout(DELIVERY_MAX)));
        self.note(&delivered);
        delivered
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
