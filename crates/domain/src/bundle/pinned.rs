//! Whether a bundle may run on a pool.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::check::Lines;
use super::{Manifest, WorkersInPrompt};
use crate::ids::WorkerId;
use crate::pool::{Pool, UnknownWorker};

/// What the hash begins with: another way to make it gets another name.
const HASH_NAME: &str = "podium-slots-1";

/// A bundle was trained for other workers than the pool has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bundle `{bundle}` was trained for pool `{trained_on}` and does not run on pool `{pool}`:{}",
    Lines(.problems)
)]
pub struct OtherPool {
    /// Name and version of the bundle.
    pub bundle: String,
    /// The pool that it was trained for.
    pub trained_on: String,
    /// The pool that there is.
    pub pool: String,
    /// What is different.
    pub problems: Vec<String>,
}

impl Manifest {
    /// The pool as the conductor counts it: the slots alone and in their order, or the whole pool where it is described.
    ///
    /// A conductor with slots knows its workers by nothing but their positions. So all of them must be there, and each must be
    /// the model that it was trained on. Where they are served, at what price and under which limits does not matter, nor
    /// which further workers the pool has: no plan names those.
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

/// What identifies the workers in `slots`: the SHA-256, in lower-case hexadecimal, over `podium-slots-1` and, for each slot in
/// order, the worker's name and the vendor's name for the model. Each of these texts comes with its length in bytes before it, as in `4:gpt5,`.
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
