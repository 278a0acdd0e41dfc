//! The board of tasks: which of them wait, which are claimed, and which need attention.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RunId};
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;

use super::StoreError;
use crate::queue::Lane;

/// Finds the tasks and runs that need work, and shares them among processes. All of it follows from the log of runs, except when a
/// task was published and the leases of processes.
#[async_trait]
pub trait TaskBoard: Send + Sync {
    /// Extends the lease of a process to `span` from now, or gives it one. All claims of a process depend on this one lease.
    /// Returns whether the process had a lease until now. If not, its claims may have been released. The time is the store's own if
    /// it has a clock.
    async fn extend_lease(
        &self,
        process: ProcessId,
        now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError>;

    /// Returns which of the claims hold their tasks. Reads only.
    async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError>;

    /// Takes claims away from their processes: from now on they count as expired, whatever lease their process has. Claims that do
    /// not hold their tasks do not change. It writes no event, so a process may disown a claim on a run that it cannot read.
    ///
    /// It waits for no other transaction. Returns `false` for each claim whose row is locked; the caller must repeat these.
    async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError>;

    /// The tasks and runs that the sweeper must handle at `now`, at most `limit` of each kind, without the runs in `except`. Returned
    /// ready tasks are not returned again before `again_at`, so that several sweepers share the work. For a task that has been ready
    /// for longer than `again_at - now`, that pause is as long as it has been ready, up to eight times that span ([`Again`]), so that
    /// a sweep does not publish a long lane again.
    ///
    /// A claim has expired if its process has no lease any more. A claim of an earlier version has its own lease. A store with
    /// a clock reports a lease or a deadline only if that clock has reached it too.
    async fn due(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError>;

    /// Ended runs that still reserve money of a budget (see [`Run::is_unsettled`](podium_domain::run::Run::is_unsettled)) and ended
    /// at `ended_by` or before: at most `limit`, ordered by id, only those after `after` if it is given.
    async fn unsettled(
        &self,
        ended_by: Timestamp,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunId>, StoreError>;

    /// Removes up to `limit` claimable tasks from a lane's backlog at `now` and returns them in the order to publish. No other
    /// dispatcher receives them, and they count as published until `again_at`.
    ///
    /// It is fair over tenants for any number of callers. The next task is that of the tenant with the fewest outstanding tasks in
    /// the lane (published, running or just taken); among equals the oldest.
    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError>;

    /// Leases to `holder` those of `lanes` that no other process dispatches, for `span` from now, and extends its own leases.
    /// Returns its lanes. The time is the store's own if it has a clock.
    ///
    /// The lease only saves work: two processes that dispatch one lane share its tasks. So a store that one process uses may lease
    /// it every lane.
    async fn hold_lanes(
        &self,
        holder: ClaimId,
        lanes: &[Lane],
        now: Timestamp,
        span: Duration,
    ) -> Result<Vec<Lane>, StoreError>;

    /// Requests the turn to sweep: `holder` has it for `span` from now on, unless another process has it. The time is the store's own
    /// if it has a clock.
    ///
    /// The turn only saves work: any number of processes may sweep at once. So a store for one process may always grant it.
    async fn hold_sweep(&self, holder: ClaimId, now: Timestamp, span: Duration) -> Result<Turn, StoreError>;

    /// Returns tasks to the backlogs of their lanes, because their messages were not published after all. Tasks that are no longer
    /// ready are skipped.
    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError>;

    /// The lanes with open tasks, by name. It reads every open task, so it is for metrics and operators, not for work.
    async fn lane_loads(&self) -> Result<Vec<LaneLoad>, StoreError>;
}

/// The open tasks of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneLoad {
    /// The name of the lane; a newer version may know lanes that this one does not.
    pub lane: String,
    /// Ready tasks that wait in the store.
    pub backlog: u64,
    /// Ready tasks with a message in the queue.
    pub published: u64,
    /// Tasks that processes work on.
    pub running: u64,
    /// Since when the oldest ready task could be claimed; `None` without one.
    pub oldest: Option<Timestamp>,
}

/// How often the wait for a published task doubles while nobody claims the task.
const GRACE_DOUBLINGS_MAX: u32 = 3;

/// When the message of a published, unclaimed task counts as lost: the longer the task has been ready, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The earliest moment.
    pub at: Timestamp,
    from: Timestamp,
    most: Duration,
}

impl Again {
    /// For a task that is published at `now` and must not be published again before `at`.
    pub fn new(now: Timestamp, at: Timestamp) -> Self {
        let grace = at.since(now);
        // The sweep of a takeover publishes everything at once, with `now` and `at` at the latest time, so nothing is added then.
        let from = if grace.is_zero() { Timestamp::default() } else { now };
        Self { at, from, most: grace.saturating_mul(1 << GRACE_DOUBLINGS_MAX) }
    }

    /// The moment for a task that became ready at `ready_at`: the wait doubles each time, up to a bound.
    pub fn of(self, ready_at: Timestamp) -> Timestamp {
        self.at.max(self.from.after(self.from.since(ready_at).min(self.most)))
    }

    /// The inputs of [`Self::of`] for an SQL statement: the result is the greater of `at` and `from + min(from - ready_at, most)`.
    pub fn parts(self) -> AgainParts {
        let most_ms = u64::try_from(self.most.as_millis()).unwrap_or(u64::MAX);
        // Bounded, so that no sum of the two overflows in a statement.
        AgainParts {
            at_ms: self.at.unix_ms(),
            from_ms: self.from.unix_ms().min(u64::MAX >> 3),
            most_ms: most_ms.min(u64::MAX >> 3),
        }
    }
}

/// The inputs of an SQL statement that computes [`Again::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgainParts {
    /// The earliest moment.
    pub at_ms: u64,
    /// The moment from which a task's age counts.
    pub from_ms: u64,
    /// Most that the age adds.
    pub most_ms: u64,
}

/// The answer to a request for the turn to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The requesting process sweeps.
    Own,
    /// Another process sweeps.
    Others {
        /// The lanes with a backlog, in the order of their names.
        backlogs: Vec<Lane>,
    },
}

/// A claim on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimRef {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
    /// The claim that the caller believes holds the task.
    pub claim: ClaimId,
}

/// The tasks and runs that the sweeper must handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Published tasks that nobody claimed in time; their messages may be lost and are published again. Lanes that this version does
    /// not know are left out, as in `backlogs`.
    pub ready: Vec<ReadyTask>,
    /// Lanes with unpublished tasks, including ones that may not be claimed yet.
    pub backlogs: Vec<Lane>,
    /// Claims whose process has no lease any more.
    pub expired: Vec<ClaimRef>,
    /// Active runs whose deadline passed.
    pub overdue: Vec<RunId>,
}

/// A ready task with its lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyTask {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
    /// The lane that it was committed with.
    pub lane: Lane,
}
