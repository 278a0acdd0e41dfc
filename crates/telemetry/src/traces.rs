//! Delivers the spans of ended runs to a collector, for the runs that are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor};
use podium_domain::pool::Pool;
use podium_domain::run::{Run, RunState};
use podium_domain::share::Share;
use podium_ports::run_traces::RunTraces;
use tokio::runtime::Handle;
use tracing::{info, warn};

use crate::content::ContentCapture;
use crate::spans::spans_of;

/// Time limit of one delivery, connecting included. The library limits only the call.
const DELIVERY_MAX: Duration = Duration::from_secs(10);

/// The runs whose traces are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Share of the runs whose clients did not decide.
    pub share: Share,
    /// Runs that took at least as long are kept, as failed ones are.
    pub slow: Duration,
}

impl Sampling {
    /// Whether the run's trace is kept: if it failed or was slow, if its client keeps the trace, or by its id.
    ///
    /// The decision is made at the end of the run, when everything is known, and for the whole trace.
    fn keeps(self, run: &Run) -> bool {
        let ended = run.ended_at().unwrap_or_else(|| run.changed_at());
        let took = ended.since(run.spec().accepted_at);
        matches!(run.state(), RunState::Failed { .. }) || took >= self.slow || self.samples(run)
    }

    /// Whether the run's trace is kept whatever happens to the run: by its client's decision, or else by its id.
    fn samples(self, run: &Run) -> bool {
        let by_client = run.spec().request.trace.map(|parent| parent.is_sampled);
        by_client.unwrap_or_else(|| self.share.includes(run.id()))
    }
}

/// Records ended runs and delivers their spans. A thread delivers them in batches; while the collector is unreachable, the oldest
/// spans that fit its queue are kept, and later ones are dropped.
#[derive(Debug)]
pub(crate) struct Traces {
    processor: BatchSpanProcessor,
    sampling: Sampling,
    content: Option<ContentCapture>,
}

impl Traces {
    /// Must be called within a tokio runtime.
    pub(crate) fn new(
        exporter: SpanExporter,
        resource: &Resource,
        sampling: Sampling,
        content: Option<ContentCapture>,
    ) -> Arc<Self> {
        let collector =
            SpanCollector { exporter, runtime: Handle::current(), is_down: AtomicBool::new(false) };
        let mut processor = BatchSpanProcessor::builder(collector).build();
        processor.set_resource(resource);
        Arc::new(Self { processor, sampling, content })
    }

    /// Delivers the spans that wait. Blocks.
    pub(crate) fn shut_down(&self) -> OTelSdkResult {
        self.processor.shutdown()
    }
}

impl RunTraces for Traces {
    fn ended(&self, run: &Run, pool: &Pool) {
        if self.sampling.keeps(run) {
            let texts = self.content.as_ref().and_then(|content| content.texts_of(&run.spec().tenant));
            for span in spans_of(run, pool, texts) {
                self.processor.on_end(span);
            }
        }
    }

    fn is_sampled(&self, run: &Run) -> bool {
        self.sampling.samples(run)
    }
}

/// The exporter, as used by the delivery thread.
#[derive(Debug)]
struct SpanCollector {
    exporter: SpanExporter,
    /// Provides the timers, which the thread does not have.
    runtime: Handle,
    is_down: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for SpanCollector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let bounded = {
            let _timers = self.runtime.enter();
            tokio::time::timeout(DELIVERY_MAX, self.exporter.export(batch))
        };
        let delivered = bounded.await.unwrap_or(Err(OTelSdkError::Timeout(DELIVERY_MAX)));
        match &delivered {
            Ok(()) if self.is_down.swap(false, Ordering::Relaxed) => info!("traces are delivered again"),
            Err(error) if !self.is_down.swap(true, Ordering::Relaxed) => {
                warn!(%error, "traces cannot be delivered; those of runs that end meanwhile may be lost");
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
