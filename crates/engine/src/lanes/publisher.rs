//! Publishing ready tasks. Losing a message here is harmless: the sweeper finds the task in the store.
//!
//! The queue is a shallow window on what is ready. While a lane has room, the process that commits a task publishes it at once.
//! When a lane is full, or has a backlog in the store, it is *contended*: new tasks are left to the backlog. The one process that
//! dispatches the lane takes them from there in turns of the tenants, as room comes up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use podium_domain::ids::RunId;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, QueueError, TaskMessage};
use podium_ports::store::{Commit, Place, ReadyTask, StoreError, Telling};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::metrics::Metrics;
use crate::options::Parts;
use crate::upkeep::unreadable::Unreadable;

/// Most tasks that wait to be put back into the backlog. The sweeper finds what is beyond, after the grace.
const REFUSED_MAX: usize = 4096;
/// Most messages that are on their way at the same time out of one list.
const AT_ONCE_MAX: usize = 64;
/// Longest time for one message.
const PUBLISH_MAX: Duration = Duration::from_secs(3);
/// How long nothing is published to a lane after the queue failed there.
const PAUSE: Duration = Duration::from_secs(1);

/// Publishes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatch {
    parts: Parts,
    /// What is published later, or while nobody waits for it.
    in_passing: TaskTracker,
    windows: Arc<Windows>,
    /// The lanes that anybody with this process' pool takes messages from.
    served: Arc<BTreeSet<Lane>>,
    unreadable: Unreadable,
    metrics: Metrics,
}

/// What this process knows of the lanes.
#[derive(Default)]
struct Windows {
    state: Mutex<WindowsState>,
    /// Told when there is something to do for a dispatcher.
    news: Notify,
}

/// Ordered, so that a simulation can be repeated.
#[derive(Default)]
struct WindowsState {
    /// As many as there are tiers and vendors.
    contended: BTreeSet<Lane>,
    /// Tasks that count as published and were not: their lane had no room, or the queue failed.
    refused: Vec<(RunId, TaskRef)>,
    /// Lanes whose queue failed last, and until when it is not asked.
    paused: BTreeMap<Lane, Timestamp>,
}

/// What a dispatcher has to do.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) contended: Vec<Lane>,
    pub(crate) refused: Vec<(RunId, TaskRef)>,
}

impl Dispatch {
    pub(crate) fn new(parts: Parts, unreadable: Unreadable, metrics: Metrics) -> Self {
        let served = Arc::new(Lane::plans().into_iter().chain(Lane::steps(&parts.pool)).collect());
        Self { parts, in_passing: TaskTracker::new(), windows: Arc::default(), served, unreadable, metrics }
    }

    /// A commit whose tasks go where this process would have them wait. What it readies is to be
    /// [published](Self::publish) once it is durable, except the tasks in `kept`: their messages are in the queue already, and stay.
    pub(crate) fn commit(&self, after: Run, events: Vec<SequencedEvent>, kept: &[TaskRef]) -> Commit {
        let state = self.windows.lock();
        Commit::new(after, events, |run, task| {
            let lane = Lane::of(run, task, &self.parts.pool);
            let is_contended = state.contended.contains(&lane) && !kept.contains(&task);
            Place { lane, telling: if is_contended { Telling::FromBacklog } else { Telling::AtOnce } }
        })
    }

    /// Publishes a task that the commit made ready, now or at `not_before`, unless it was left to the backlog.
    pub(crate) async fn publish(&self, commit: &Commit, task: TaskRef, not_before: Timestamp) {
        let Some(Place { lane, telling: Telling::AtOnce }) = commit.place(task) else {
            return;
        };
        let (run, lane) = (commit.after.id(), lane.clone());
        // It became so since the commit was made.
        if self.windows.lock().contended.contains(&lane) {
            return self.windows.note_refused(lane, (run, task));
        }
        let wait = not_before.since(self.parts.clock.now());
        if wait == Duration::ZERO {
            self.tell(ReadyTask { run, task, lane }).await;
        } else {
            let dispatch = self.clone();
            self.in_passing.spawn(async move {
                dispatch.parts.clock.sleep(wait).await;
                dispatch.tell(ReadyTask { run, task, lane }).await;
            });
        }
    }

    /// Publishes what a run begins with, while its caller goes on: accepting a run does not wait for the queue.
    pub(crate) fn publish_in_passing(&self, commit: Commit, ready: Vec<(TaskRef, Timestamp)>) {
        if ready.is_empty() {
            return;
        }
        let dispatch = self.clone();
        self.in_passing.spawn(async move {
            for (task, not_before) in ready {
                dispatch.publish(&commit, task, not_before).await;
            }
        });
    }

    /// Leaves a task that the commit made ready to the dispatcher, which publishes it out of the backlog.
    pub(crate) fn leave(&self, commit: &Commit, task: TaskRef) {
        if let Some(Place { lane, telling: Telling::AtOnce }) = commit.place(task) {
            self.windows.note_refused(lane.clone(), (commit.after.id(), task));
        }
    }

    /// Whether ready tasks wait for room in the lane, as far as is known here. Then whoever has a free slot takes what is next in
    /// the lane, and nothing past it.
    pub(crate) fn is_contended(&self, lane: &Lane) -> bool {
        self.windows.lock().contended.contains(lane)
    }

    /// Publishes a task that counts as published. It goes back into the backlog if its lane has no room or the queue fails: the
    /// dispatchers publish it as soon as the queue takes messages again.
    async fn tell(&self, ready: ReadyTask) {
        let ReadyTask { run, task, lane } = ready;
        if !self.windows.may_ask(&lane, self.parts.clock.now()) {
            return self.windows.note_refused(lane, (run, task));
        }
        let message = TaskMessage::new(run, task);
        let published = tokio::select! {
            biased;
            published = self.parts.queue.publish(&lane, message) => published,
            () = self.parts.clock.sleep(PUBLISH_MAX) => Err(QueueError::Unavailable("no answer".into())),
        };
        self.metrics.lanes().published(&lane, &published);
        match published {
            Ok(_) => self.windows.note_answer(&lane),
            Err(QueueError::Full { .. }) => {
                debug!(%run, %task, %lane, "the lane is full: the task waits in the store");
                self.windows.note_answer(&lane);
                self.metrics.lanes().contended(&lane);
                self.windows.note_refused(lane, (run, task));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                if self.windows.pause(&lane, self.parts.clock.now().after(PAUSE)) {
                    warn!(%lane, error, "the queue fails: ready tasks wait in the store");
                }
                self.metrics.lanes().contended(&lane);
                self.windows.note_refused(lane, (run, task));
            }
        }
    }

    /// Publishes tasks that count as published. They are sent in their order. Tasks in a lane whose vendor has left the pool,
    /// which nobody serves, are published where they would wait now.
    pub(crate) async fn tell_all(&self, ready: Vec<ReadyTask>) -> Result<(), StoreError> {
        let (served, stray): (Vec<_>, Vec<_>) = ready.into_iter().partition(|ready| self.serves(&ready.lane));
        self.tell_each(served).await;
        let mut ids: Vec<_> = stray.iter().map(|ready| ready.run).collect();
        ids.sort_unstable();
        ids.dedup();
        let (runs, _) = if ids.is_empty() { Default::default() } else { self.unreadable.load(&ids).await? };
        let moved = stray.into_iter().filter_map(|ReadyTask { run, task, .. }| {
            let run = runs.iter().find(|found| found.id() == run)?;
            Some(ReadyTask { run: run.id(), task, lane: Lane::of(run, task, &self.parts.pool) })
        });
        self.tell_each(moved.collect()).await;
        Ok(())
    }

    async fn tell_each(&self, ready: Vec<ReadyTask>) {
        let tell = |ready| self.tell(ready);
        futures::stream::iter(ready).for_each_concurrent(AT_ONCE_MAX, tell).await;
    }

    /// Whether anybody with this process' pool takes messages from the lane.
    pub(crate) fn serves(&self, lane: &Lane) -> bool {
        self.served.contains(lane)
    }

    /// These lanes have a backlog, and no others.
    pub(crate) fn note_backlogs(&self, backlogs: &[Lane]) {
        let now: BTreeSet<_> = backlogs.iter().cloned().collect();
        let before = std::mem::replace(&mut self.windows.lock().contended, now.clone());
        for lane in before.difference(&now) {
            self.metrics.lanes().emptied(lane);
        }
        for lane in &now {
            self.metrics.lanes().contended(lane);
        }
        if !now.is_empty() {
            self.windows.news.notify_one();
        }
    }

    /// The backlog of a lane is empty.
    pub(crate) fn note_emptied(&self, lane: &Lane) {
        if self.windows.lock().contended.remove(lane) {
            self.metrics.lanes().emptied(lane);
        }
    }

    /// What there is to do for a dispatcher now.
    pub(crate) fn todo_now(&self) -> Todo {
        self.windows.todo().unwrap_or_default()
    }

    /// Waits until there is something to do for a dispatcher.
    pub(crate) async fn todo(&self) -> Todo {
        loop {
            // Listening before looking, else news in between would be missed.
            let news = self.windows.news.notified();
            if let Some(todo) = self.windows.todo() {
                return todo;
            }
            news.await;
        }
    }
}

impl Windows {
    fn lock(&self) -> MutexGuard<'_, WindowsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lane's queue may be asked: it did not fail last, or it is time that one task tries again.
    fn may_ask(&self, lane: &Lane, now: Timestamp) -> bool {
        match self.lock().paused.get_mut(lane) {
            None => true,
            Some(until) if now < *until => false,
            Some(until) => {
                *until = now.after(PUBLISH_MAX + PAUSE);
                true
            }
        }
    }

    /// The lane's queue failed. Returns whether it did not before.
    fn pause(&self, lane: &Lane, until: Timestamp) -> bool {
        self.lock().paused.insert(lane.clone(), until).is_none()
    }

    /// The lane's queue answered.
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

    fn note_refused(&self, lane: Lane, task: (RunId, TaskRef)) {
        let mut state = self.lock();
        state.contended.insert(lane);
        if state.refused.len() < REFUSED_MAX {
            state.refused.push(task);
        }
        drop(state);
        self.news.notify_one();
    }
}
