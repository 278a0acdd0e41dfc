//! The dispatcher refills contended lanes: it takes as many tasks from the backlog in the store as the lane has capacity for.
//!
//! One process dispatches a lane at a time, under a lease of the store: so the work does not grow with the number of processes.
//! All others leave their ready tasks in the backlog while the lane is contended. The lease only saves work: two dispatchers of one
//! lane share its tasks, because the store hands each task to one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use podium_domain::ids::ClaimId;
use podium_domain::time::Timestamp;
use podium_ports::queue::{Lane, QueueError};
use podium_ports::store::{ReadyTask, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::context::Context;
use crate::lanes::publisher::Todo;

/// Length of a lease, in sweeps. It is requested once a sweep. After the death of its holder, another process has the lane after at
/// most four sweeps, 2 s.
const LEASE_SWEEPS: u32 = 3;
/// How long a process whose pool lacks the lane's vendor waits for a process whose pool has it. Then it takes the lane for one lease.
const STRAY_WAIT: Duration = Duration::from_secs(10);

/// Dispatches the lanes whose lease this process holds.
pub(crate) struct Dispatcher {
    context: Context,
    /// Its id in leases.
    holder: ClaimId,
    /// The lanes that it dispatches, and when each last had a backlog.
    held: BTreeMap<Lane, Timestamp>,
    /// The lanes of the last request for leases, and its time.
    asked: (BTreeSet<Lane>, Timestamp),
    /// Lanes that other processes should take, because this process' pool lacks them or its queue failed, with the time at which this
    /// process requests each.
    strays: BTreeMap<Lane, Timestamp>,
}

/// A lane was not refilled.
#[derive(Debug, thiserror::Error)]
enum DispatchError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Dispatcher {
    pub(crate) fn new(context: Context) -> Self {
        let holder = context.parts().ids.claim_id();
        let (held, strays) = (BTreeMap::new(), BTreeMap::new());
        Self { context, holder, held, asked: (BTreeSet::new(), Timestamp::default()), strays }
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
        let publisher = self.context.publisher();
        let todo = if self.held.is_empty() { publisher.todo().await } else { publisher.todo_now() };
        self.context.clock_is_right().await;
        let is_done = self.dispatch(todo).await;
        let options = self.context.options();
        // If the queue or the store does not answer, the pause may be longer.
        let pause = if is_done { options.dispatch_every } else { options.sweep_every };
        self.context.parts().clock.sleep(pause).await;
    }

    /// Returns whether all refills succeeded.
    async fn dispatch(&mut self, todo: Todo) -> bool {
        if !todo.refused.is_empty()
            && let Err(error) = self.context.parts().store.put_back(&todo.refused).await
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
        let (mut is_done, now, sweep_every) = (true, self.context.now(), self.context.options().sweep_every);
        for (lane, had_backlog) in refilled {
            match had_backlog {
                Ok(true) => drop(self.held.insert(lane, now)),
                Ok(false) => {}
                // Another process may reach the queue. It takes the lane after this lease has expired.
                Err(_) => {
                    is_done = false;
                    self.held.remove(&lane);
                    self.strays.insert(lane, now.after(sweep_every * (LEASE_SWEEPS + 2)));
                }
            }
        }
        is_done
    }

    /// Takes and extends the leases of contended lanes, at most once a sweep unless a lane is new. A lane with an empty backlog is held
    /// for a while, because other processes leave tasks in its backlog until their next sweep.
    async fn hold(&mut self, contended: Vec<Lane>) {
        let (now, sweep_every) = (self.context.now(), self.context.options().sweep_every);
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
        let held = self.context.parts().store.hold_lanes(self.holder, &lanes, now, lease).await;
        let held = held.unwrap_or_else(|error| {
            debug!(error = &error as &dyn std::error::Error, "dispatching without leases");
            lanes.clone()
        });
        self.held = held
            .into_iter()
            .map(|lane| (lane.clone(), self.held.get(&lane).copied().unwrap_or(now)))
            .collect();
    }

    /// The lanes whose leases to request. A process that has the lane's vendor in its pool and reaches the queue has precedence.
    fn wanted(&mut self, contended: Vec<Lane>, now: Timestamp) -> BTreeSet<Lane> {
        self.strays.retain(|lane, _| contended.contains(lane));
        let mut wanted: BTreeSet<_> = self.held.keys().cloned().collect();
        for lane in contended {
            let serves = self.context.publisher().serves(&lane);
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

    /// Publishes tasks of the lane's backlog, up to its capacity. Returns whether the backlog had any.
    async fn refill(&self, lane: &Lane) -> Result<bool, DispatchError> {
        let (parts, options) = (self.context.parts(), self.context.options());
        let publisher = self.context.publisher();
        let tasks_max = options.sweep_tasks_max;
        let capacity = if publisher.serves(lane) {
            let capacity = parts.queue.capacity(lane).await?;
            u32::try_from(capacity).unwrap_or(u32::MAX).min(tasks_max)
        } else {
            tasks_max
        };
        if capacity == 0 {
            return Ok(false);
        }
        let now = self.context.now();
        let taken = parts.store.take(lane, now, now.after(options.dispatch_grace), capacity).await?;
        // The backlog had fewer tasks than the capacity, so it is empty now.
        if taken.len() < capacity as usize {
            publisher.note_emptied(lane);
        }
        let had_backlog = !taken.is_empty();
        let ready = taken.into_iter().map(|(run, task)| ReadyTask { run, task, lane: lane.clone() });
        publisher.publish_all(ready.collect()).await?;
        Ok(had_backlog)
    }
}
