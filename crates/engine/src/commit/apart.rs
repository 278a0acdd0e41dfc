//! Runs that are written apart. The store refuses a whole batch if it refuses one of its commits: a person has locked a row, or
//! Postgres does not take a value. The commits of such a batch are tried again one by one, so that all but the refused one are
//! written at once. A run that is refused alone is tried again later and later, and holds up no other one meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;
use tracing::{info, warn};

/// Most runs that are tried alone at the same time. A try may wait for a lock, and has a connection meanwhile.
const AT_ONCE_MAX: usize = 4;
/// Of these, most that were refused alone before: the others are likely to be sound.
const REFUSED_AT_ONCE_MAX: usize = 1;
/// Pause after a run was refused alone for the first time; doubled each time.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// How long a run that nobody writes to any more is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(5);
/// Most runs that are remembered. Others are found again with the batch that they are in.
const RUNS_MAX: usize = 65_536;

/// The register of such runs.
#[derive(Default)]
pub(super) struct Apart {
    runs: Mutex<HashMap<RunId, Entry>>,
    /// How many there are: most of the time none, and then nothing is looked up.
    count: AtomicUsize,
}

struct Entry {
    /// Times that it was refused alone.
    refusals: u32,
    /// What the store said last.
    error: Option<Arc<StoreError>>,
    not_before: Timestamp,
    /// Since when nothing was heard of it.
    since: Timestamp,
}

/// What to do with a request for a run.
pub(super) enum Way {
    /// It may share a batch.
    Together,
    /// It has to be tried alone.
    Alone {
        /// It was refused alone before.
        is_refused: bool,
    },
    /// It is not to be tried yet.
    Later(Arc<StoreError>),
}

impl Apart {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Which way a request for the run has to go.
    pub(super) fn way(&self, run: RunId, now: Timestamp) -> Way {
        if self.is_empty() {
            return Way::Together;
        }
        match self.lock().get(&run).filter(|entry| now.since(entry.since) < FORGOTTEN_AFTER) {
            None => Way::Together,
            Some(Entry { error: Some(error), not_before, .. }) if now < *not_before => {
                Way::Later(Arc::clone(error))
            }
            Some(entry) => Way::Alone { is_refused: entry.refusals > 0 },
        }
    }

    /// The store refused a batch that these runs were in.
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

    /// The store refused the run alone.
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

    /// The run was written, or is not to be written.
    pub(super) fn passed(&self, run: RunId) {
        if self.is_empty() {
            return;
        }
        let mut runs = self.lock();
        if runs.remove(&run).is_some_and(|entry| entry.refusals > 0) {
            info!(%run, "the store takes the run again");
        }
        self.count.store(runs.len(), Ordering::Relaxed);
    }

    /// Whether a further run may be tried alone beside so many, of which so many were refused before.
    pub(super) fn has_room(is_refused: bool, under_way: usize, refused: usize) -> bool {
        under_way < AT_ONCE_MAX && (!is_refused || refused < REFUSED_AT_ONCE_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Entry>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
