//! The truth about runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::budget::{Charge, Shortage};
use podium_domain::ids::{ClaimId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::rating::Rating;
use podium_domain::run::{IllegalEvent, Run, SequencedEvent, Task, TaskRef};
use podium_domain::time::Timestamp;

use crate::BoxError;
use crate::charge::Booking;
use crate::queue::Lane;

/// How often the span doubles for which a published task is left alone, each time that nobody has claimed it meanwhile.
const GRACE_DOUBLINGS_MAX: u32 = 3;

/// When the message of a published task that nobody has claimed counts as lost. The longer the task has been ready, the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The earliest moment.
    pub at: Timestamp,
    from: Timestamp,
    most: Duration,
}

impl Again {
    /// For a task that is published at `now` and is not published again before `at`.
    pub fn new(now: Timestamp, at: Timestamp) -> Self {
        let grace = at.since(now);
        // A takeover publishes at once whatever there is, at the end of time: nothing is added then.
        let from = if grace.is_zero() { Timestamp::default() } else { now };
        Self { at, from, most: grace.saturating_mul(1 << GRACE_DOUBLINGS_MAX) }
    }

    /// The moment for a task that was ready at `ready_at`: doubled each time, up to a bound.
    pub fn of(self, ready_at: Timestamp) -> Timestamp {
        self.at.max(self.from.after(self.from.since(ready_at).min(self.most)))
    }

    /// The numbers that [`Self::of`] is made from, for a statement: it is the greater of `at` and
    /// `from + min(from - ready_at, most)`, all in milliseconds.
    pub fn parts_ms(self) -> (u64, u64, u64) {
        let most = u64::try_from(self.most.as_millis()).unwrap_or(u64::MAX);
        // No sum of the two may overflow in a statement.
        (self.at.unix_ms(), self.from.unix_ms().min(u64::MAX >> 3), most.min(u64::MAX >> 3))
    }
}

/// Keeps the events of runs, and finds what needs doing.
///
/// Every write is idempotent or guarded, so that a caller whose answer was lost can repeat it.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Creates runs, each from its first events. Before: none of these ids exists. After: each run is durable, or another run
    /// of the same tenant and request id was there first and nothing of the new one is kept.
    async fn create(&self, runs: &[Commit]) -> Result<Vec<Created>, StoreError>;

    /// The runs as their events make them, in the order asked; `None` for those that do not exist.
    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError>;

    /// Appends each commit's events if its run is still at the version that they follow. A run's first events create it, unless
    /// it is there already, or another run of the same tenant and request id. One transaction for all; a conflict on one leaves
    /// no trace of that one and does not touch the others. Each run occurs at most once.
    async fn commit(&self, commits: &[Commit]) -> Result<Vec<Result<(), Conflict>>, StoreError>;

    /// As [`Self::create`], for runs that are charged to budgets: what each weighs is booked in the same transaction, or, where a
    /// budget has no room for it, the run is not created. A repeated request id gives the existing run all the same.
    ///
    /// However many do so at once, what is spent and reserved never exceeds a cap by a booking that needs room.
    async fn create_charged(&self, _runs: &[Commit]) -> Result<Vec<Result<Created, Shortage>>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no budgets".into()))
    }

    /// As [`Self::commit`], for commits some of which have a [`Commit::booking`]: it is booked in the same transaction, or, where
    /// it needs room that a budget has not, that commit leaves no trace.
    async fn commit_charged(&self, _commits: &[Commit]) -> Result<Vec<Result<(), Unwritten>>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no budgets".into()))
    }

    /// Extends leases to `until`, each only if its claim still holds its task; tells which did. No event is written.
    async fn extend_leases(&self, holds: &[Hold], until: Timestamp) -> Result<Vec<bool>, StoreError>;

    /// As [`Self::due_except`], of all runs.
    async fn due(&self, now: Timestamp, again_at: Timestamp, limit: u32) -> Result<Due, StoreError> {
        self.due_except(now, again_at, limit, &[]).await
    }

    /// What the sweeper must act on at `now`, at most `limit` of each kind, without the runs in `except`. Ready tasks that are
    /// returned are not returned again before `again_at`, so that several sweepers share the work. A task that has been ready
    /// for longer than `again_at - now` is left alone for as long as it has been ready, up to eight
    /// times that span ([`Again`]): a long lane is not published anew with every sweep.
    ///
    /// A store with a clock of its own reports a lease or a deadline only if that clock has reached it as well.
    async fn due_except(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError>;

    /// Removes runs that ended at least `kept` before `now`, with their events and tasks: at most `limit`, those that were
    /// accepted first. Returns how many; fewer than `limit`: no more are left, or others are removing them. A store with a
    /// clock of its own takes the earlier of `now` and its own time, so that a caller's wrong clock deletes nothing.
    ///
    /// Also removes the sums of budgets' periods that began [`SUMS_KEPT`](crate::accounts::SUMS_KEPT) before `ended_by`.
    ///
    /// An active run is never removed. What was removed is unknown from then on, and its request id is free: a client that
    /// repeats it begins a new run. It holds nobody up who works on another run, any number may remove at once, and it can be
    /// repeated.
    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError>;

    /// Ended runs that still reserve money of a budget (see [`Run::is_unsettled`]) and ended at `ended_by` or before: at most
    /// `limit`, by id, those after `after` if it is given. A store that keeps no budgets has none.
    async fn unsettled(
        &self,
        _ended_by: Timestamp,
        _after: Option<RunId>,
        _limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    /// Takes at most `limit` tasks that may be claimed at `now` out of a lane's backlog, for the caller to tell, in this order.
    /// Nobody else is given them, and they count as told until `again_at`.
    ///
    /// Fair over tenants, however many callers there are, by what the store knows alone: the next task is that of the tenant
    /// with the fewest outstanding in the lane, told or running, the ones just taken included; among equals the oldest.
    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError>;

    /// Gives `holder` those of `lanes` that no other process dispatches, for `span` from now on; its own are extended. Returns them.
    /// The time is the store's own where it has a clock.
    ///
    /// It saves work and protects nothing: two processes that dispatch one lane share its tasks. By default every lane is given, for
    /// a store that one process uses.
    async fn hold_lanes(
        &self,
        _holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        Ok(lanes.to_vec())
    }

    /// Puts tasks that count as told, and were not, into the backlogs of their lanes. Those that are not ready any more are
    /// passed by.
    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError>;

    /// A run's events after `after`, at most `limit`, in order.
    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError>;

    /// A tenant's runs, the newest first, at most `limit`, of those before `before` when given.
    async fn list(
        &self,
        tenant: &TenantId,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError>;

    /// Keeps what a tenant thinks of a run of its own that has ended, in place of what it thought before; with the run it is
    /// removed. Tells whether there is such a run: else nothing is kept. Repeating it changes nothing but the time.
    async fn rate(
        &self,
        _tenant: &TenantId,
        _run: RunId,
        _rating: &Rating,
        _at: Timestamp,
    ) -> Result<bool, StoreError> {
        Err(StoreError::Unavailable("this store keeps no ratings".into()))
    }

    /// A tenant's rated runs in the order of their ids, at most `limit`: those after `after`, if it is given, and before `before`.
    async fn rated(
        &self,
        _tenant: &TenantId,
        _after: Option<RunId>,
        _before: RunId,
        _limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        Err(StoreError::Unavailable("this store keeps no ratings".into()))
    }

    /// Whether the store answers; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Events to append, the run as it is with them, and where its tasks wait.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The run after the events: stores keep what they search by (state, tasks, cost) from it.
    pub after: Arc<Run>,
    /// The new events; not empty; the last one's sequence number is `after.version()`.
    pub events: Vec<SequencedEvent>,
    /// Of each task of `after`, in their order.
    places: Vec<Place>,
    /// What it adds to the budgets of the run.
    booking: Option<Booking>,
}

impl Commit {
    /// A commit; `place` says where each task of the run waits.
    pub fn new(after: Run, events: Vec<SequencedEvent>, place: impl Fn(&Run, TaskRef) -> Place) -> Self {
        let places = after.tasks().map(|(task, _)| place(&after, task)).collect();
        Self { after: Arc::new(after), events, places, booking: None }
    }

    /// Whether the run begins with it.
    pub fn is_first(&self) -> bool {
        self.events.first().is_some_and(|first| first.sequence == 1)
    }

    /// The same, with what it adds to the budgets of a run that weighed `before`.
    #[must_use]
    pub fn charged(mut self, before: Charge) -> Self {
        self.booking = Booking::of(before, &self.after, &self.events);
        self
    }

    /// What it adds to the budgets of its run; none if they need not know of it.
    pub fn booking(&self) -> Option<&Booking> {
        self.booking.as_ref()
    }

    /// Every task of the run, in order, and where it waits.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskRef, &Task, &Place)> {
        self.after.tasks().zip(&self.places).map(|((task, found), place)| (task, found, place))
    }

    /// Where a task waits, if the run has such a one.
    pub fn place(&self, task: TaskRef) -> Option<&Place> {
        self.tasks().find(|(found, ..)| *found == task).map(|(.., place)| place)
    }
}

/// Where a task waits once it is ready, and who tells of it. A task that was ready before, and still is, stays as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its lane.
    pub lane: Lane,
    /// Who publishes its message.
    pub telling: Telling,
}

/// Who publishes a ready task's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// The writer, right after the commit. The task counts as told for the store's grace.
    AtOnce,
    /// Whoever takes the task from the backlog.
    FromBacklog,
}

/// What became of a run to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there, by this.
    New,
    /// It was there already: from an earlier try whose answer was lost, or by the claim of whoever it was offered to.
    Already,
    /// The tenant had used the request id before, for this run.
    Existing(RunId),
}

/// Another writer committed first: reload, decide again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another writer committed to the run first")]
pub struct Conflict;

/// Why a commit that is charged was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// Another writer committed first.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// A budget has no room.
    #[error(transparent)]
    OverBudget(Shortage),
}

impl Unwritten {
    /// The same of a commit that is charged to nobody, which no budget can have kept out.
    pub fn uncharged(self) -> Result<Conflict, StoreError> {
        match self {
            Self::Conflict(conflict) => Ok(conflict),
            Self::OverBudget(shortage) => Err(StoreError::Unavailable(Box::new(shortage))),
        }
    }
}

/// A claim on a task, for extending its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
    /// The claim that should hold it.
    pub claim: ClaimId,
}

/// What the sweeper must act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Told tasks that nobody claimed in time: their message may have been lost, publish it again. Like the backlogs without
    /// those of lanes that this version does not know.
    pub ready: Vec<ReadyTask>,
    /// Lanes with tasks that nobody was told of, not all of which may be claimed yet.
    pub backlogs: Vec<Lane>,
    /// Claims whose lease ran out.
    pub expired: Vec<Hold>,
    /// Active runs whose deadline passed.
    pub overdue: Vec<RunId>,
}

/// A ready task and where it waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyTask {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
    /// The lane that it was committed to.
    pub lane: Lane,
}

/// A line of a list of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The model that was asked for.
    pub model: String,
    /// Its state's name.
    pub state: String,
    /// The beginning of the question.
    pub question: String,
    /// What it has come to so far.
    pub sums: RunSums,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What a run has come to so far, over all its rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSums {
    /// Steps.
    pub steps: u32,
    /// What everything cost.
    pub cost: Cost,
    /// The share of it that bought nothing.
    pub wasted: Cost,
    /// What it would have cost on top if nothing had been known already.
    pub saved: Cost,
    /// How often a step went on with another worker.
    pub fallbacks: u32,
}

impl RunSums {
    /// Those of `run`.
    pub fn of(run: &Run) -> Self {
        let steps: usize = run.rounds().iter().map(|round| round.steps.len()).sum();
        Self {
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            cost: run.cost(),
            wasted: run.wasted_cost(),
            saved: run.saved().cost,
            fallbacks: run.fallbacks(),
        }
    }
}

/// A run that was rated.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedRun {
    /// Which.
    pub run: RunId,
    /// What its tenant thinks of it.
    pub rating: Rating,
    /// Since when.
    pub rated_at: Timestamp,
}

/// The store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It failed or did not answer. Nothing is known about the outcome.
    #[error("the store failed")]
    Unavailable(#[source] BoxError),
    /// It answered, and did nothing of what it was asked: something of it cannot be done, or not now, such as to write a row that
    /// somebody has locked. If it was asked several things at once, each of the others may be done alone.
    #[error("the store refused it")]
    Refused(#[source] BoxError),
    /// What it holds cannot be: a damaged row, or a newer version's.
    #[error("the store holds something of run {run} that cannot be")]
    Inconsistent {
        /// The run.
        run: RunId,
        /// What is wrong.
        #[source]
        source: BoxError,
    },
    /// A run that was there is not kept any more.
    #[error("run {run} was removed")]
    Removed {
        /// The run.
        run: RunId,
    },
}

impl StoreError {
    /// The events of `run` do not fold.
    pub fn illegal(run: RunId, source: IllegalEvent) -> Self {
        Self::Inconsistent { run, source: Box::new(source) }
    }
}
