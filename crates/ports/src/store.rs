//! The store of runs, the only authoritative state.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::{ClaimId, ProcessId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::rating::Rating;
use podium_domain::run::{Booking, IllegalEvent, Run, SequencedEvent, Task, TaskRef};
use podium_domain::time::Timestamp;

use crate::BoxError;
use crate::queue::Lane;

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
        // The sweep of a takeover publishes everything at once, with `now` and `at` at the end of time: nothing is added then.
        let from = if grace.is_zero() { Timestamp::default() } else { now };
        Self { at, from, most: grace.saturating_mul(1 << GRACE_DOUBLINGS_MAX) }
    }

    /// The moment for a task that became ready at `ready_at`: the wait doubles each time, up to a bound.
    pub fn of(self, ready_at: Timestamp) -> Timestamp {
        self.at.max(self.from.after(self.from.since(ready_at).min(self.most)))
    }

    /// The inputs of [`Self::of`] for an SQL statement: the result is the greater of `at` and `from + min(from - ready_at, most)`,
    /// all in milliseconds.
    pub fn parts_ms(self) -> (u64, u64, u64) {
        let most = u64::try_from(self.most.as_millis()).unwrap_or(u64::MAX);
        // Bounded, so that no sum of the two overflows in a statement.
        (self.at.unix_ms(), self.from.unix_ms().min(u64::MAX >> 3), most.min(u64::MAX >> 3))
    }
}

/// Stores the events of runs, and finds tasks and runs that need work.
///
/// Every write is idempotent or guarded by a version, so a caller that lost the reply can repeat it.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Creates runs, each from its first events. Before: none of these ids exists. After: each run is durable; or another run of the
    /// same tenant and request id existed, and nothing of the new one is stored.
    async fn create(&self, runs: &[Commit]) -> Result<Vec<Created>, StoreError>;

    /// Loads runs by folding their events, in the order given; `None` for those that do not exist.
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError>;

    /// Appends each commit's events if its run still has the version that they follow. A run's first events create it, unless it
    /// exists, or another run has its tenant and request id. All commits share one transaction; a conflict leaves no trace of its
    /// own commit and does not affect the others. Each run occurs at most once.
    async fn commit(&self, commits: &[Commit]) -> Result<Vec<Result<(), Conflict>>, StoreError>;

    /// As [`Self::create`], for runs that are charged to budgets. The charge is booked in the same transaction; a run that does not
    /// fit one of its budgets is not created. A repeated request id returns the existing run in any case.
    ///
    /// However many calls run concurrently, a booking that needs capacity never makes the spent and reserved sums exceed a cap.
    async fn create_charged(&self, _runs: &[Commit]) -> Result<Vec<Result<Created, Shortage>>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no budgets".into()))
    }

    /// As [`Self::commit`], for commits that may have a [`Commit::booking`]. It is booked in the same transaction. A commit whose
    /// booking needs capacity that a budget does not have leaves no trace.
    async fn commit_charged(&self, _commits: &[Commit]) -> Result<Vec<Result<(), Unwritten>>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no budgets".into()))
    }

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

    /// As [`Self::due_except`], for all runs.
    async fn due(&self, now: Timestamp, again_at: Timestamp, limit: u32) -> Result<Due, StoreError> {
        self.due_except(now, again_at, limit, &[]).await
    }

    /// What the sweeper must handle at `now`, at most `limit` of each kind, without the runs in `except`. Returned ready tasks are
    /// not returned again before `again_at`, so that several sweepers share the work. A task that has been ready for longer than
    /// `again_at - now` is not returned for as long as it has been ready, up to eight times that span ([`Again`]): a sweep does not
    /// publish a long lane again.
    ///
    /// A claim has expired if its process has no lease any more. A claim of an earlier version has a lease of its own. A store with
    /// its own clock reports a lease or a deadline only if that clock has reached it too.
    async fn due_except(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError>;

    /// Removes runs that ended at least `kept` before `now`, with their events and tasks: at most `limit`, in the order of
    /// acceptance. Returns the number removed. If it is below `limit`, no more are left, or others are removing them. A store with
    /// its own clock uses the earlier of `now` and its own time, so that a wrong clock of a caller deletes nothing.
    ///
    /// Also removes the sums of budget periods that began [`SUMS_KEPT`](crate::accounts::SUMS_KEPT) before `now - kept`.
    ///
    /// An active run is never removed. A removed run is unknown afterwards and its request id is free: a client that repeats it
    /// begins a new run. The removal blocks no work on other runs, may run concurrently, and can be repeated.
    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError>;

    /// Ended runs that still reserve money of a budget (see [`Run::is_unsettled`]) and ended at `ended_by` or before: at most
    /// `limit`, ordered by id, only those after `after` if it is given. A store without budgets returns none.
    async fn unsettled(
        &self,
        _ended_by: Timestamp,
        _after: Option<RunId>,
        _limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

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
    /// The lease saves work only: two processes that dispatch one lane share its tasks. The default leases every lane, for a store
    /// with one process.
    async fn hold_lanes(
        &self,
        _holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        Ok(lanes.to_vec())
    }

    /// Asks for the turn to sweep: `holder` has it for `span` from now on, unless another process has it. The time is the store's own
    /// if it has a clock.
    ///
    /// It saves work and protects nothing: any number may sweep at once. By default the turn is given, for a store that one process
    /// uses.
    async fn hold_sweep(
        &self,
        _holder: ClaimId,
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Turn, StoreError> {
        Ok(Turn::Own)
    }

    /// Returns tasks to the backlogs of their lanes, because their messages were not published after all. Tasks that are no longer
    /// ready are skipped.
    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError>;

    /// A run's events after version `after`, at most `limit`, in order.
    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError>;

    /// A tenant's runs, newest first, at most `limit`; only those before `before` if it is given.
    async fn list(
        &self,
        tenant: &TenantId,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError>;

    /// Stores a tenant's rating of one of its ended runs, in place of an earlier one. It is removed with the run. Returns whether
    /// there is such a run; otherwise nothing is stored. Repeating it changes only the time.
    async fn rate(
        &self,
        _tenant: &TenantId,
        _run: RunId,
        _rating: &Rating,
        _at: Timestamp,
    ) -> Result<bool, StoreError> {
        Err(StoreError::Unavailable("this store keeps no ratings".into()))
    }

    /// A tenant's rated runs by id, at most `limit`: those after `after`, if it is given, and before `before`.
    async fn rated(
        &self,
        _tenant: &TenantId,
        _after: Option<RunId>,
        _before: RunId,
        _limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no ratings".into()))
    }

    /// Checks that the store answers; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Which process sweeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The one that asked.
    Own,
    /// Another one.
    Others {
        /// The lanes with a backlog, in the order of their names.
        backlogs: Vec<Lane>,
    },
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
    pub fn tasks(&self) -> impl Iterator<Item = (TaskRef, &Task, &Place)> {
        self.after.tasks().zip(&self.places).map(|((task, found), place)| (task, found, place))
    }

    /// The place of a task; `None` if the run does not have it.
    pub fn place(&self, task: TaskRef) -> Option<&Place> {
        self.tasks().find(|(found, ..)| *found == task).map(|(.., place)| place)
    }
}

/// Where a task waits once it is ready, and which process publishes it. A task that was already ready keeps its place.
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

/// The result of creating a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// This call created it.
    New,
    /// It existed: from an earlier try whose reply was lost, or by the claim of the executor that it was offered to.
    Already,
    /// The tenant had already used the request id, for this run.
    Existing(RunId),
}

/// Another writer committed first. The caller must load the run and decide again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another writer committed to the run first")]
pub struct Conflict;

/// Why a charged commit was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// Another writer committed first.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// A budget does not have the capacity.
    #[error(transparent)]
    OverBudget(Shortage),
}

impl Unwritten {
    /// The conflict of an uncharged commit, which no budget can have refused; a shortage is an error of the store.
    pub fn uncharged(self) -> Result<Conflict, StoreError> {
        match self {
            Self::Conflict(conflict) => Ok(conflict),
            Self::OverBudget(shortage) => Err(StoreError::Unavailable(Box::new(shortage))),
        }
    }
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

/// An entry in a list of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The model that the client requested.
    pub model: String,
    /// Its state's name.
    pub state: String,
    /// The beginning of the question.
    pub question: String,
    /// Its cost and counts so far.
    pub sums: RunSums,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// The cost and counts of a run so far, over all its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSums {
    /// Steps of all its plans.
    pub steps: u32,
    /// The cost of everything.
    pub cost: Cost,
    /// The share of the cost whose output was not used.
    pub wasted: Cost,
    /// The additional cost without the step cache.
    pub saved: Cost,
    /// How often a step continued with another worker.
    pub fallbacks: u32,
    /// What its answer lacks. None while the run is active, and of a run that a version ended which did not store this.
    pub lack: Option<Lack>,
}

/// What the answer of an ended run lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// The steps that gave no output, as [`Run::failed_steps`] has them.
    pub failed_steps: u32,
    /// Whether the answer was built without the output of a step that it needs.
    pub degraded: bool,
    /// Whether the worker of the final step declined to answer.
    pub refused: bool,
}

impl Lack {
    fn of(run: &Run) -> Self {
        Self {
            failed_steps: u32::try_from(run.failed_steps().len()).unwrap_or(u32::MAX),
            degraded: run.is_degraded(),
            refused: run.refusal().is_some(),
        }
    }
}

impl RunSums {
    /// The sums of `run`.
    pub fn of(run: &Run) -> Self {
        let steps: usize = run.rounds().iter().map(|round| round.steps.len()).sum();
        Self {
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            cost: run.cost(),
            wasted: run.wasted_cost(),
            saved: run.saved().cost,
            fallbacks: run.fallbacks(),
            lack: run.ended_at().is_some().then(|| Lack::of(run)),
        }
    }
}

/// A run with its rating.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedRun {
    /// The rated run.
    pub run: RunId,
    /// The rating of its tenant.
    pub rating: Rating,
    /// When it was rated.
    pub rated_at: Timestamp,
}

/// The store failed or refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It failed or did not answer. The outcome is unknown.
    #[error("the store failed")]
    Unavailable(#[source] BoxError),
    /// It answered, and did none of the request: part of it is impossible, or impossible now, such as a write to a row that another
    /// transaction has locked. If the request had several parts, each of the others may succeed alone.
    #[error("the store refused the request")]
    Refused(#[source] BoxError),
    /// Stored data is invalid: a damaged row, or one written by a newer version.
    #[error("stored data of run {run} is invalid")]
    Inconsistent {
        /// The run.
        run: RunId,
        /// What is wrong.
        #[source]
        source: BoxError,
    },
    /// The run existed and was removed.
    #[error("run {run} was removed")]
    Removed {
        /// The run.
        run: RunId,
    },
}

impl StoreError {
    /// The error for events of `run` that cannot be folded.
    pub fn illegal(run: RunId, source: IllegalEvent) -> Self {
        Self::Inconsistent { run, source: Box::new(source) }
    }
}
