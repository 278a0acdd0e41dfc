//! Wraps real stores and queues, and injects faults.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};
use podium_ports::store::{
    Appended, ClaimRef, Commit, Due, LaneLoad, RatedRun, RunCatalog, RunFilter, RunLog, RunStore, RunSummary,
    StoreError, TaskBoard, ToLoad, Turn, Unwritten,
};
use podium_testkit::Gate;

/// A store with faults that a test switches on.
pub(crate) struct FaultyStore {
    store: Arc<dyn RunStore>,
    faults: Arc<StoreFaults>,
}

/// Commits to a run that wait before they are written.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) run: RunId,
    /// Opened once one waits.
    pub(crate) has_come: Gate,
    pub(crate) may_go: Gate,
}

/// The holder of the turn to sweep, and the end of its lease.
pub(crate) type SweepTurn = Mutex<(Option<ClaimId>, Timestamp)>;

#[derive(Default)]
pub(crate) struct StoreFaults {
    /// Commits that still fail, before anything is written.
    pub(crate) commits_refused: AtomicUsize,
    /// Commits that still succeed but return an error.
    pub(crate) answers_lost: AtomicUsize,
    /// The holder of the turn to sweep and the end of its lease; `None` if every process has the turn.
    pub(crate) turn: Option<Arc<SweepTurn>>,
    /// Number of searches for due work.
    pub(crate) sweeps: AtomicUsize,
    /// Loads that fail after each of these.
    pub(crate) loads_fail_after_lost: AtomicUsize,
    pub(crate) loads_fail: AtomicUsize,
    /// The name of the call that panics.
    pub(crate) panics_in: Mutex<Option<&'static str>>,
    /// A run to which another process always commits before its plan does.
    pub(crate) contended: Mutex<Option<RunId>>,
    /// Writes fail and reads succeed, as if the store's disk were full.
    pub(crate) writes_fail: AtomicBool,
    /// Reads of runs and events fail.
    pub(crate) reads_fail: AtomicBool,
    /// The lease is not extended, although the process gets a success.
    pub(crate) deaf: AtomicBool,
    /// Number of extensions of the lease.
    pub(crate) extensions: AtomicUsize,
    /// The number of claims in each check.
    pub(crate) checked: Mutex<Vec<usize>>,
    /// A run whose commits wait.
    pub(crate) held: Mutex<Option<Held>>,
    /// A run that cannot be read.
    pub(crate) damaged: Mutex<Option<RunId>>,
    /// Runs that cannot be read: a newer version wrote to them.
    pub(crate) unreadable: Mutex<BTreeSet<RunId>>,
    /// Number of loads of runs.
    pub(crate) loads: AtomicUsize,
    /// Number of reads of events.
    pub(crate) reads: AtomicUsize,
    /// The gate at which reads of events wait.
    pub(crate) reads_wait: Mutex<Option<Gate>>,
    /// The names of the events of each commit, in order.
    pub(crate) written: Mutex<Vec<Vec<&'static str>>>,
}

impl StoreFaults {
    /// Whether the whole store fails.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.writes_fail.store(is_down, Ordering::SeqCst);
        self.reads_fail.store(is_down, Ordering::SeqCst);
    }

    /// The names of the events of each commit so far, with commas.
    pub(crate) fn commits(&self) -> Vec<String> {
        self.written.lock().unwrap().iter().map(|names| names.join(", ")).collect()
    }

    fn may_panic(&self, call: &'static str) {
        let panics = *self.panics_in.lock().unwrap() == Some(call);
        assert!(!panics, "injected by the test");
    }

    fn is_contended(&self, commits: &[Commit]) -> bool {
        let contended = *self.contended.lock().unwrap();
        let is_plan = |commit: &Commit| commit.events.iter().any(|event| event.event.name() == "plan_ready");
        commits.iter().any(|commit| Some(commit.after.id()) == contended && is_plan(commit))
    }

    fn note(&self, commit: &Commit) {
        let names = commit.events.iter().map(|event| event.event.name()).collect();
        self.written.lock().unwrap().push(names);
    }
}

impl FaultyStore {
    pub(crate) fn around(store: Arc<dyn RunStore>, faults: &Arc<StoreFaults>) -> Arc<dyn RunStore> {
        Arc::new(Self { store, faults: Arc::clone(faults) })
    }
}

fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("injected by the test".into())
}

#[async_trait]
impl RunLog for FaultyStore {
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        if commits.iter().all(Commit::is_first) {
            self.faults.may_panic("create");
            for commit in commits {
                self.faults.note(commit);
            }
            return self.store.append(commits).await;
        }
        self.faults.may_panic("commit");
        if take_one(&self.faults.commits_refused) || self.faults.writes_fail.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        if self.faults.is_contended(commits) {
            let mut outcome = Vec::new();
            for commit in commits.chunks(1) {
                let one = if self.faults.is_contended(commit) {
                    Err(Unwritten::Conflict)
                } else {
                    self.store.append(commit).await?.remove(0)
                };
                outcome.push(one);
            }
            return Ok(outcome);
        }
        let held = self.faults.held.lock().unwrap().clone();
        if let Some(Held { run, has_come, may_go }) = held
            && commits.iter().any(|commit| commit.after.id() == run)
        {
            has_come.open();
            may_go.pass().await;
        }
        let outcome = self.store.append(commits).await;
        for (commit, written) in commits.iter().zip(outcome.iter().flatten()) {
            if written.is_ok() {
                self.faults.note(commit);
            }
        }
        if take_one(&self.faults.answers_lost) {
            let fail = self.faults.loads_fail_after_lost.load(Ordering::SeqCst);
            self.faults.loads_fail.store(fail, Ordering::SeqCst);
            return Err(unavailable());
        }
        outcome
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
        self.faults.may_panic("load");
        self.faults.loads.fetch_add(1, Ordering::SeqCst);
        if take_one(&self.faults.loads_fail) || self.faults.reads_fail.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        let damaged = *self.faults.damaged.lock().unwrap();
        let unreadable = {
            let unreadable = self.faults.unreadable.lock().unwrap();
            runs.iter().find(|run| unreadable.contains(run)).copied()
        };
        match damaged.filter(|run| runs.contains(run)).or(unreadable) {
            Some(run) => Err(StoreError::Inconsistent { run, source: "injected by the test".into() }),
            None => self.store.load(runs).await,
        }
    }

    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
        self.load(&ToLoad::ids(runs)).await
    }

    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError> {
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        let gate = self.faults.reads_wait.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        if self.faults.reads_fail.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        self.store.events(run, after, limit).await
    }
}

#[async_trait]
impl TaskBoard for FaultyStore {
    async fn extend_lease(
        &self,
        process: ProcessId,
        now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError> {
        self.faults.extensions.fetch_add(1, Ordering::SeqCst);
        if self.faults.writes_fail.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        if self.faults.deaf.load(Ordering::SeqCst) {
            return Ok(true);
        }
        self.store.extend_lease(process, now, span).await
    }

    async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        self.faults.may_panic("held");
        self.faults.checked.lock().unwrap().push(claims.len());
        if self.faults.deaf.load(Ordering::SeqCst) {
            return Ok(vec![true; claims.len()]);
        }
        self.store.held(claims).await
    }

    async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        if self.faults.writes_fail.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        self.store.disown(claims).await
    }

    async fn due(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError> {
        self.faults.sweeps.fetch_add(1, Ordering::SeqCst);
        self.faults.may_panic("due");
        self.store.due(now, again_at, limit, except).await
    }

    async fn unsettled(
        &self,
        ended_by: Timestamp,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        self.faults.may_panic("unsettled");
        self.store.unsettled(ended_by, after, limit).await
    }

    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
        self.store.take(lane, now, again_at, limit).await
    }

    /// Every process dispatches every lane.
    async fn hold_lanes(
        &self,
        _holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        Ok(lanes.to_vec())
    }

    async fn hold_sweep(&self, holder: ClaimId, now: Timestamp, span: Duration) -> Result<Turn, StoreError> {
        let Some(turn) = &self.faults.turn else { return Ok(Turn::Own) };
        let mut turn = turn.lock().unwrap();
        if turn.0.is_some_and(|other| other != holder) && now < turn.1 {
            return Ok(Turn::Others { backlogs: Vec::new() });
        }
        *turn = (Some(holder), now.after(span));
        Ok(Turn::Own)
    }

    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
        self.store.put_back(tasks).await
    }

    async fn lane_loads(&self) -> Result<Vec<LaneLoad>, StoreError> {
        self.store.lane_loads().await
    }
}

#[async_trait]
impl RunCatalog for FaultyStore {
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.store.list(tenant, filter, before, limit).await
    }

    async fn rate(
        &self,
        tenant: &TenantId,
        run: RunId,
        rating: &Rating,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.rate(tenant, run, rating, at).await
    }

    async fn rated(
        &self,
        tenant: &TenantId,
        after: Option<RunId>,
        before: RunId,
        limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        self.store.rated(tenant, after, before, limit).await
    }

    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.faults.may_panic("remove_ended");
        self.store.remove_ended(now, kept, limit).await
    }
}

#[async_trait]
impl RunStore for FaultyStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}

/// A queue that loses or repeats messages.
pub(crate) struct FaultyQueue {
    pub(crate) queue: Arc<dyn StepQueue>,
    pub(crate) lost: AtomicUsize,
    /// Additional lanes for every message, so that one task is delivered several times concurrently.
    pub(crate) copies: AtomicUsize,
    /// The published messages.
    pub(crate) published: Mutex<Vec<TaskRef>>,
}

impl FaultyQueue {
    pub(crate) fn around(queue: Arc<dyn StepQueue>) -> Arc<Self> {
        Arc::new(Self {
            queue,
            lost: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            published: Mutex::default(),
        })
    }
}

#[async_trait]
impl StepQueue for FaultyQueue {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.published.lock().unwrap().push(message.task);
        if take_one(&self.lost) {
            return Ok(Published::Queued);
        }
        self.queue.publish(lane, message).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let mut deliveries = self.queue.fetch(lane, max, wait).await?;
        for at in 0..deliveries.len() {
            let message = *deliveries[at].message();
            for _ in 0..self.copies.load(Ordering::SeqCst) {
                deliveries.push(Delivery::new(message, 1, Box::new(NoReply)));
            }
        }
        Ok(deliveries)
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        self.queue.capacity(lane).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.queue.ping().await
    }
}

struct NoReply;

#[async_trait]
impl podium_ports::queue::Reply for NoReply {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        Ok(())
    }

    async fn nak(self: Box<Self>, _: Duration) -> Result<(), QueueError> {
        Ok(())
    }
}
