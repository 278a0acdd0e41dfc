//! The claims that this process holds: their leases are extended together, and whoever loses one is told to stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_ports::store::Hold;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::options::Parts;

/// Heartbeats in the time of a lease.
const HEARTBEATS: u32 = 4;

/// Pause before this process tries again to hear of stops.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// The register of claims. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Holds {
    /// Ordered, so that the store is asked in one order and a simulation can be repeated.
    held: Arc<Mutex<BTreeMap<Hold, Registered>>>,
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

/// How often a lease is extended.
fn heartbeat_every(lease: Duration) -> Duration {
    lease / HEARTBEATS
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

    /// Extends all leases, every quarter of a lease, until stopped. Three in a row may fail before a lease runs out.
    pub(crate) async fn beat(self, parts: Parts, lease: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = parts.clock.sleep(heartbeat_every(lease)) => self.extend_all(&parts, lease).await,
            }
        }
    }

    /// Asks the store at once for the claims of each run of which another process says that they may not hold any more, until
    /// stopped. So a call that nobody needs any more is aborted without waiting for the next heartbeat.
    pub(crate) async fn listen(self, parts: Parts, lease: Duration, stop: CancellationToken) {
        let listening = async {
            loop {
                match parts.live.stops().await {
                    Ok(mut stops) => {
                        while let Some(run) = stops.next().await {
                            self.extend(&parts, lease, |hold| hold.run == run).await;
                        }
                    }
                    Err(error) => debug!(error = &error as &dyn std::error::Error, "cannot hear of stops"),
                }
                parts.clock.sleep(LISTEN_PAUSE).await;
            }
        };
        stop.run_until_cancelled(listening).await;
    }

    async fn extend_all(&self, parts: &Parts, lease: Duration) {
        self.extend(parts, lease, |_| true).await;
    }

    async fn extend(&self, parts: &Parts, lease: Duration, wanted: impl Fn(&Hold) -> bool) {
        let holds: Vec<_> = {
            let held = self.lock();
            let committed = held.iter().filter(|(hold, known)| known.is_committed && wanted(hold));
            committed.map(|(hold, _)| *hold).collect()
        };
        if holds.is_empty() {
            return;
        }
        let now = parts.clock.now();
        let extended = parts.store.extend_leases(&holds, now.after(lease)).await;
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
