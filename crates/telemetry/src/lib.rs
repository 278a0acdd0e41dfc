//! What a program does with what it measures: sends it to an OpenTelemetry collector, shows it to Prometheus, or nothing.
//!
//! Whoever measures does so through the `opentelemetry` crate, which records nothing until [`start`] was called: so that has to
//! come before anything is made that measures. What is measured is added up in place, instrument by instrument, so nothing queues
//! up where a collector is away: the next delivery says the same, and later. It goes out on a thread of its own, one delivery at a
//! time, each bounded in time.
#![deny(missing_docs)]

mod collector;
mod page;
mod settings;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, RetryPolicy, WithExportConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::ClientTlsConfig;
use tracing::{info, warn};

use collector::Collector;

pub use page::{Page, PageError};
pub use settings::TelemetrySettings;

/// Longest time for the last delivery, when the process ends.
const LAST_DELIVERY_MAX: Duration = Duration::from_secs(3);

/// Which process it is that measures.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// Its program, such as `podium-executor`. `OTEL_SERVICE_NAME` wins.
    pub name: &'a str,
    /// The program's version.
    pub version: &'a str,
    /// What tells it from others of the same program.
    pub instance: &'a str,
}

/// Who shows the page of metrics.
#[derive(Debug)]
pub enum Paging {
    /// Nobody.
    Nobody,
    /// Whoever starts to measure, by [`Telemetry::page`].
    Caller,
    /// A door of its own.
    Door(TcpListener),
}

/// Where a door for the page of metrics listens, if there is to be one.
pub async fn door(listen: Option<SocketAddr>) -> Result<Paging, TelemetryError> {
    let Some(address) = listen else { return Ok(Paging::Nobody) };
    let listener = TcpListener::bind(address).await;
    listener.map(Paging::Door).map_err(|source| TelemetryError::Listen { address, source })
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector cannot be delivered to as it was said.
    #[error("metrics cannot be delivered as otlp_endpoint or the OTEL_EXPORTER_OTLP variables say")]
    Collector(#[source] ExporterBuildError),
    /// The page's door cannot listen.
    #[error("cannot listen on {address} for metrics")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The page cannot be made.
    #[error("the page of metrics cannot be made")]
    Page(#[source] opentelemetry_sdk::error::OTelSdkError),
}

/// What is measured in this process. Dropped, the last measurements are lost; see [`Self::shut_down`].
#[derive(Debug)]
#[must_use = "it has to be shut down, or the last measurements are lost"]
pub struct Telemetry {
    provider: Option<SdkMeterProvider>,
    page: Option<Page>,
    doors: TaskTracker,
    ended: CancellationToken,
}

/// Begins to measure, as far as anybody is interested. Must be called inside a tokio runtime, once, before anything is made that
/// measures.
pub fn start(
    settings: &TelemetrySettings,
    process: &Process<'_>,
    paging: Paging,
) -> Result<Telemetry, TelemetryError> {
    let collector = settings.collector()?;
    let mut telemetry =
        Telemetry { provider: None, page: None, doors: TaskTracker::new(), ended: CancellationToken::new() };
    if collector.is_none() && matches!(paging, Paging::Nobody) {
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
    if !matches!(paging, Paging::Nobody) {
        let (page, reader) = Page::new().map_err(TelemetryError::Page)?;
        provider = provider.with_reader(reader);
        if let Paging::Door(listener) = paging {
            telemetry.show(page.clone(), listener);
        }
        telemetry.page = Some(page);
    }
    let provider = provider.build();
    global::set_meter_provider(provider.clone());
    telemetry.provider = Some(provider);
    Ok(telemetry)
}

impl TelemetrySettings {
    /// What delivers, if anything is to be delivered. Where to, how compressed, with which headers and within which time, the
    /// library reads from the standard variables as far as it is not said here.
    fn collector(&self) -> Result<Option<MetricExporter>, TelemetryError> {
        let Some(endpoint) = self.endpoint() else { return Ok(None) };
        // What is not delivered now is in the next delivery.
        let mut exporter = MetricExporter::builder().with_tonic().with_retry_policy(RetryPolicy::disabled());
        if !endpoint.starts_with("http://") {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        if let Some(endpoint) = &self.otlp_endpoint {
            exporter = exporter.with_endpoint(endpoint);
        }
        exporter.build().map(Some).map_err(TelemetryError::Collector)
    }
}

impl Telemetry {
    /// The page of metrics, if it is shown.
    pub fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }

    fn show(&self, page: Page, listener: TcpListener) {
        if let Ok(address) = listener.local_addr() {
            info!(%address, "metrics are shown");
        }
        let ended = self.ended.clone();
        self.doors.spawn(async move {
            if let Err(error) = page.serve(listener, ended).await {
                warn!(%error, "metrics are shown no longer");
            }
        });
    }

    /// Delivers what was measured last, and ends. Takes a few seconds at most: a collector that does not answer by then goes
    /// without.
    pub async fn shut_down(self) {
        self.ended.cancel();
        self.doors.close();
        let Some(provider) = self.provider else { return };
        let (ended, end) = oneshot::channel();
        // On a thread of its own: it blocks, and nothing waits for such a thread when the process ends.
        let shut_down = move || drop(ended.send(provider.shutdown()));
        if std::thread::Builder::new().name("telemetry-end".to_owned()).spawn(shut_down).is_err() {
            return;
        }
        match tokio::time::timeout(LAST_DELIVERY_MAX, end).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => warn!(%error, "the last metrics were not delivered"),
            Ok(Err(_)) | Err(_) => warn!("the last metrics were not delivered in time"),
        }
    }
}

/// Who measures, with what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say of it.
fn resource(process: &Process<'_>) -> Resource {
    let own = [
        ("service.name", process.name),
        ("service.version", process.version),
        ("service.instance.id", process.instance),
    ];
    let said = Resource::builder().build();
    let is_said = |key: &'static str| {
        let value = said.get(&key.into());
        // The library makes up a name where nobody gave one.
        value.is_some_and(|value| !value.as_str().starts_with("unknown_service"))
    };
    let missing = own.into_iter().filter(|(key, _)| !is_said(key));
    Resource::builder()
        .with_attributes(missing.map(|(key, value)| KeyValue::new(key, value.to_owned())))
        .build()
}
