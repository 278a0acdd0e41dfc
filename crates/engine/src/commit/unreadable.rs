//! Tracks runs that this process cannot read: a newer version wrote to them, or they are corrupt. They must not delay other runs,
//! and are left to processes that can read them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;
use tracing::error;

use super::run_cache::RunCache;
use crate::metrics::Metrics;
use crate::parts::Parts;

/// How long sweeps skip an unreadable run before they try it again.
const LEFT_OUT: Duration = Duration::from_secs(30);
/// Most runs in the register, a mebibyte of ids. Each sweep finds the others again.
const RUNS_MAX: usize = 65_536;

/// The register of unreadable runs. Clones share it.
#[derive(Clone)]
pub(crate) struct UnreadableRuns {
    parts: Parts,
    run_cache: RunCache,
    metrics: Metrics,
    /// When sweeps try each run again.
    runs: Arc<Mutex<BTreeMap<RunId, Timestamp>>>,
}

impl UnreadableRuns {
    pub(crate) fn new(parts: Parts, run_cache: RunCache, metrics: Metrics) -> Self {
        Self { parts, run_cache, metrics, runs: Arc::default() }
    }

    /// The runs that a sweep must skip.
    pub(crate) fn left_out(&self) -> Vec<RunId> {
        let now = self.parts.clock.now();
        self.lock().iter().filter(|(_, until)| now < **until).map(|(run, _)| *run).collect()
    }

    /// Loads runs. Returns those that can be read, and the ids of those that cannot. Unknown runs are in neither list.
    ///
    /// A run that was unreadable before is loaded alone, so that it does not affect the others. If another run is in the run cache,
    /// only its newer events are loaded.
    pub(crate) async fn load(&self, ids: &[RunId]) -> Result<(Vec<Run>, Vec<RunId>), StoreError> {
        let (mut suspects, others): (Vec<_>, Vec<_>) = {
            let known = self.lock();
            ids.iter().partition(|id| known.contains_key(id))
        };
        let mut sound = Vec::with_capacity(ids.len());
        if !others.is_empty() {
            let to_load: Vec<_> = others.iter().map(|id| self.run_cache.to_load(*id)).collect();
            match self.parts.store.load_newer(&to_load).await {
                Ok(runs) => sound.extend(runs.into_iter().flatten()),
                Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) => suspects.extend(others),
                Err(error) => return Err(error),
            }
        }
        let mut unreadable = Vec::new();
        for id in suspects {
            match self.parts.store.load(&[id]).await {
                Ok(runs) => {
                    sound.extend(runs.into_iter().flatten());
                    self.lock().remove(&id);
                }
                Err(error @ (StoreError::Inconsistent { .. } | StoreError::Refused(_))) => {
                    self.note(id, &error);
                    unreadable.push(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((sound, unreadable))
    }

    /// Notes a run that could not be read. It is logged and counted once.
    pub(crate) fn note(&self, run: RunId, error: &StoreError) {
        let until = self.parts.clock.now().after(LEFT_OUT);
        let is_new = {
            let mut runs = self.lock();
            if runs.len() >= RUNS_MAX && !runs.contains_key(&run) {
                runs.pop_first();
            }
            runs.insert(run, until).is_none()
        };
        if is_new {
            self.metrics.unreadable();
            let error = error as &dyn std::error::Error;
            error!(%run, error, "a run cannot be read; it is left to processes of a newer version");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Timestamp>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
