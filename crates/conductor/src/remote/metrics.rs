//! What a remote conductor measures: the permits that it asks for, and the plans that it has in hand. `docs/metrics.md` says what
//! each of it means, and a test compares the two.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram, UpDownCounter};
use opentelemetry::{KeyValue, StringValue, global};
use podium_ports::limiter::Why;

/// The name of the instruments' scope.
const SCOPE: &str = "podium.conductor";
/// Bounds in seconds: from what nobody notices to the longest deadlines.
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
    /// On the process' meter, which has to be settled before.
    pub(super) fn new(conductor: &str) -> Self {
        let meter = &global::meter(SCOPE);
        let conductor = KeyValue::new("podium.conductor", StringValue::from(Arc::<str>::from(conductor)));
        let state = |state: &'static str| [conductor.clone(), KeyValue::new("podium.state", state)];
        Self {
            permits: meter
                .u64_counter("podium.conductor.remote.permits")
                .with_unit("{permit}")
                .with_description("Times that the limiter was asked for a call for a plan")
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
                .with_description("Plans that are asked for and not there yet")
                .build(),
            waiting: state("waiting"),
            calling: state("calling"),
            conductor,
        }
    }

    /// The limiter was asked; `Ok`: it granted the call. No reason: it failed.
    pub(super) fn asked(&self, granted: Result<(), Option<Why>>) {
        let outcome = match granted {
            Ok(()) => "granted",
            Err(Some(Why::Busy)) => "busy",
            Err(Some(Why::Rate)) => "rate",
            Err(Some(Why::Blocked)) => "blocked",
            Err(Some(Why::Broken)) => "broken",
            Err(Some(Why::Away)) => "away",
            Err(None) => "failed",
        };
        self.permits.add(1, &[self.conductor.clone(), KeyValue::new("podium.outcome", outcome)]);
    }

    /// A call was permitted so long after it could have begun.
    pub(super) fn waited(&self, wait: Duration) {
        self.waits.record(wait.as_secs_f64(), std::slice::from_ref(&self.conductor));
    }

    /// A plan is in hand, and waits unless it calls, for as long as this is kept.
    pub(super) fn in_hand(&self) -> InHand<'_> {
        self.plans.add(1, &self.waiting);
        InHand(self)
    }

    /// A plan that is in hand calls, for as long as this is kept.
    pub(super) fn calling(&self) -> Calling<'_> {
        self.plans.add(-1, &self.waiting);
        self.plans.add(1, &self.calling);
        Calling(self)
    }
}

/// Counts a plan until it is dropped: planning may be stopped at any await.
pub(super) struct InHand<'a>(&'a Metrics);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.plans.add(-1, &self.0.waiting);
    }
}

/// The same of a call.
pub(super) struct Calling<'a>(&'a Metrics);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.plans.add(-1, &self.0.calling);
        self.0.plans.add(1, &self.0.waiting);
    }
}
