//! Uses of the step cache: counted for callers in this process, and measured.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};

use super::cache_counts::{CacheCounters, CacheCounts};
use super::instruments::OUTCOME;

/// Instruments of the step cache.
pub(crate) struct Cache {
    counters: CacheCounters,
    lookups: Counter<u64>,
    kept: Counter<u64>,
}

/// The outcome of a use of the step cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// A step got its output from the cache.
    Hit,
    /// A worker was called.
    Miss,
    /// An output was kept.
    Kept,
    /// The cache did not answer.
    Failed,
}

impl Cache {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        Self {
            counters: CacheCounters::default(),
            lookups: counter("podium.cache.lookups", "{lookup}", "Lookups in the step cache, by outcome"),
            kept: counter("podium.cache.kept", "{output}", "Outputs that were put into the step cache"),
        }
    }

    /// Counts a use.
    pub(crate) fn used(&self, what: CacheUse) {
        let counters = &self.counters;
        let (counter, outcome) = match what {
            CacheUse::Hit => (&counters.hits, "hit"),
            CacheUse::Miss => (&counters.misses, "miss"),
            CacheUse::Failed => (&counters.failures, "failed"),
            CacheUse::Kept => {
                counters.kept.add_one();
                return self.kept.add(1, &[]);
            }
        };
        counter.add_one();
        self.lookups.add(1, &[KeyValue::new(OUTCOME, outcome)]);
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> CacheCounts {
        self.counters.read()
    }
}
