//! The step cache's keys, for every program that calls workers.

use std::time::Duration;

use podium_domain::policy::OUTPUT_BYTES_MAX;
use podium_ports::cache::CacheOptions;

use super::Checker;
use super::values::number;

/// A day: older answers should be requested again.
const TTL_MS_MAX: u64 = 86_400_000;
const ENTRIES_MAX: u64 = 1_000_000;

/// Reads `step_cache` and its bounds. The inner `None` means that the cache is off.
pub fn step_cache(checker: &mut Checker) -> Option<Option<CacheOptions>> {
    let is_on = checker.read("step_cache", |text| match text {
        "off" => Ok(false),
        "exact" => Ok(true),
        _ => Err(format!("is `{text}`, it must be off or exact")),
    });
    let ttl = checker.read("step_cache_ttl_ms", |text| number(text, 1, TTL_MS_MAX));
    let entries_max = checker.read("step_cache_entries_max", |text| number(text, 1, ENTRIES_MAX));
    let entry_bytes_max =
        checker.read("step_cache_entry_bytes_max", |text| number(text, 1, OUTPUT_BYTES_MAX as u64));
    let options = CacheOptions {
        ttl: Duration::from_millis(ttl?),
        entries_max: usize::try_from(entries_max?).ok()?,
        entry_bytes_max: usize::try_from(entry_bytes_max?).ok()?,
    };
    Some(is_on?.then_some(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Key, Sources};

    const KEYS: &[Key] = &[
        Key::new("step_cache", "off", ""),
        Key::new("step_cache_ttl_ms", "3600000", ""),
        Key::new("step_cache_entries_max", "4096", ""),
        Key::new("step_cache_entry_bytes_max", "65536", ""),
    ];

    fn read(flags: &[(&'static str, &str)]) -> Result<Option<CacheOptions>, Vec<String>> {
        let mut sources = Sources::new(KEYS);
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
