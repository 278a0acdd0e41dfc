//! The counters of the step cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// Uses of the step cache since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Steps whose output came from the cache.
    pub hits: u64,
    /// Steps whose output was not in the cache, so that a worker was called.
    pub misses: u64,
    /// Outputs that were kept.
    pub kept: u64,
    /// How often the cache did not answer.
    pub failures: u64,
}

/// The counters behind [`CacheCounts`].
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) kept: Counter,
    pub(crate) failures: Counter,
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CacheCounters {
    pub(crate) fn read(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.read(),
            misses: self.misses.read(),
            kept: self.kept.read(),
            failures: self.failures.read(),
        }
    }
}
