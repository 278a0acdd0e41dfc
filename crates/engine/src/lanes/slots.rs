//! Slots: how many tasks of each lane this process works on concurrently.

use std::collections::BTreeMap;
use std::sync::Arc;

use podium_ports::queue::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right to work on one task of a lane, until dropped.
pub(crate) struct Slot {
    pub(crate) lane: Lane,
    _permit: OwnedSemaphorePermit,
}

/// The slots of the lanes that this process serves. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    lanes: Arc<BTreeMap<Lane, Arc<Semaphore>>>,
}

impl Slots {
    /// Creates `each` slots for each lane.
    pub(crate) fn new(lanes: impl IntoIterator<Item = Lane>, each: usize) -> Self {
        let lanes = lanes.into_iter().map(|lane| (lane, Arc::new(Semaphore::new(each))));
        Self { lanes: Arc::new(lanes.collect()) }
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.keys()
    }

    /// A slot of the lane, if one is free.
    pub(crate) fn try_take(&self, lane: &Lane) -> Option<Slot> {
        let permit = Arc::clone(self.lanes.get(lane)?).try_acquire_owned().ok()?;
        Some(Slot { lane: lane.clone(), _permit: permit })
    }

    /// A slot of the lane as soon as one is free; `None` for a lane that is not served.
    pub(super) async fn take(&self, lane: &Lane) -> Option<Slot> {
        let permit = Arc::clone(self.lanes.get(lane)?).acquire_owned().await.ok()?;
        Some(Slot { lane: lane.clone(), _permit: permit })
    }

    pub(super) fn free(&self, lane: &Lane) -> usize {
        self.lanes.get(lane).map_or(0, |slots| slots.available_permits())
    }
}
