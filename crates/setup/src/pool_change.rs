//! Logs what a changed pool file changes.

use podium_domain::pool::{Pool, Worker};
use tracing::{info, warn};

/// Logs that a process uses the pool `after` from now on, and which workers differ from those of `before`.
pub fn log_pool_change(before: &Pool, after: &Pool) {
    let lacking = |pool: &Pool, other: &Pool| {
        let lacks = pool.workers().iter().filter(|worker| other.worker(&worker.id).is_none());
        lacks.map(|worker| worker.id.as_str()).collect::<Vec<_>>().join(", ")
    };
    let differs = |worker: &&Worker| before.worker(&worker.id).is_some_and(|before| *before != **worker);
    let changed = after.workers().iter().filter(differs).map(|worker| worker.id.as_str());
    let (added, removed) = (lacking(after, before), lacking(before, after));
    let changed = changed.collect::<Vec<_>>().join(", ");
    info!(pool = after.version(), before = before.version(), added, removed, changed, "the pool changed");
    if before.version() == after.version() {
        warn!(
            pool = after.version(),
            "the changed pool has the same version as before: runs do not record which of the two they used"
        );
    }
}
