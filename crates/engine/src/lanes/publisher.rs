//! Publishes ready tasks. A lost message is harmless: the sweeper finds the task in the store.
//!
//! The queue holds only a few messages of each lane. While a lane has capacity, the process that commits a task publishes it. If a
//! lane is full, or has a backlog in the store, it is *contended*: new tasks wait in the backlog. The one process that dispatches the
//! lane takes them from there, fairly over the tenants, as the lane gets capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use podium_domain::ids::RunId;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, QueueError, TaskMessage};
use podium_ports::store::{Commit, Place, PublishBy, ReadyTask, StoreError};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::commit::UnreadableRuns;
use crate::metrics::Metrics;
use crate::parts::Parts;

/// Most tasks that wait to be put back into the backlog. The sweeper finds all others after the grace period.
const REFUSED_MAX: usize = 4096;
/// Most messages of one list that are being published concurrently.
const CONCURRENT_MAX: usize = 64;
/// Longest time for the publication of one message.
const PUBLISH_MAX: Duration = Duration::from_secs(3);
/// Pause of publications to a lane after the queue failed for it.
const PAUSE: Duration = Duration::from_secs(1);

/// Publishes tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Publisher {
    parts: Parts,
    /// Publications that no caller waits for, or that are due later.
    background: TaskTracker,
    lanes: Arc<LaneStates>,
    /// The lanes of this process' pool.
    served: Arc<BTreeSet<Lane>>,
    unreadable: UnreadableRuns,
    metrics: Metrics,
}

/// The lanes as this process knows them.
#[derive(Default)]
struct LaneStates {
    state: Mutex<LaneState>,
    /// Notified when a dispatcher has something to do.
    news: Notify,
}

/// Ordered, so that a simulation can be repeated.
#[derive(Default)]
struct LaneState {
    /// At most one for each tier and vendor.
    contended: BTreeSet<Lane>,
    /// Tasks that the store counts as published although they were not, because their lane was full or the queue failed.
    refused: Vec<(RunId, TaskRef)>,
    /// Lanes whose last publication failed, and the end of the pause.
    paused: BTreeMap<Lane, Timestamp>,
}

/// The work of a dispatcher.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) contended: Vec<Lane>,
    pub(crate) refused: Vec<(RunId, TaskRef)>,
}

impl Publisher {
    pub(crate) fn new(parts: Parts, unreadable: UnreadableRuns, metrics: Metrics) -> Self {
        let served = Arc::new(Lane::plans().into_iter().chain(Lane::steps(&parts.pool)).collect());
        Self { parts, background: TaskTracker::new(), lanes: Arc::default(), served, unreadable, metrics }
    }

    /// A commit with the places where its ready tasks wait. After it is durable, the caller must [publish](Self::publish) them.
    pub(crate) fn commit(&self, after: Run, events: Vec<SequencedEvent>) -> Commit {
        let state = self.lanes.lock();
        Commit::new(after, events, |run, task| {
            let lane = Lane::of(run, task, &self.parts.pool);
            let is_contended = state.contended.contains(&lane);
            Place { lane, publish_by: if is_contended { PublishBy::Dispatcher } else { PublishBy::Writer } }
        })
    }

    /// Publishes a task that the commit made ready, now or at `not_before`, unless it was left to the backlog.
    pub(crate) async fn publish(&self, commit: &Commit, task: TaskRef, not_before: Timestamp) {
        let Some(Place { lane, publish_by: PublishBy::Writer }) = commit.place(task) else {
            return;
        };
        let (run, lane) = (commit.after.id(), lane.clone());
        // The lane became contended after the commit was built.
        if self.lanes.lock().contended.contains(&lane) {
            return self.lanes.note_refused(lane, run, task);
        }
        let wait = not_before.since(self.parts.clock.now());
        if wait == Duration::ZERO {
            self.publish_now(ReadyTask { run, task, lane }).await;
        } else {
            let publisher = self.clone();
            self.background.spawn(async move {
                publisher.parts.clock.sleep(wait).await;
                publisher.publish_now(ReadyTask { run, task, lane }).await;
            });
        }
    }

    /// Publishes the first tasks of a run in the background, because accepting a run does not wait for the queue.
    pub(crate) fn publish_in_background(&self, commit: Commit, ready: Vec<(TaskRef, Timestamp)>) {
        if ready.is_empty() {
            return;
        }
        let publisher = self.clone();
        self.background.spawn(async move {
            for (task, not_before) in ready {
                publisher.publish(&commit, task, not_before).await;
            }
        });
    }

    /// Leaves a task that the commit made ready to the dispatcher, which publishes it from the backlog.
    pub(crate) fn leave(&self, commit: &Commit, task: TaskRef) {
        if let Some(Place { lane, publish_by: PublishBy::Writer }) = commit.place(task) {
            self.lanes.note_refused(lane.clone(), commit.after.id(), task);
        }
    }

    /// Whether ready tasks wait for capacity in the lane, as far as this process knows. If so, a process with a free slot must take
    /// the lane's next message, and no task may overtake it.
    pub(crate) fn is_contended(&self, lane: &Lane) -> bool {
        self.lanes.lock().contended.contains(lane)
    }

    /// Publishes a task that counts as published. If its lane is full or the queue fails, it goes back into the backlog, and a
    /// dispatcher publishes it as soon as the queue accepts messages again.
    async fn publish_now(&self, ready: ReadyTask) {
        let ReadyTask { run, task, lane } = ready;
        if !self.lanes.may_publish(&lane, self.parts.clock.now()) {
            return self.lanes.note_refused(lane, run, task);
        }
        let message = TaskMessage::new(run, task);
        let published = tokio::select! {
            biased;
            published = self.parts.queue.publish(&lane, message) => published,
            () = self.parts.clock.sleep(PUBLISH_MAX) => Err(QueueError::Unavailable("no answer".into())),
        };
        self.metrics.lanes().published(&lane, &published);
        match published {
            Ok(_) => self.lanes.note_answer(&lane),
            Err(QueueError::Full { .. }) => {
                debug!(%run, %task, %lane, "the lane is full; the task waits in the store");
                self.lanes.note_answer(&lane);
                self.metrics.lanes().contended(&lane);
                self.lanes.note_refused(lane, run, task);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                if self.lanes.pause(&lane, self.parts.clock.now().after(PAUSE)) {
                    warn!(%lane, error, "the queue failed; ready tasks wait in the store");
                }
                self.metrics.lanes().contended(&lane);
                self.lanes.note_refused(lane, run, task);
            }
        }
    }

    /// Publishes tasks that count as published, in their order. If a task's lane belongs to a vendor that has left the pool, it is
    /// published to the lane where it would wait now, because nobody serves the old lane.
    pub(crate) async fn publish_all(&self, ready: Vec<ReadyTask>) -> Result<(), StoreError> {
        let (served, stray): (Vec<_>, Vec<_>) = ready.into_iter().partition(|ready| self.serves(&ready.lane));
        self.publish_each(served).await;
        let mut ids: Vec<_> = stray.iter().map(|ready| ready.run).collect();
        ids.sort_unstable();
        ids.dedup();
        let (runs, _) = if ids.is_empty() { Default::default() } else { self.unreadable.load(&ids).await? };
        let moved = stray.into_iter().filter_map(|ReadyTask { run, task, .. }| {
            let run = runs.iter().find(|found| found.id() == run)?;
            Some(ReadyTask { run: run.id(), task, lane: Lane::of(run, task, &self.parts.pool) })
        });
        self.publish_each(moved.collect()).await;
        Ok(())
    }

    async fn publish_each(&self, ready: Vec<ReadyTask>) {
        let publish = |ready| self.publish_now(ready);
        futures::stream::iter(ready).for_each_concurrent(CONCURRENT_MAX, publish).await;
    }

    /// Whether processes with this process' pool take messages from the lane.
    pub(crate) fn serves(&self, lane: &Lane) -> bool {
        self.served.contains(lane)
    }

    /// Notes the lanes with a backlog; the others have none.
    pub(crate) fn note_backlogs(&self, backlogs: &[Lane]) {
        let now: BTreeSet<_> = backlogs.iter().cloned().collect();
        let before = std::mem::replace(&mut self.lanes.lock().contended, now.clone());
        for lane in before.difference(&now) {
            self.metrics.lanes().emptied(lane);
        }
        for lane in &now {
            self.metrics.lanes().contended(lane);
        }
        if !now.is_empty() {
            self.lanes.news.notify_one();
        }
    }

    /// Notes that the backlog of a lane is empty.
    pub(crate) fn note_emptied(&self, lane: &Lane) {
        if self.lanes.lock().contended.remove(lane) {
            self.metrics.lanes().emptied(lane);
        }
    }

    /// The work for a dispatcher now.
    pub(crate) fn todo_now(&self) -> Todo {
        self.lanes.todo().unwrap_or_default()
    }

    /// Waits until a dispatcher has work.
    pub(crate) async fn todo(&self) -> Todo {
        loop {
            // The subscription precedes the read of the state, so that no notification is missed in between.
            let news = self.lanes.news.notified();
            if let Some(todo) = self.lanes.todo() {
                return todo;
            }
            news.await;
        }
    }
}

impl LaneStates {
    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to publish in the lane: its last publication succeeded, or it is time for one task to try again.
    fn may_publish(&self, lane: &Lane, now: Timestamp) -> bool {
        match self.lock().paused.get_mut(lane) {
            None => true,
            Some(until) if now < *until => false,
            Some(until) => {
                *until = now.after(PUBLISH_MAX + PAUSE);
                true
            }
        }
    }

    /// Notes that the queue failed for the lane. Returns whether that is new.
    fn pause(&self, lane: &Lane, until: Timestamp) -> bool {
        self.lock().paused.insert(lane.clone(), until).is_none()
    }

    /// Notes that the queue answered for the lane.
    fn note_answer(&self, lane: &Lane) {
        self.lock().paused.remove(lane);
    }

    fn todo(&self) -> Option<Todo> {
        let mut state = self.lock();
        let todo = Todo {
            contended: state.contended.iter().cloned().collect(),
            refused: std::mem::take(&mut state.refused),
        };
        (!todo.contended.is_empty() || !todo.refused.is_empty()).then_some(todo)
    }

    fn note_refused(&self, lane: Lane, run: RunId, task: TaskRef) {
        let mut state = self.lock();
        state.contended.insert(lane);
        if state.refused.len() < REFUSED_MAX {
            state.refused.push((run, task));
        }
        drop(state);
        self.news.notify_one();
    }
}
