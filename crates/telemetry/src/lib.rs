//! Exports a program's metrics: to an OpenTelemetry collector, to Prometheus, or nowhere. Exports traces of ended runs and log lines to a
//! collector.
//!
//! Code measures through the `opentelemetry` crate, which records nothing until [`start`] was called; so `start` must run
//! before any instrument is created. Values accumulate in their instruments, so nothing queues up while a collector is
//! unreachable: the next delivery includes them. One thread makes one delivery at a time, each with a time limit.
#![deny(missing_docs)]

mod collector;
mod content;
mod destination;
mod http_client;
mod logs;
mod page;
mod settings;
mod spans;
mod traces;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use podium_ports::run_traces::RunTraces;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use collector::Collector;
use destination::{Destination, Signal, environment};
use logs::Logs;
use traces::Traces;

pub use content::{ContentCapture, ContentOf};
pub use destination::InvalidVariable;
pub use page::{Page, PageError};
pub use settings::{TELEMETRY, TelemetrySettings};
pub use traces::Sampling;

/// Time limit of the last delivery, at the process's end.
const LAST_DELIVERY_MAX: Duration = Duration::from_secs(3);

/// Identity of the measuring process.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// Its program, such as `podium-executor`. `OTEL_SERVICE_NAME` takes precedence.
    pub name: &'a str,
    /// The program's version.
    pub version: &'a str,
    /// Distinguishes it from other processes of the program.
    pub instance: &'a str,
}

/// How the metrics page is served.
#[derive(Debug)]
pub enum MetricsPage {
    /// It is not served.
    Disabled,
    /// By the caller, with [`Telemetry::page`].
    ByCaller,
    /// On a separate listener.
    OnListener(TcpListener),
}

impl MetricsPage {
    /// Binds a separate listener for the page, if an address is given. Otherwise the caller shows it at `health`, if that is given.
    pub async fn of(listen: Option<SocketAddr>, health: Option<SocketAddr>) -> Result<Self, TelemetryError> {
        match (Self::bind(listen).await?, health) {
            (Self::Disabled, Some(_)) => Ok(Self::ByCaller),
            (page, _) => Ok(page),
        }
    }

    /// Binds a separate listener for the page, if an address is given.
    pub async fn bind(listen: Option<SocketAddr>) -> Result<Self, TelemetryError> {
        let Some(address) = listen else { return Ok(Self::Disabled) };
        let listener = TcpListener::bind(address).await;
        listener.map(Self::OnListener).map_err(|source| TelemetryError::Listen { address, source })
    }
}

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector's address or options are invalid.
    #[error("telemetry cannot be delivered: otlp_endpoint or an OTEL_EXPORTER_OTLP variable is invalid")]
    Collector(#[from] ExporterBuildError),
    /// A standard variable has an unknown value.
    #[error(transparent)]
    Variable(#[from] InvalidVariable),
    /// The metrics listener cannot be bound.
    #[error("cannot listen on {address} for metrics")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The metrics page cannot be created.
    #[error("the metrics page cannot be created")]
    Page(#[source] opentelemetry_sdk::error::OTelSdkError),
}

/// The telemetry of this process. If it is dropped, the last metrics are lost; see [`Self::shut_down`].
#[derive(Debug)]
#[must_use = "without a shutdown the last metrics are lost"]
pub struct Telemetry {
    provider: Option<SdkMeterProvider>,
    traces: Option<Arc<Traces>>,
    logs: Option<Logs>,
    page: Option<Page>,
    listeners: TaskTracker,
    ended: CancellationToken,
}

/// Starts the configured exports. Must be called once, within a tokio runtime, before any instrument is created.
pub fn start(
    settings: &TelemetrySettings,
    process: &Process<'_>,
    metrics_page: MetricsPage,
) -> Result<Telemetry, TelemetryError> {
    let to = |signal| Destination::of(signal, settings.otlp_endpoint.as_deref(), &environment);
    let collector = to(Signal::Metrics)?.map(|to| to.metrics()).transpose()?;
    let traces = match to(Signal::Traces)?.zip(settings.sampling) {
        Some((to, sampling)) => {
            Some(Traces::new(to.spans()?, &resource(process), sampling, settings.content.clone()))
        }
        None => None,
    };
    let logs = to(Signal::Logs)?.map(|to| to.logs()).transpose()?;
    let logs = logs.map(|exporter| Logs::new(exporter, resource(process)));
    if let Some(logs) = &logs {
        podium_setup::add_log_sink(logs.sink());
    }
    let mut telemetry = Telemetry {
        provider: None,
        traces,
        logs,
        page: None,
        listeners: TaskTracker::new(),
        ended: CancellationToken::new(),
    };
    if collector.is_none() && matches!(metrics_page, MetricsPage::Disabled) {
        return Ok(telemetry);
    }
    let mut provider = SdkMeterProvider::builder().with_resource(resource(process));
    if let Some(exporter) = collector {
        let mut reader = PeriodicReader::builder(Collector::new(exporter, Handle::current()));
        if let Some(every) = settings.every {
            reader = reader.with_interval(every);
        }
        provider = provider.with_reader(reader.build());
    }
    if !matches!(metrics_page, MetricsPage::Disabled) {
        let (page, reader) = Page::new().map_err(TelemetryError::Page)?;
        provider = provider.with_reader(reader);
        if let MetricsPage::OnListener(listener) = metrics_page {
            telemetry.show(page.clone(), listener);
        }
        telemetry.page = Some(page);
    }
    let provider = provider.build();
    global::set_meter_provider(provider.clone());
    show_build(process);
    telemetry.provider = Some(provider);
    Ok(telemetry)
}

impl Telemetry {
    /// Where traces of ended runs go, if anywhere.
    pub fn traces(&self) -> Option<Arc<dyn RunTraces>> {
        self.traces.clone().map(|traces| traces as Arc<dyn RunTraces>)
    }

    /// The metrics page, if it is enabled.
    pub fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }

    fn show(&self, page: Page, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            info!(%address, "the metrics page is served");
        }
        let ended = self.ended.clone();
        self.listeners.spawn(async move {
            if let Err(error) = page.serve(listener, ended).await {
                warn!(%error, "the metrics page is no longer served");
            }
        });
    }

    /// Delivers the last metrics, traces and log lines, and stops. Takes a few seconds at most; a collector that does not answer by then misses them.
    pub async fn shut_down(self) {
        self.ended.cancel();
        self.listeners.close();
        let (provider, traces, logs) = (self.provider, self.traces, self.logs);
        if provider.is_none() && traces.is_none() && logs.is_none() {
            return;
        }
        let (ended, end) = oneshot::channel();
        // On a separate thread, because it blocks and a process's end does not wait for threads.
        let shut_down = move || {
            let traces = traces.map_or(Ok(()), |traces| traces.shut_down());
            let metrics = provider.map_or(Ok(()), |provider| provider.shutdown());
            let logs = logs.map_or(Ok(()), |logs| logs.shut_down());
            drop(ended.send(metrics.and(traces).and(logs)));
        };
        if std::thread::Builder::new().name("telemetry-end".to_owned()).spawn(shut_down).is_err() {
            return;
        }
        match tokio::time::timeout(LAST_DELIVERY_MAX, end).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => warn!(%error, "the last metrics, traces or log lines were not delivered"),
            Ok(Err(_)) | Err(_) => warn!("the last metrics, traces or log lines were not delivered in time"),
        }
    }
}

/// Publishes the version as a metric, because Prometheus does not read resource attributes.
fn show_build(process: &Process<'_>) {
    let gauge = global::meter("podium.process")
        .u64_gauge("podium.build.info")
        .with_unit("{process}")
        .with_description("Always 1: counts the processes of each version")
        .build();
    gauge.record(1, &[KeyValue::new("podium.version", process.version.to_owned())]);
}

/// The process's resource attributes, overridden by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
fn resource(process: &Process<'_>) -> Resource {
    let own = [
        ("service.name", process.name),
        ("service.version", process.version),
        ("service.instance.id", process.instance),
    ];
    let environment = Resource::builder().build();
    let is_set = |key: &'static str| {
        let value = environment.get(&key.into());
        // The library generates a name if none is set.
        value.is_some_and(|value| !value.as_str().starts_with("unknown_service"))
    };
    let missing = own.into_iter().filter(|(key, _)| !is_set(key));
    Resource::builder()
        .with_attributes(missing.map(|(key, value)| KeyValue::new(key, value.to_owned())))
        .build()
}
