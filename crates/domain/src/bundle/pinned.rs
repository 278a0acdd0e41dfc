//! Checks whether a bundle may run on a pool.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::check::Lines;
use super::{Manifest, WorkersInPrompt};
use crate::ids::WorkerId;
use crate::pool::{Pool, UnknownWorker};

/// The prefix of the hashed text; another algorithm needs another prefix.
const HASH_NAME: &str = "podium-slots-1";

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

/// The identity of the workers in `slots`: the lower-case hexadecimal SHA-256 over `podium-slots-1` and, for each slot in order,
/// the worker's name and the vendor's name for the model. Each text is preceded by its length in bytes, as in `4:gpt5,`.
pub fn slots_hash(pool: &Pool, slots: &[WorkerId]) -> Result<String, UnknownWorker> {
    let mut hash = Sha256::new();
    let mut add = |text: &str| hash.update(format!("{}:{text},", text.len()));
    add(HASH_NAME);
    for id in slots {
        let worker = pool.worker(id).ok_or_else(|| UnknownWorker { id: id.clone() })?;
        add(worker.id.as_str());
        add(&worker.model);
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
