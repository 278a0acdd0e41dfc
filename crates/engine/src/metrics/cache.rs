//! Of how much use the step cache is: counted for whoever asks this process, and measured.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};

use super::OUTCOME;
use crate::metrics::cache_counts::{CacheCounters, CacheCounts};

/// Instruments of the step cache.
pub(crate) struct Cache {
    counters: CacheCounters,
    lookups: Counter<u64>,
    kept: Counter<u64>,
}

/// What came of the step cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// A step was answered from it.
    Hit,
    /// A worker was called.
    Miss,
    /// An output was kept.
    Kept,
    /// It did not answer.
    Failed,
}

impl Cache {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        Self {
            counters: CacheCounters::default(),
            lookups: counter(
                "podium.cache.lookups",
                "{lookup}",
                "Questions to the step cache, by what came of them",
            ),
            kept: counter("podium.cache.kept", "{output}", "Outputs that were put into the step cache"),
        }
    }

    /// The step cache was used.
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

    /// How often it was of use by now.
    pub(crate) fn counts(&self) -> CacheCounts {
        self.counters.read()
    }
}
