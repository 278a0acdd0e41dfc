//! The settings of the step cache, for every program that calls workers.

use std::time::Duration;

use podium_domain::policy::OUTPUT_BYTES_MAX;
use podium_ports::cache::CacheOptions;

use super::{Checker, Group, Setting};

/// A day: older answers should be requested again.
const TTL_MS_MAX: u64 = 86_400_000;

/// Whether outputs are reused.
const STEP_CACHE: Setting<bool> = Setting::words(
    "step_cache",
    &["off", "exact"],
    |_, word| Ok(word == "exact"),
    "Reuse cached answers for identical deterministic step requests (temperature 0 or a seed) of the same tenant.",
)
.default("off");

const TTL: Setting<Duration> = Setting::milliseconds(
    "step_cache_ttl_ms",
    &(1..=TTL_MS_MAX),
    "Time for which the step cache keeps an output.",
)
.default("3600000");

const ENTRIES_MAX: Setting<usize> = Setting::count(
    "step_cache_entries_max",
    &(1..=1_000_000),
    "Most outputs in the step cache. Beyond that it removes the oldest.",
)
.unit("outputs")
.default("4096");

const ENTRY_BYTES_MAX: Setting<usize> = Setting::count(
    "step_cache_entry_bytes_max",
    &(1..=OUTPUT_BYTES_MAX as u64),
    "Size of the largest output that the step cache keeps.",
)
.unit("bytes")
.default("65536");

/// The step cache.
pub const STEP_CACHE_KEYS: Group =
    Group { title: "Step cache", keys: &[STEP_CACHE.key, TTL.key, ENTRIES_MAX.key, ENTRY_BYTES_MAX.key] };

/// Reads these settings. The inner `None` means that the cache is off.
pub fn step_cache(checker: &mut Checker) -> Option<Option<CacheOptions>> {
    let is_on = checker.read(&STEP_CACHE);
    let ttl = checker.read(&TTL);
    let [entries_max, entry_bytes_max] =
        [&ENTRIES_MAX, &ENTRY_BYTES_MAX].map(|setting| checker.read(setting));
    let options = CacheOptions { ttl: ttl?, entries_max: entries_max?, entry_bytes_max: entry_bytes_max? };
    Some(is_on?.then_some(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ProgramKeys, Sources};

    fn read(flags: &[(&'static str, &str)]) -> Result<Option<CacheOptions>, Vec<String>> {
        let mut sources = Sources::new(&ProgramKeys::new("worker", &[STEP_CACHE_KEYS]));
        for (key, value) in flags {
            sources.flag(key, Some(value));
        }
        let mut checker = sources.into_checker();
        let read = step_cache(&mut checker);
        checker.finish(read).map_err(|e| e.0)
    }

    #[test]
    fn the_cache_is_optional_and_bounded() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("step_cache", "exact")]), Ok(Some(CacheOptions::default())));
        let wrong = [
            ("step_cache", "fuzzy"),
            ("step_cache_ttl_ms", "0"),
            ("step_cache_entries_max", "x"),
            ("step_cache_entry_bytes_max", "99999999"),
        ];
        assert_eq!(read(&wrong).unwrap_err().len(), 4);
    }
}
