//! How often the step cache was of use.

use std::sync::atomic::{AtomicU64, Ordering};

/// What came of the questions to the step cache since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Steps that were answered from it.
    pub hits: u64,
    /// Requests that were not known, so that a worker was called.
    pub misses: u64,
    /// Outputs that were kept.
    pub kept: u64,
    /// Times that it did not answer, and was done without.
    pub failures: u64,
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) kept: Counter,
    pub(crate) failures: Counter,
}

/// A number that only grows.
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
