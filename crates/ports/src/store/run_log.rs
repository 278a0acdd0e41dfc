//! The log of runs: their events, and the runs that follow from them.

use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::RunId;
use podium_domain::run::{Booking, Run, SequencedEvent, Task, TaskRef};

use super::StoreError;
use crate::queue::Lane;

/// Stores the events of runs.
#[async_trait]
pub trait RunLog: Send + Sync {
    /// Appends each commit's events if its run still has the version that they follow. A run's first events create it, unless it
    /// exists, or another run has its tenant and request id. All commits share one transaction; one that is not written leaves no
    /// trace and does not affect the others. Each run occurs at most once.
    ///
    /// A [`Commit::booking`] is booked in the same transaction. If it needs capacity that a budget does not have, the commit is not
    /// written; a repeated request id returns the existing run in any case. However many calls run concurrently, a booking that
    /// needs capacity never makes the spent and reserved sums exceed a cap.
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError>;

    /// Loads runs by folding their events, in the order given; `None` for those that do not exist.
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError>;

    /// As [`Self::load`], for a caller that knows earlier versions of some runs. The store may read only the events after these.
    ///
    /// The result does not depend on the known versions. The stored history may lack one of them, because a standby without the last
    /// commits took over.
    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError>;

    /// A run's events after version `after`, at most `limit`, in order.
    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError>;
}

/// A run to load.
#[derive(Clone, Debug)]
pub struct ToLoad {
    /// The run.
    pub id: RunId,
    /// An earlier version of it that the caller knows.
    pub known: Option<Arc<Run>>,
}

impl ToLoad {
    /// The ids of `runs`, for a store that loads complete runs only.
    pub fn ids(runs: &[Self]) -> Vec<RunId> {
        runs.iter().map(|run| run.id).collect()
    }
}

impl From<RunId> for ToLoad {
    fn from(id: RunId) -> Self {
        Self { id, known: None }
    }
}

/// Events to append, the run after them, and the lanes of its tasks.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The run after the events. Stores derive their search columns (state, tasks, cost) from it.
    pub after: Arc<Run>,
    /// The new events, at least one. The last one's sequence number is `after.version()`.
    pub events: Vec<SequencedEvent>,
    /// The place of each task of `after`, in the same order.
    places: Vec<Place>,
    /// The amounts that it adds to the budgets of the run.
    booking: Option<Booking>,
}

impl Commit {
    /// A commit; `place` returns where each task of the run waits.
    pub fn new(after: Run, events: Vec<SequencedEvent>, place: impl Fn(&Run, TaskRef) -> Place) -> Self {
        let places = after.tasks().map(|(task, _)| place(&after, task)).collect();
        Self { after: Arc::new(after), events, places, booking: None }
    }

    /// Whether this commit creates the run.
    pub fn is_first(&self) -> bool {
        self.events.first().is_some_and(|first| first.sequence == 1)
    }

    /// The same commit with a booking, for a run whose charge was `before`.
    #[must_use]
    pub fn charged(mut self, before: Charge) -> Self {
        self.booking = Booking::of(before, &self.after, &self.events);
        self
    }

    /// The amounts that it adds to the budgets of its run; `None` if they do not change.
    pub fn booking(&self) -> Option<&Booking> {
        self.booking.as_ref()
    }

    /// Every task of the run in order, with its place.
    pub fn tasks(&self) -> impl Iterator<Item = PlacedTask<'_>> {
        let placed = self.after.tasks().zip(&self.places);
        placed.map(|((id, task), place)| PlacedTask { id, task, place })
    }

    /// The place of a task; `None` if the run does not have it.
    pub fn place(&self, task: TaskRef) -> Option<&Place> {
        self.tasks().find(|placed| placed.id == task).map(|placed| placed.place)
    }
}

/// A task of a commit's run, and where it waits.
#[derive(Clone, Copy, Debug)]
pub struct PlacedTask<'c> {
    /// Which task it is.
    pub id: TaskRef,
    /// Its state after the commit.
    pub task: &'c Task,
    /// Its place.
    pub place: &'c Place,
}

/// The lane of a task that is ready, and which process publishes it. A task that was already ready keeps its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The lane that its message goes to.
    pub lane: Lane,
    /// Which process publishes its message.
    pub publish_by: PublishBy,
}

/// Which process publishes a ready task's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishBy {
    /// The writer, right after the commit. The task counts as published for the store's grace period.
    Writer,
    /// The dispatcher that takes the task from the backlog.
    Dispatcher,
}

/// The result of a commit that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// This call wrote the events.
    New,
    /// First events only: the run existed, from an earlier try whose reply was lost.
    Already,
    /// First events only: the tenant had already used the request id, for this run. Nothing was written.
    Existing(RunId),
}

/// A commit was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// Another writer committed first. The caller must load the run and decide again. First events never conflict.
    #[error("another writer committed to the run first")]
    Conflict,
    /// A budget does not have the capacity.
    #[error(transparent)]
    OverBudget(Shortage),
}
