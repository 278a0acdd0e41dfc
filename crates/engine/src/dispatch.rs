//! Publishing ready tasks. Losing a message here is harmless: the sweeper finds the task in the store.
//!
//! The queue is a shallow window on what is ready. While a lane has room, whoever commits a task publishes it at once. When a
//! lane is full, or has a backlog in the store, it is *contended*: new tasks are left to the backlog, from which the
//! dispatchers take in turns of the tenants, as room comes up.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, QueueError, TaskMessage};
use podium_ports::store::{Commit, Place, ReadyTask, StoreError, Telling};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::metrics::Metrics;
use crate::parts::Parts;

/// Most tasks that wait to be put back into the backlog. The sweeper finds what is beyond, after the grace.
const REFUSED_MAX: usize = 4096;

/// Publishes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatch {
    parts: Parts,
    delayed: TaskTracker,
    windows: Arc<Windows>,
    /// The lanes that anybody with this process' pool takes messages from.
    served: Arc<BTreeSet<Lane>>,
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
    /// Tasks that count as told and for which their lane had no room.
    refused: Vec<(RunId, TaskRef)>,
}

/// What a dispatcher has to do.
pub(crate) struct Todo {
    pub(crate) contended: Vec<Lane>,
    pub(crate) refused: Vec<(RunId, TaskRef)>,
}

impl Dispatch {
    pub(crate) fn new(parts: Parts, metrics: Metrics) -> Self {
        let served = Arc::new(Lane::plans().into_iter().chain(Lane::steps(&parts.pool)).collect());
        Self { parts, delayed: TaskTracker::new(), windows: Arc::default(), served, metrics }
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
            self.delayed.spawn(async move {
                dispatch.parts.clock.sleep(wait).await;
                dispatch.tell(ReadyTask { run, task, lane }).await;
            });
        }
    }

    /// Whether ready tasks wait for room in the lane, as far as is known here. Then whoever has a free slot takes what is next in
    /// the lane, and nothing past it.
    pub(crate) fn is_contended(&self, lane: &Lane) -> bool {
        self.windows.lock().contended.contains(lane)
    }

    /// Publishes a task that counts as told. What its lane has no room for goes back into the backlog.
    async fn tell(&self, ready: ReadyTask) {
        let ReadyTask { run, task, lane } = ready;
        let published = self.parts.queue.publish(&lane, TaskMessage::new(run, task)).await;
        self.metrics.lanes().published(&lane, &published);
        match published {
            Ok(_) => {}
            Err(QueueError::Full { .. }) => {
                debug!(%run, %task, %lane, "the lane is full: the task waits in the store");
                self.metrics.lanes().contended(&lane);
                self.windows.note_refused(lane, (run, task));
            }
            Err(error) => {
                warn!(%lane, error = &error as &dyn std::error::Error, "a message was not published; the sweeper will");
            }
        }
    }

    /// Publishes tasks that count as told, in their order. Nobody serves a lane whose vendor has left the pool: tasks that wait
    /// in such a one are told where they would wait now.
    pub(crate) async fn tell_all(&self, ready: Vec<ReadyTask>) -> Result<(), StoreError> {
        let (served, stray): (Vec<_>, Vec<_>) = ready.into_iter().partition(|ready| self.serves(&ready.lane));
        for ready in served {
            self.tell(ready).await;
        }
        let mut ids: Vec<_> = stray.iter().map(|ready| ready.run).collect();
        ids.sort_unstable();
        ids.dedup();
        let (runs, _) = if ids.is_empty() { Default::default() } else { self.parts.load_sound(&ids).await? };
        for ReadyTask { run, task, .. } in stray {
            if let Some(run) = runs.iter().find(|found| found.id() == run) {
                let lane = Lane::of(run, task, &self.parts.pool);
                self.tell(ReadyTask { run: run.id(), task, lane }).await;
            }
        }
        Ok(())
    }

    /// Whether anybody with this process' pool takes messages from the lane.
    pub(crate) fn serves(&self, lane: &Lane) -> bool {
        self.served.contains(lane)
    }

    /// These lanes have a backlog. Whether others still have one their refilling shows.
    pub(crate) fn note_backlogs(&self, backlogs: &[Lane]) {
        if !backlogs.is_empty() {
            for lane in backlogs {
                self.metrics.lanes().contended(lane);
            }
            self.windows.lock().contended.extend(backlogs.iter().cloned());
            self.windows.news.notify_one();
        }
    }

    /// The backlog of a lane is empty.
    pub(crate) fn note_emptied(&self, lane: &Lane) {
        if self.windows.lock().contended.remove(lane) {
            self.metrics.lanes().emptied(lane);
        }
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
