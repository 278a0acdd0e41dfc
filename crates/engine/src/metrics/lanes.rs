//! Lanes: published and fetched messages, contention, and free slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Meter};
use podium_domain::pool::Pool;
use podium_ports::queue::{Lane, Published, QueueError};

use super::instruments::{OTHER, OUTCOME};

pub(super) const LANE: &str = "podium.lane";

/// Instruments of lanes.
pub(crate) struct Lanes {
    published: Counter<u64>,
    fetched: Counter<u64>,
    contended: Gauge<u64>,
    slots: Gauge<u64>,
    names: BTreeMap<Lane, KeyValue>,
}

impl Lanes {
    pub(super) fn new(meter: &Meter, pool: &Pool) -> Self {
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        let gauge = |name, unit, what| meter.u64_gauge(name).with_unit(unit).with_description(what).build();
        let lanes = Lane::plans().into_iter().chain(Lane::steps(pool));
        let named = |lane: Lane| {
            let name = KeyValue::new(LANE, Arc::<str>::from(lane.to_string()));
            (lane, name)
        };
        Self {
            published: counter(
                "podium.lane.published",
                "{message}",
                "Messages published to a lane, or attempted",
            ),
            fetched: counter("podium.lane.fetched", "{message}", "Messages fetched from a lane"),
            contended: gauge(
                "podium.lane.contended",
                "{lane}",
                "1 while ready tasks of the lane wait in the store for capacity, as far as this process knows",
            ),
            slots: gauge("podium.lane.slots_free", "{slot}", "Free slots for tasks of the lane"),
            names: lanes.map(named).collect(),
        }
    }

    /// Counts a message that was published to a lane, or the failed attempt.
    pub(crate) fn published(&self, lane: &Lane, published: &Result<Published, QueueError>) {
        let outcome = match published {
            Ok(Published::Queued) => "queued",
            Ok(Published::AlreadyOutstanding) => "outstanding",
            Err(QueueError::Full { .. }) => "full",
            Err(QueueError::Unavailable(_)) => "failed",
        };
        self.published.add(1, &[self.name(lane), KeyValue::new(OUTCOME, outcome)]);
    }

    /// Counts messages that were fetched from a lane into `free` slots.
    pub(crate) fn fetched(&self, lane: &Lane, messages: usize, free: usize) {
        let name = [self.name(lane)];
        self.fetched.add(messages as u64, &name);
        self.slots.record(free.saturating_sub(messages) as u64, &name);
    }

    /// Notes that tasks of the lane wait in the store.
    pub(crate) fn contended(&self, lane: &Lane) {
        self.contended.record(1, &[self.name(lane)]);
    }

    /// Notes that no task of the lane waits in the store any more.
    pub(crate) fn emptied(&self, lane: &Lane) {
        self.contended.record(0, &[self.name(lane)]);
    }

    fn name(&self, lane: &Lane) -> KeyValue {
        self.names.get(lane).cloned().unwrap_or(KeyValue::new(LANE, OTHER))
    }
}
