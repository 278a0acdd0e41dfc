//! Delivers log lines to a collector, next to standard error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord as _};
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry::{InstrumentationScope, Key};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{
    BatchLogProcessor, LogBatch, LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use podium_setup::LogSink;
use tokio::runtime::Handle;
use tracing::{Event, Metadata};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::Registry;

/// Time limit of one delivery, connecting included. The library limits only the call.
const DELIVERY_MAX: Duration = Duration::from_secs(10);
/// The libraries that deliver: their own lines, delivered, would cause more lines.
const DELIVERERS: [&str; 6] = ["h2", "hyper", "opentelemetry", "reqwest", "rustls", "tonic"];

/// The delivery of logs.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    provider: SdkLoggerProvider,
}

/// Converts events of `tracing` to log records.
struct Bridge {
    inner: OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>,
}

/// Gives the lines of runs and attempts the trace that they name, so that a backend finds them with the trace.
#[derive(Debug)]
struct WithTrace<P> {
    inner: P,
}

/// The exporter, as used by the delivery thread.
#[derive(Debug)]
struct LogCollector {
    exporter: LogExporter,
    /// Provides the timers, which the thread does not have.
    runtime: Handle,
    is_down: AtomicBool,
}

impl Logs {
    /// Must be called within a tokio runtime.
    pub(crate) fn new(exporter: LogExporter, resource: Resource) -> Self {
        let collector =
            LogCollector { exporter, runtime: Handle::current(), is_down: AtomicBool::new(false) };
        let inner = BatchLogProcessor::builder(collector).build();
        let provider = SdkLoggerProvider::builder().with_resource(resource);
        Self { provider: provider.with_log_processor(WithTrace { inner }).build() }
    }

    /// Delivers each log line.
    pub(crate) fn sink(&self) -> LogSink {
        Box::new(Bridge { inner: OpenTelemetryTracingBridge::new(&self.provider) })
    }

    /// Delivers the lines that wait. Blocks.
    pub(crate) fn shut_down(&self) -> OTelSdkResult {
        self.provider.shutdown()
    }
}

/// Whether a line is delivered.
fn is_delivered(line: &Metadata<'_>) -> bool {
    let library = line.target().split("::").next().unwrap_or_default();
    let is_of =
        |name: &str| library.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    !DELIVERERS.iter().any(|name| is_of(name))
}

impl Layer<Registry> for Bridge {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, Registry>) {
        if is_delivered(event.metadata()) {
            self.inner.on_event(event, context);
        }
    }
}

impl<P: LogProcessor> LogProcessor for WithTrace<P> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        let text = |name: &'static str| {
            let (_, value) = record.attributes_iter().find(|(key, _)| *key == Key::from_static_str(name))?;
            match value {
                AnyValue::String(text) => Some(text.as_str().to_owned()),
                _ => None,
            }
        };
        let trace = text("trace_id").and_then(|id| TraceId::from_hex(&id).ok());
        let span = text("span_id").and_then(|id| SpanId::from_hex(&id).ok());
        if let Some(trace) = trace {
            record.set_trace_context(trace, span.unwrap_or(SpanId::INVALID), None);
        }
        self.inner.emit(record, scope);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl opentelemetry_sdk::logs::LogExporter for LogCollector {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let bounded = {
            let _timers = self.runtime.enter();
            tokio::time::timeout(DELIVERY_MAX, self.exporter.export(batch))
        };
        let delivered = bounded.await.unwrap_or(Err(OTelSdkError::Timeout(DELIVERY_MAX)));
        // These lines go to standard error, and wait for the delivery themselves.
        match &delivered {
            Ok(()) if self.is_down.swap(false, Ordering::Relaxed) => {
                tracing::info!("log lines are delivered again");
            }
            Err(error) if !self.is_down.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "log lines cannot be delivered; standard error has them");
            }
            Ok(()) | Err(_) => {}
        }
        delivered
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
