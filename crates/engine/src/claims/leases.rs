//! The claims that this process holds, and the one lease that they all depend on.
//!
//! A process extends its lease only while it holds claims. Stop signals of other processes report claims that no longer hold their
//! tasks. Signals may be lost, so each heartbeat also checks some of the claims in the store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use podium_domain::ids::{ProcessId, RunId};
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::store::{ClaimRef, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::parts::Parts;

/// Heartbeats in the time of a lease. Three in a row may fail before the lease expires.
const HEARTBEATS: u32 = 4;
/// Most claims that are checked in one statement, and by one heartbeat.
const CHECKED_MAX: usize = 256;
/// Most claims that wait to be disowned. Further ones keep their tasks until the lease of the process ends.
const UNWORKED_MAX: usize = 256;
/// Pause before this process tries again to subscribe to stop signals.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// The register of claims. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClaimRegistry {
    process: ProcessId,
    /// Ordered, so that claims are checked one page after the other, and a simulation can be repeated.
    held: Arc<Mutex<BTreeMap<ClaimRef, Registered>>>,
    /// Claims that nobody works on, and how many more times heartbeats disown each of them.
    unworked: Arc<Mutex<BTreeMap<ClaimRef, u32>>>,
    /// The end of the process' lease, as far as this process knows.
    leased_until: Arc<Mutex<Timestamp>>,
    /// Locked while a claim extends the lease; other claims wait for it.
    extending: Arc<tokio::sync::Mutex<()>>,
}

struct Registered {
    lost: CancellationToken,
    /// Whether the store knows the claim.
    is_committed: bool,
}

/// A registered claim, until dropped.
pub(crate) struct ClaimGuard {
    claim: ClaimRef,
    lost: CancellationToken,
    registry: ClaimRegistry,
}

impl ClaimGuard {
    /// Resolves when the claim no longer holds its task: another's result won, the lease was lost, or the run ended.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Notes that the claim is stored: from now on heartbeats check it.
    pub(crate) fn committed(&self) {
        if let Some(registered) = self.registry.lock().get_mut(&self.claim) {
            registered.is_committed = true;
        }
    }

    /// Same as [`ClaimRegistry::disown`].
    pub(crate) fn disown(&self) {
        self.registry.disown(self.claim);
    }

    /// The token behind [`Self::lost`].
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.lost
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.claim);
    }
}

impl ClaimRegistry {
    pub(crate) fn new(process: ProcessId) -> Self {
        Self {
            process,
            held: Arc::default(),
            unworked: Arc::default(),
            leased_until: Arc::new(Mutex::new(Timestamp::default())),
            extending: Arc::default(),
        }
    }

    /// The process that holds these claims.
    pub(crate) fn process(&self) -> ProcessId {
        self.process
    }

    /// Registers a claim that is about to be committed, so that a run that ends right after the commit finds it.
    pub(crate) fn register(&self, claim: ClaimRef) -> ClaimGuard {
        let lost = CancellationToken::new();
        self.lock().insert(claim, Registered { lost: lost.clone(), is_committed: false });
        ClaimGuard { claim, lost, registry: self.clone() }
    }

    /// Notes that nobody works on a claim that may hold its task. No sweeper releases it while this process lives, so the next
    /// heartbeats disown it in the store: for the time of a lease, because the claim's own commit may still be under way.
    pub(crate) fn disown(&self, claim: ClaimRef) {
        let mut unworked = self.lock_unworked();
        if unworked.len() < UNWORKED_MAX {
            unworked.insert(claim, HEARTBEATS);
        }
    }

    /// Cancels all work on `run`.
    pub(crate) fn release_run(&self, run: RunId) {
        self.lock()
            .iter()
            .filter(|(claim, _)| claim.run == run)
            .for_each(|(_, registered)| registered.lost.cancel());
    }

    /// Cancels the work on a task.
    pub(crate) fn release_task(&self, run: RunId, task: TaskRef) {
        self.lock()
            .iter()
            .filter(|(claim, _)| claim.run == run && claim.task == task)
            .for_each(|(_, registered)| registered.lost.cancel());
    }

    /// Extends the lease if it ends before the next heartbeats would extend it. Without a lease, a sweeper would release a new claim
    /// at once. Called for a registered claim before its commit; from then on, heartbeats extend the lease.
    pub(crate) async fn ensure_lease(&self, parts: &Parts, lease: Duration) -> Result<(), StoreError> {
        if self.is_leased_at(parts.clock.now().after(lease / 2)) {
            return Ok(());
        }
        let _extending = self.extending.lock().await;
        if self.is_leased_at(parts.clock.now().after(lease / 2)) {
            return Ok(());
        }
        self.extend(parts, lease).await
    }

    fn is_leased_at(&self, at: Timestamp) -> bool {
        at < *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While there are claims, extends the lease and checks some of the claims, every quarter of a lease, until stopped. Also disowns
    /// the claims that nobody works on.
    pub(crate) async fn beat(self, parts: Parts, lease: Duration, stop: CancellationToken) {
        let mut checked = None;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = parts.clock.sleep(lease / HEARTBEATS) => {}
            }
            if self.lock().is_empty() {
                self.disown_unworked(&parts).await;
                continue;
            }
            if let Err(error) = self.extend(&parts, lease).await {
                // The state of the claims is unknown. The calls continue, because the first finished result wins whatever its claim.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "the lease of this process could not be extended"
                );
                continue;
            }
            let page = self.committed_after(checked);
            self.check(&parts, &page).await;
            checked = page.last().copied();
            self.disown_unworked(&parts).await;
        }
    }

    async fn disown_unworked(&self, parts: &Parts) {
        let claims: Vec<_> = self.lock_unworked().keys().copied().collect();
        if claims.is_empty() {
            return;
        }
        match parts.store.disown(&claims).await {
            Ok(disowned) => {
                let mut unworked = self.lock_unworked();
                for (claim, _) in claims.iter().zip(disowned).filter(|(_, is_disowned)| *is_disowned) {
                    match unworked.get_mut(claim) {
                        Some(left) if *left > 1 => *left -= 1,
                        _ => drop(unworked.remove(claim)),
                    }
                }
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "claims without work could not be disowned");
            }
        }
    }

    /// Until stopped, checks the claims of each run for which another process sends a stop signal. So a call that is no longer
    /// needed is aborted without waiting for a heartbeat.
    pub(crate) async fn listen(self, parts: Parts, stop: CancellationToken) {
        let listening = async {
            loop {
                match parts.live.stops().await {
                    Ok(mut stops) => {
                        while let Some(run) = stops.next().await {
                            let claims = self.committed(|claim| claim.run == run);
                            self.check(&parts, &claims).await;
                        }
                    }
                    Err(error) => debug!(
                        error = &error as &dyn std::error::Error,
                        "could not subscribe to stop signals"
                    ),
                }
                parts.clock.sleep(LISTEN_PAUSE).await;
            }
        };
        stop.run_until_cancelled(listening).await;
    }

    /// Extends the lease. If it had expired, sweepers may have released any of the claims: then all of them are checked.
    async fn extend(&self, parts: &Parts, lease: Duration) -> Result<(), StoreError> {
        let now = parts.clock.now();
        let was_held = parts.store.extend_lease(self.process, now, lease).await?;
        *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner) = now.after(lease);
        if !was_held {
            for page in self.committed(|_| true).chunks(CHECKED_MAX) {
                self.check(parts, page).await;
            }
        }
        Ok(())
    }

    /// Cancels the work on those of `claims` that hold their tasks no longer.
    async fn check(&self, parts: &Parts, claims: &[ClaimRef]) {
        if claims.is_empty() {
            return;
        }
        match parts.store.held(claims).await {
            Ok(held) => {
                for (claim, _) in claims.iter().zip(held).filter(|(_, is_held)| !is_held) {
                    if let Some(registered) = self.lock().get(claim) {
                        info!(run = %claim.run, task = %claim.task, "the claim does not hold its task any more");
                        registered.lost.cancel();
                    }
                }
            }
            Err(error) => warn!(error = &error as &dyn std::error::Error, "claims could not be checked"),
        }
    }

    fn committed(&self, wanted: impl Fn(&ClaimRef) -> bool) -> Vec<ClaimRef> {
        let held = self.lock();
        held.iter()
            .filter(|(claim, known)| known.is_committed && wanted(claim))
            .map(|(claim, _)| *claim)
            .collect()
    }

    /// The next claims to check, in their order; after the last one it begins anew.
    fn committed_after(&self, checked: Option<ClaimRef>) -> Vec<ClaimRef> {
        let held = self.lock();
        let after = checked.map_or(Bound::Unbounded, Bound::Excluded);
        let committed = held.range((after, Bound::Unbounded)).filter(|(_, known)| known.is_committed);
        committed.take(CHECKED_MAX).map(|(claim, _)| *claim).collect()
    }

    fn lock_unworked(&self) -> MutexGuard<'_, BTreeMap<ClaimRef, u32>> {
        self.unworked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClaimRef, Registered>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
