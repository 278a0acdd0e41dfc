//! Runs that this process cannot read: a newer version wrote to them, or they are damaged. They must not keep others from going
//! on, and are left to processes that can read them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;
use tracing::error;

use crate::metrics::Metrics;
use crate::options::Parts;

/// How long sweeps leave such a run alone before it is tried again.
const LEFT_ALONE: Duration = Duration::from_secs(30);
/// Most such runs that are remembered, a mebibyte of ids. Others are found again by each sweep.
const RUNS_MAX: usize = 65_536;

/// The register of such runs. Clones are the same.
#[derive(Clone)]
pub(crate) struct Unreadable {
    parts: Parts,
    metrics: Metrics,
    /// When sweeps are to try each again.
    runs: Arc<Mutex<BTreeMap<RunId, Timestamp>>>,
}

impl Unreadable {
    pub(crate) fn new(parts: Parts, metrics: Metrics) -> Self {
        Self { parts, metrics, runs: Arc::default() }
    }

    /// The runs that a sweep leaves out.
    pub(crate) fn left_alone(&self) -> Vec<RunId> {
        let now = self.parts.clock.now();
        self.lock().iter().filter(|(_, until)| now < **until).map(|(run, _)| *run).collect()
    }

    /// Loads runs: those that can be read, and the ids of those that cannot. Runs that do not exist are in neither.
    ///
    /// A run that was unreadable before is asked for alone, so that it costs the others nothing.
    pub(crate) async fn load(&self, ids: &[RunId]) -> Result<(Vec<Run>, Vec<RunId>), StoreError> {
        let (mut suspects, others): (Vec<_>, Vec<_>) = {
            let known = self.lock();
            ids.iter().partition(|id| known.contains_key(id))
        };
        let mut sound = Vec::with_capacity(ids.len());
        if !others.is_empty() {
            match self.parts.store.load(&others).await {
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

    /// The run could not be read. It is logged and counted once.
    pub(crate) fn note(&self, run: RunId, error: &StoreError) {
        let until = self.parts.clock.now().after(LEFT_ALONE);
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
