//! The claims that this process holds: their leases are extended together, and whoever loses one is told to stop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_ports::store::Hold;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::parts::Parts;

/// The register of claims. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Holds {
    held: Arc<Mutex<HashMap<Hold, CancellationToken>>>,
}

/// A registered claim, until dropped.
pub(crate) struct Held {
    hold: Hold,
    lost: CancellationToken,
    holds: Holds,
}

impl Held {
    /// Resolves when the claim no longer holds its task: another's result won, the lease was lost, or the run ended.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// The token behind [`Self::lost`].
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.lost
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holds.lock().remove(&self.hold);
    }
}

impl Holds {
    pub(crate) fn register(&self, hold: Hold) -> Held {
        let lost = CancellationToken::new();
        self.lock().insert(hold, lost.clone());
        Held { hold, lost, holds: self.clone() }
    }

    /// Tells everybody who works on `run` to stop.
    pub(crate) fn release_run(&self, run: RunId) {
        self.lock().iter().filter(|(hold, _)| hold.run == run).for_each(|(_, lost)| lost.cancel());
    }

    /// Extends all leases, every third of a lease, until stopped.
    pub(crate) async fn beat(self, parts: Parts, lease: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = parts.clock.sleep(lease / 3) => self.extend_all(&parts, lease).await,
            }
        }
    }

    async fn extend_all(&self, parts: &Parts, lease: Duration) {
        let holds: Vec<_> = self.lock().keys().copied().collect();
        if holds.is_empty() {
            return;
        }
        match parts.store.extend_leases(&holds, parts.clock.now().after(lease)).await {
            Ok(extended) => {
                for (hold, _) in holds.iter().zip(extended).filter(|(_, extended)| !extended) {
                    if let Some(lost) = self.lock().get(hold) {
                        info!(run = %hold.run, task = %hold.task, "the lease is lost");
                        lost.cancel();
                    }
                }
            }
            // Nothing is known: the calls go on, since the first finished result wins whatever its claim.
            Err(error) => warn!(error = &error as &dyn std::error::Error, "leases could not be extended"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hold, CancellationToken>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
