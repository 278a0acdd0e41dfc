//! The claims that this process holds: their leases are extended together, and whoever loses one is told to stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::store::Hold;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::parts::Parts;

/// The register of claims. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Holds {
    /// Ordered, so that the store is asked in one order and a simulation can be repeated.
    held: Arc<Mutex<BTreeMap<Hold, Registered>>>,
    /// Since when leases could not be extended; none while they can.
    cut_off_since: Arc<Mutex<Option<Timestamp>>>,
}

struct Registered {
    lost: CancellationToken,
    /// Whether the store knows the claim. One that is not committed yet has no lease to extend.
    is_committed: bool,
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

    /// The claim is in the store: from now on its lease is extended.
    pub(crate) fn committed(&self) {
        if let Some(registered) = self.holds.lock().get_mut(&self.hold) {
            registered.is_committed = true;
        }
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
    /// Registers a claim that is about to be committed, so that a run that ends right after the commit finds it.
    pub(crate) fn register(&self, hold: Hold) -> Held {
        let lost = CancellationToken::new();
        self.lock().insert(hold, Registered { lost: lost.clone(), is_committed: false });
        Held { hold, lost, holds: self.clone() }
    }

    /// Tells everybody who works on `run` to stop.
    pub(crate) fn release_run(&self, run: RunId) {
        self.lock()
            .iter()
            .filter(|(hold, _)| hold.run == run)
            .for_each(|(_, registered)| registered.lost.cancel());
    }

    /// Tells whoever works on the task to stop.
    pub(crate) fn release_task(&self, run: RunId, task: TaskRef) {
        self.lock()
            .iter()
            .filter(|(hold, _)| hold.run == run && hold.task == task)
            .for_each(|(_, registered)| registered.lost.cancel());
    }

    /// Whether the store has not been heard of for a whole lease: others may hold the tasks by now.
    pub(crate) fn are_cut_off(&self, now: Timestamp, lease: Duration) -> bool {
        let since = *self.cut_off_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| now.since(since) > lease)
    }

    fn note(&self, extended: bool, now: Timestamp) {
        let mut since = self.cut_off_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if extended { None } else { since.or(Some(now)) };
    }

    /// Extends all leases, every third of a lease, until stopped.
    pub(crate) async fn beat(self, parts: Parts, lease: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = parts.clock.sleep(lease / 3) => self.extend_all(&parts, lease).await,
            }
        }
    }

    async fn extend_all(&self, parts: &Parts, lease: Duration) {
        let holds: Vec<_> =
            self.lock().iter().filter(|(_, known)| known.is_committed).map(|(hold, _)| *hold).collect();
        if holds.is_empty() {
            return;
        }
        let now = parts.clock.now();
        let extended = parts.store.extend_leases(&holds, now.after(lease)).await;
        self.note(extended.is_ok(), now);
        match extended {
            Ok(extended) => {
                for (hold, _) in holds.iter().zip(extended).filter(|(_, extended)| !extended) {
                    if let Some(registered) = self.lock().get(hold) {
                        info!(run = %hold.run, task = %hold.task, "the lease is lost");
                        registered.lost.cancel();
                    }
                }
            }
            // Nothing is known: the calls go on, since the first finished result wins whatever its claim.
            Err(error) => warn!(error = &error as &dyn std::error::Error, "leases could not be extended"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Hold, Registered>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
