//! Parts that several instruments share: names of attributes, histogram bounds and workers' names.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::{KeyValue, StringValue};
use podium_domain::ids::WorkerId;
use podium_domain::policy::Tier;
use podium_domain::pool::{Pool, Worker};

/// Histogram bounds of run times and waits, in seconds: from unnoticeable to the longest deadlines.
pub(super) const WAITS_S: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];
/// The name for all workers outside the pool: old runs may name any number of workers that have left it.
pub(super) const OTHER: &str = "_OTHER";

pub(super) const OUTCOME: &str = "podium.outcome";
pub(super) const WORKER: &str = "podium.worker";
const TIER: &str = "podium.tier";

/// The workers' names as attributes, created once.
pub(super) struct Names {
    workers: HashMap<WorkerId, StringValue>,
}

impl Names {
    pub(super) fn of(pool: &Pool) -> Self {
        let name =
            |worker: &Worker| (worker.id.clone(), StringValue::from(Arc::<str>::from(worker.id.as_str())));
        Self { workers: pool.workers_and_retired().map(name).collect() }
    }

    /// A worker as an attribute.
    pub(super) fn worker(&self, id: &WorkerId) -> KeyValue {
        match self.workers.get(id) {
            Some(name) => KeyValue::new(WORKER, name.clone()),
            None => KeyValue::new(WORKER, OTHER),
        }
    }
}

pub(super) fn tier_of(tier: Tier) -> KeyValue {
    KeyValue::new(TIER, tier.as_str())
}

pub(super) fn seconds(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
    bounds: &[f64],
) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
    histogram.with_boundaries(bounds.to_vec()).build()
}
