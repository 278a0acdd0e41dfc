//! Tracks runs that must be written alone. If the store refuses one commit of a batch, it refuses the whole batch: for example, an
//! operator has locked a row, or Postgres rejects a value. The commits of such a batch are tried again one by one, so that all
//! others are written soon. A run that is refused alone is tried again with growing pauses, and delays no other run.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;
use tracing::{info, warn};

/// Most runs that are tried alone concurrently. A try may wait for a lock, and occupies a connection meanwhile.
const CONCURRENT_MAX: usize = 4;
/// Most of these runs that were refused alone before; the others can probably be written.
const REFUSED_CONCURRENT_MAX: usize = 1;
/// Pause after a run was refused alone for the first time; it doubles each time.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// How long a run without writes stays in the register.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(5);
/// Most runs in the register. Others are added again when their batch is refused.
const RUNS_MAX: usize = 65_536;

/// The register of refused runs.
#[derive(Default)]
pub(super) struct RefusedRuns {
    runs: Mutex<HashMap<RunId, Entry>>,
    /// The number of runs. It is usually zero, and then no lookup is needed.
    count: AtomicUsize,
}

struct Entry {
    /// How often the run was refused alone.
    refusals: u32,
    /// The last error of the store.
    error: Option<Arc<StoreError>>,
    not_before: Timestamp,
    /// When the run was last refused, alone or in a batch.
    since: Timestamp,
}

/// How to handle a request for a run.
pub(super) enum Handling {
    /// The request may share a batch.
    Together,
    /// The run must be tried alone.
    Alone {
        /// Whether the run was refused alone before.
        is_refused: bool,
    },
    /// The run must not be tried yet.
    Later(Arc<StoreError>),
}

impl RefusedRuns {
    /// Whether the register is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// How to handle a request for the run.
    pub(super) fn handling(&self, run: RunId, now: Timestamp) -> Handling {
        if self.is_empty() {
            return Handling::Together;
        }
        match self.lock().get(&run).filter(|entry| now.since(entry.since) < FORGOTTEN_AFTER) {
            None => Handling::Together,
            Some(Entry { error: Some(error), not_before, .. }) if now < *not_before => {
                Handling::Later(Arc::clone(error))
            }
            Some(entry) => Handling::Alone { is_refused: entry.refusals > 0 },
        }
    }

    /// Notes that the store refused a batch with these runs.
    pub(super) fn suspect(&self, suspects: impl Iterator<Item = RunId>, now: Timestamp) {
        let mut runs = self.lock();
        runs.retain(|_, entry| now.since(entry.since) < FORGOTTEN_AFTER);
        for run in suspects {
            if runs.len() < RUNS_MAX {
                let entry = Entry { refusals: 0, error: None, not_before: now, since: now };
                runs.entry(run).or_insert(entry).since = now;
            }
        }
        self.count.store(runs.len(), Ordering::Relaxed);
    }

    /// Notes that the store refused the run alone.
    pub(super) fn refused(&self, run: RunId, error: Arc<StoreError>, now: Timestamp) {
        self.suspect(std::iter::once(run), now);
        if let Some(entry) = self.lock().get_mut(&run) {
            let pause = PAUSE.saturating_mul(1 << entry.refusals.min(16)).min(PAUSE_MAX);
            entry.refusals += 1;
            entry.not_before = now.after(pause);
            let (source, pause_ms) = (&*error as &dyn std::error::Error, pause.as_millis());
            warn!(%run, error = source, "the store refuses to write the run; it is tried again in {pause_ms} ms");
            entry.error = Some(error);
        }
    }

    /// Notes that the run was written, or no longer needs to be.
    pub(super) fn passed(&self, run: RunId) {
        if self.is_empty() {
            return;
        }
        let mut runs = self.lock();
        if runs.remove(&run).is_some_and(|entry| entry.refusals > 0) {
            info!(%run, "the store accepts the run again");
        }
        self.count.store(runs.len(), Ordering::Relaxed);
    }

    /// Whether another run may be tried alone while `in_flight` are, of which `refused` were refused alone before.
    pub(super) fn has_capacity(is_refused: bool, in_flight: usize, refused: usize) -> bool {
        in_flight < CONCURRENT_MAX && (!is_refused || refused < REFUSED_CONCURRENT_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Entry>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
