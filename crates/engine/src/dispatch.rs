//! Publishing ready tasks. Losing a message here is harmless: the sweeper finds the task in the store.

use std::time::Duration;

use podium_domain::ids::VendorId;
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_domain::run::{Run, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, TaskMessage};
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::parts::Parts;

/// Steps whose worker the pool does not have (any more) wait here, to be failed with that reason.
const UNSERVED: &str = "unserved";

/// Publishes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatch {
    parts: Parts,
    delayed: TaskTracker,
}

impl Dispatch {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, delayed: TaskTracker::new() }
    }

    /// Publishes the task now, or at `not_before`.
    pub(crate) async fn publish(&self, run: &Run, task: TaskRef, not_before: Timestamp) {
        let Some(lane) = self.lane_of(run, task) else {
            return;
        };
        let message = TaskMessage::new(run.id(), task);
        let wait = not_before.since(self.parts.clock.now());
        if wait == Duration::ZERO {
            publish(&self.parts, &lane, message).await;
        } else {
            let parts = self.parts.clone();
            self.delayed.spawn(async move {
                parts.clock.sleep(wait).await;
                publish(&parts, &lane, message).await;
            });
        }
    }

    /// Whether ready tasks wait for room in the lane. Then whoever has a free slot takes what is next in the lane, and nothing
    /// past it.
    #[expect(clippy::unused_self, reason = "lanes are not bounded by themselves yet, so none is contended")]
    pub(crate) fn is_contended(&self, _lane: &Lane) -> bool {
        false
    }

    /// The lane that the task waits in.
    pub(crate) fn lane_of(&self, run: &Run, task: TaskRef) -> Option<Lane> {
        let tier = run.spec().policy.tier;
        match task {
            TaskRef::Plan { .. } => Some(Lane::Plan(tier)),
            TaskRef::Step { .. } => {
                let worker = self.parts.pool.worker(run.worker_of(task)?);
                let vendor = worker.map_or_else(unserved, |worker| Some(worker.vendor.clone()))?;
                Some(Lane::Step(tier, vendor))
            }
        }
    }
}

/// Every lane that steps over `pool` can wait in.
pub(crate) fn step_lanes(pool: &Pool) -> Vec<Lane> {
    let vendors = pool.vendors().iter().map(|vendor| vendor.id.clone()).chain(unserved());
    vendors
        .flat_map(|vendor| [Tier::Mini, Tier::Ultra].map(|tier| Lane::Step(tier, vendor.clone())))
        .collect()
}

fn unserved() -> Option<VendorId> {
    VendorId::new(UNSERVED).ok()
}

async fn publish(parts: &Parts, lane: &Lane, message: TaskMessage) {
    if let Err(error) = parts.queue.publish(lane, message).await {
        warn!(%lane, error = &error as &dyn std::error::Error, "a message was not published; the sweeper will");
    }
}
