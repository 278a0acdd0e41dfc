//! Stored outputs of workers, reused when the same worker gets an identical request: same text, same parameters.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use serde::{Deserialize, Serialize};

use crate::BoxError;

/// Stores outputs for a limited time.
///
/// It may drop any entry at any time. Its calls have a short time limit, and a caller that gets an error continues without the cache. Concurrent
/// identical requests are not joined: each one that finds no entry calls its worker.
#[async_trait]
pub trait StepCache: Send + Sync {
    /// The stored output of a request, if there is one.
    async fn look_up(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CacheError>;

    /// Stores the output of a request, unless it is longer than [`CacheOptions::entry_bytes_max`].
    async fn keep(&self, key: &CacheKey, output: &CachedOutput) -> Result<(), CacheError>;
}

/// The answer of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedOutput {
    /// The text of the answer.
    pub output: String,
    /// Why the worker stopped.
    pub finish: FinishReason,
    /// The stop sequence that ended the answer, if the vendor named it. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// The tokens that the original call used.
    pub usage: Usage,
}

/// The size of the cache, and the lifetime of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// How long an output is stored.
    pub ttl: Duration,
    /// Most stored outputs; beyond it, the oldest is dropped.
    pub entries_max: usize,
    /// Most bytes of a stored output; longer ones are not stored.
    pub entry_bytes_max: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_hours(1), entries_max: 4096, entry_bytes_max: 64 << 10 }
    }
}

/// The cache failed or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the step cache failed")]
pub struct CacheError(#[source] pub BoxError);

/// Identifies a request: a SHA-256 over its tenant and everything that could change its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// A key from the bytes of the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_displayed_in_hexadecimal() {
        assert_eq!(CacheKey::from_bytes([0xab; 32]).to_string(), "ab".repeat(32));
    }
}
