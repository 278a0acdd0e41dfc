//! Checks whether a bundle may run on a pool.

use podium_domain::pool::{Pool, slots_hash};

use super::check::Lines;
use super::{Manifest, WorkersInPrompt};

/// The pool has other workers than the bundle was trained for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bundle `{bundle}` was trained for pool `{trained_on}` and does not run on pool `{pool}`:{}",
    Lines(.problems)
)]
pub struct OtherPool {
    /// The name and version of the bundle.
    pub bundle: String,
    /// The pool that it was trained for.
    pub trained_on: String,
    /// The pool of this process.
    pub pool: String,
    /// The differences.
    pub problems: Vec<String>,
}

impl Manifest {
    /// The pool as the conductor numbers it: the slots' workers in their order, or the whole pool if the prompt describes it.
    ///
    /// A conductor with slots knows its workers by position only. So all of them must be in the pool, and each must be the model
    /// that it was trained on. Vendor, price, limits and additional workers do not matter, because no plan names them.
    pub fn fit(&self, pool: &Pool) -> Result<Pool, OtherPool> {
        if self.prompt.workers == WorkersInPrompt::Described {
            return Ok(pool.clone());
        }
        let pinned = &self.pool;
        let missing = pinned.slots.iter().enumerate().filter(|(_, id)| pool.worker(id).is_none());
        let mut problems: Vec<_> =
            missing.map(|(slot, id)| format!("the pool has no worker `{id}`, slot {slot}")).collect();
        if let Ok(hash) = slots_hash(pool, &pinned.slots)
            && hash != pinned.hash
        {
            problems.push(format!(
                "the slots' workers have the hash {hash}, pool.hash is {}: some of them are other models",
                pinned.hash
            ));
        }
        let refused = |problems| OtherPool {
            bundle: self.id(),
            trained_on: pinned.trained_on.clone(),
            pool: pool.version(),
            problems,
        };
        if problems.is_empty() {
            pool.arranged(&pinned.slots).map_err(|error| refused(vec![error.to_string()]))
        } else {
            Err(refused(problems))
        }
    }
}
