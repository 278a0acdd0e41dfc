//! The dispatcher: where a lane is contended, it takes from the backlog in the store what the lane has room for.
//!
//! One process dispatches a lane at a time, under a lease of the store: so the work does not grow with the number of processes.
//! All others leave what they make ready to the backlog while the lane is contended. The lease only saves work: two dispatchers of
//! one lane share its tasks, since the store hands each task to one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use podium_domain::ids::ClaimId;
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, QueueError};
use podium_ports::store::{ReadyTask, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::engine::Engine;
use crate::lanes::publisher::Todo;

/// A lease lasts for so many sweeps, and is asked for once in a sweep's time: after the death of its holder, another process has the
/// lane after at most four of them, 2 s.
const LEASE_SWEEPS: u32 = 3;
/// A process whose pool lacks the lane's vendor waits for so long for one that has it, and then takes the lane for one lease.
const STRAY_WAIT: Duration = Duration::from_secs(10);

/// Dispatches the lanes that are this process' turn.
pub(crate) struct Dispatcher {
    engine: Engine,
    /// Its name in leases.
    holder: ClaimId,
    /// The lanes that it dispatches, and when each last had a backlog.
    held: BTreeMap<Lane, Timestamp>,
    /// The lanes that it asked for last, and when.
    asked: (BTreeSet<Lane>, Timestamp),
    /// Lanes that are for others first, as its pool lacks them or its queue failed, and when it asks for each.
    strays: BTreeMap<Lane, Timestamp>,
}

/// Why a lane was not refilled.
#[derive(Debug, thiserror::Error)]
enum DispatchError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Dispatcher {
    pub(crate) fn new(engine: Engine) -> Self {
        let holder = engine.parts().ids.claim_id();
        let (held, strays) = (BTreeMap::new(), BTreeMap::new());
        Self { engine, holder, held, asked: (BTreeSet::new(), Timestamp::default()), strays }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.turn() => {}
            }
        }
    }

    async fn turn(&mut self) {
        let dispatch = self.engine.dispatch();
        let todo = if self.held.is_empty() { dispatch.todo().await } else { dispatch.todo_now() };
        self.engine.clock_is_right().await;
        let is_done = self.dispatch(todo).await;
        let options = self.engine.options();
        // Where the queue or the store does not answer, there is no hurry.
        let pause = if is_done { options.dispatch_every } else { options.sweep_every };
        self.engine.parts().clock.sleep(pause).await;
    }

    /// Whether it could be done.
    async fn dispatch(&mut self, todo: Todo) -> bool {
        if !todo.refused.is_empty()
            && let Err(error) = self.engine.parts().store.put_back(&todo.refused).await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "tasks were not put back into the backlog; the sweeper publishes them"
            );
        }
        self.hold(todo.contended).await;
        let this = &*self;
        let refills = this.held.keys().map(|lane| async move {
            let refilled = this.refill(lane).await;
            if let Err(error) = &refilled {
                warn!(lane = %lane, error = error as &dyn std::error::Error, "could not dispatch");
            }
            (lane.clone(), refilled)
        });
        let refilled = futures::future::join_all(refills).await;
        let (mut is_done, now, sweep_every) = (true, self.engine.now(), self.engine.options().sweep_every);
        for (lane, had_backlog) in refilled {
            match had_backlog {
                Ok(true) => drop(self.held.insert(lane, now)),
                Ok(false) => {}
                // Another process may reach the queue, and takes the lane when this lease has run out.
                Err(_) => {
                    is_done = false;
                    self.held.remove(&lane);
                    self.strays.insert(lane, now.after(sweep_every * (LEASE_SWEEPS + 2)));
                }
            }
        }
        is_done
    }

    /// Takes and extends the leases of contended lanes, at most once in a sweep's time unless a lane is new. A lane that was emptied
    /// is held for a while: others leave tasks to its backlog until their next sweep.
    async fn hold(&mut self, contended: Vec<Lane>) {
        let (now, sweep_every) = (self.engine.now(), self.engine.options().sweep_every);
        self.held.retain(|lane, backlog_at| {
            contended.contains(lane) || now.since(*backlog_at) < sweep_every * LEASE_SWEEPS
        });
        let wanted = self.wanted(contended, now);
        let (asked, asked_at) = &self.asked;
        if wanted.is_subset(asked) && now.since(*asked_at) < sweep_every {
            return;
        }
        if wanted.is_empty() {
            return self.held.clear();
        }
        let lanes: Vec<_> = wanted.iter().cloned().collect();
        self.asked = (wanted, now);
        let lease = sweep_every * LEASE_SWEEPS;
        let held = self.engine.parts().store.hold_lanes(self.holder, &lanes, now, lease).await;
        let held = held.unwrap_or_else(|error| {
            debug!(error = &error as &dyn std::error::Error, "dispatching without leases");
            lanes.clone()
        });
        self.held = held
            .into_iter()
            .map(|lane| (lane.clone(), self.held.get(&lane).copied().unwrap_or(now)))
            .collect();
    }

    /// The lanes to ask for. A process that has the lane's vendor in its pool and reaches the queue comes first.
    fn wanted(&mut self, contended: Vec<Lane>, now: Timestamp) -> BTreeSet<Lane> {
        self.strays.retain(|lane, _| contended.contains(lane));
        let mut wanted: BTreeSet<_> = self.held.keys().cloned().collect();
        for lane in contended {
            let serves = self.engine.dispatch().serves(&lane);
            if !serves {
                self.strays.entry(lane.clone()).or_insert(now.after(STRAY_WAIT));
            }
            match self.strays.get_mut(&lane) {
                Some(ask_at) if now < *ask_at => drop(wanted.remove(&lane)),
                Some(_) if serves => {
                    self.strays.remove(&lane);
                    wanted.insert(lane);
                }
                Some(ask_at) => {
                    *ask_at = now.after(STRAY_WAIT);
                    wanted.insert(lane);
                }
                None => drop(wanted.insert(lane)),
            }
        }
        wanted
    }

    /// Whether anything was taken from the lane's backlog.
    async fn refill(&self, lane: &Lane) -> Result<bool, DispatchError> {
        let (parts, options, dispatch) = (self.engine.parts(), self.engine.options(), self.engine.dispatch());
        let tasks_max = options.sweep_tasks_max;
        let room = if dispatch.serves(lane) {
            let room = parts.queue.room(lane).await?;
            u32::try_from(room).unwrap_or(u32::MAX).min(tasks_max)
        } else {
            tasks_max
        };
        if room == 0 {
            return Ok(false);
        }
        let now = self.engine.now();
        let taken = parts.store.take(lane, now, now.after(options.dispatch_grace), room).await?;
        // Fewer than there is room for: that was all.
        if taken.len() < room as usize {
            dispatch.note_emptied(lane);
        }
        let had_backlog = !taken.is_empty();
        let ready = taken.into_iter().map(|(run, task)| ReadyTask { run, task, lane: lane.clone() });
        dispatch.tell_all(ready.collect()).await?;
        Ok(had_backlog)
    }
}
