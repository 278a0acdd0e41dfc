//! The identity of the workers that a conductor knows by their position only.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::{Pool, UnknownWorker};
use crate::ids::WorkerId;

/// The prefix of the hashed text; another algorithm needs another prefix.
const HASH_NAME: &str = "podium-slots-1";

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
