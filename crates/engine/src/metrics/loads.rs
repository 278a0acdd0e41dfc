//! The open tasks of each lane in the store, as the process that sweeps last read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use podium_domain::pool::Pool;
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::LaneLoad;

use super::instruments::OTHER;
use super::lanes::LANE;

/// The loads of all lanes. Clones share them.
#[derive(Clone, Default)]
pub(super) struct LaneLoads {
    /// By name; `None` while another process reads them.
    last: Arc<Mutex<Option<BTreeMap<String, Load>>>>,
}

#[derive(Clone, Copy, Default)]
struct Load {
    backlog: u64,
    queued: u64,
    running: u64,
    oldest: Duration,
}

impl LaneLoads {
    /// Publishes the loads as metrics.
    pub(super) fn observe(&self, meter: &Meter) {
        let loads = self.clone();
        let _ = meter
            .u64_observable_gauge("podium.lane.tasks")
            .with_unit("{task}")
            .with_description("Open tasks of the lane in the store, reported by the process that sweeps")
            .with_callback(move |observer| {
                for (lane, load) in loads.lock().iter().flatten() {
                    let states =
                        [("backlog", load.backlog), ("queued", load.queued), ("running", load.running)];
                    for (state, tasks) in states {
                        let lane = KeyValue::new(LANE, lane.clone());
                        observer.observe(tasks, &[lane, KeyValue::new("podium.state", state)]);
                    }
                }
            })
            .build();
        let loads = self.clone();
        let _ = meter
            .f64_observable_gauge("podium.lane.oldest")
            .with_unit("s")
            .with_description("How long the oldest ready task of the lane has been ready, reported by the process that sweeps")
            .with_callback(move |observer| {
                for (lane, load) in loads.lock().iter().flatten() {
                    observer.observe(load.oldest.as_secs_f64(), &[KeyValue::new(LANE, lane.clone())]);
                }
            })
            .build();
    }

    /// Notes what was read at `now`. Lanes of the pool without open tasks have none; other lanes count together.
    pub(super) fn note(&self, pool: &Pool, loads: &[LaneLoad], now: Timestamp) {
        let known: BTreeSet<_> =
            Lane::plans().into_iter().chain(Lane::steps(pool)).map(|lane| lane.to_string()).collect();
        let mut by_name: BTreeMap<_, Load> = BTreeMap::new();
        for load in loads {
            let name = if known.contains(&load.lane) { &*load.lane } else { OTHER };
            let sum = by_name.entry(name.to_owned()).or_default();
            sum.backlog += load.backlog;
            sum.queued += load.published;
            sum.running += load.running;
            sum.oldest = sum.oldest.max(load.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)));
        }
        for lane in known {
            by_name.entry(lane).or_default();
        }
        *self.lock() = Some(by_name);
    }

    /// Notes that another process reads the loads.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Load>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
