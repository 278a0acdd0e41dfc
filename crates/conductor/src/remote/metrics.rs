//! Metrics of a remote conductor: its requests for permits and its plans in progress. `docs/metrics.md` describes each
//! metric, and a test compares the two.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram, UpDownCounter};
use opentelemetry::{KeyValue, StringValue, global};
use podium_ports::limiter::RefusalReason;

/// Scope of the instruments.
const SCOPE: &str = "podium.conductor";
/// Histogram bounds in seconds: from unnoticeable to the longest deadlines.
const WAITS_S: [f64; 11] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// The instruments of one conductor.
#[derive(Debug)]
pub(super) struct Metrics {
    permits: Counter<u64>,
    waits: Histogram<f64>,
    plans: UpDownCounter<i64>,
    conductor: KeyValue,
    waiting: [KeyValue; 2],
    calling: [KeyValue; 2],
}

impl Metrics {
    /// Creates the instruments on the process's meter, which must be configured before.
    pub(super) fn new(conductor: &str) -> Self {
        let meter = &global::meter(SCOPE);
        let conductor = KeyValue::new("podium.conductor", StringValue::from(Arc::<str>::from(conductor)));
        let state = |state: &'static str| [conductor.clone(), KeyValue::new("podium.state", state)];
        Self {
            permits: meter
                .u64_counter("podium.conductor.remote.permits")
                .with_unit("{permit}")
                .with_description("Requests to the limiter for a call that plans")
                .build(),
            waits: meter
                .f64_histogram("podium.conductor.remote.permit_wait")
                .with_unit("s")
                .with_description("From when a call for a plan could begin until it was permitted")
                .with_boundaries(WAITS_S.to_vec())
                .build(),
            plans: meter
                .i64_up_down_counter("podium.conductor.remote.plans")
                .with_unit("{plan}")
                .with_description("Plans that were requested and are not complete yet")
                .build(),
            waiting: state("waiting"),
            calling: state("calling"),
            conductor,
        }
    }

    /// Counts a request to the limiter. `Ok`: granted. `Err(None)`: the limiter failed.
    pub(super) fn count_request(&self, granted: Result<(), Option<RefusalReason>>) {
        let outcome = match granted {
            Ok(()) => "granted",
            Err(Some(RefusalReason::Busy)) => "busy",
            Err(Some(RefusalReason::Rate)) => "rate",
            Err(Some(RefusalReason::Blocked)) => "blocked",
            Err(Some(RefusalReason::Broken)) => "broken",
            Err(Some(RefusalReason::Unreachable)) => "away",
            Err(None) => "failed",
        };
        self.permits.add(1, &[self.conductor.clone(), KeyValue::new("podium.outcome", outcome)]);
    }

    /// Records the time from when a call could begin until it was permitted.
    pub(super) fn waited(&self, wait: Duration) {
        self.waits.record(wait.as_secs_f64(), std::slice::from_ref(&self.conductor));
    }

    /// Counts a plan in progress until the value is dropped; it is waiting unless it calls.
    pub(super) fn in_hand(&self) -> InHand<'_> {
        self.plans.add(1, &self.waiting);
        InHand(self)
    }

    /// Counts a plan in progress as calling until the value is dropped.
    pub(super) fn calling(&self) -> Calling<'_> {
        self.plans.add(-1, &self.waiting);
        self.plans.add(1, &self.calling);
        Calling(self)
    }
}

/// A plan in progress. A guard, because planning may be stopped at any await.
pub(super) struct InHand<'a>(&'a Metrics);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.plans.add(-1, &self.0.waiting);
    }
}

/// A call in progress.
pub(super) struct Calling<'a>(&'a Metrics);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.plans.add(-1, &self.0.calling);
        self.0.plans.add(1, &self.0.waiting);
    }
}
