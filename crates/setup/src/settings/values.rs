//! Parsers of values that several programs use. Their errors follow the key's name in a sentence.

use std::path::PathBuf;
use std::time::Duration;

use super::key::{Key, Values};

/// A hundred years.
const RUNS_KEPT_HOURS_MAX: u64 = 36_500 * 24;

/// A path that is not empty.
pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is empty, it must be a file or a folder".to_owned()) } else { Ok(text.into()) }
}

/// A whole number within the bounds of the key.
pub fn number(key: &Key, text: &str) -> Result<u64, String> {
    let Values::Number { min, max } = key.values else { return Err(key.must_be(text)) };
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| key.must_be(text))
}

/// How long runs are kept after their end: `forever` (`None`), or days or hours such as `30d` or `12h`.
pub(super) fn runs_kept(text: &str) -> Result<Option<Duration>, String> {
    if text == "forever" {
        return Ok(None);
    }
    let hours = |number: &str, each: u64| number.parse::<u64>().ok()?.checked_mul(each);
    let hours = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => hours(days, 24),
        (None, Some(number)) => hours(number, 1),
        (None, None) => None,
    };
    let hours = hours.filter(|hours| (1..=RUNS_KEPT_HOURS_MAX).contains(hours));
    let hours = hours.ok_or_else(|| {
        let days_max = RUNS_KEPT_HOURS_MAX / 24;
        format!(
            "is `{text}`, it must be forever, or days or hours such as 30d or 12h, from 1h to {days_max}d"
        )
    })?;
    Ok(Some(Duration::from_hours(hours)))
}

/// A log filter: levels, or TARGET=LEVEL, separated by commas. A bare word that is not a level would silence everything else.
pub(super) fn log_filter(text: &str) -> Result<String, String> {
    for part in text.split(',').map(str::trim) {
        let (target, level) =
            part.rsplit_once('=').map_or((None, part), |(target, level)| (Some(target), level));
        let is_level = level.parse::<tracing_subscriber::filter::LevelFilter>().is_ok() && !level.is_empty();
        if !is_level || target.is_some_and(|target| target.trim().is_empty()) {
            return Err(format!(
                "is `{text}`, in which `{part}` is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL; an \
                 example is info,podium_engine=debug"
            ));
        }
    }
    let filter = text.parse::<tracing_subscriber::filter::Targets>();
    filter.map(|_| text.to_owned()).map_err(|e| format!("is `{text}`, which cannot be parsed: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_names_known_levels() {
        for right in ["info", "off", "WARN", "info,podium_engine=debug", "info, sqlx=off"] {
            assert!(log_filter(right).is_ok(), "{right}");
        }
        for wrong in ["infoo", "", "info,", "podium_engine", "podium_engine=infoo", "=info"] {
            assert!(log_filter(wrong).unwrap_err().contains("is `"), "{wrong}");
        }
    }

    #[test]
    fn runs_are_kept_for_days_hours_or_ever() {
        assert_eq!(runs_kept("forever"), Ok(None));
        assert_eq!(runs_kept("30d"), Ok(Some(Duration::from_hours(720))));
        assert_eq!(runs_kept("1h"), Ok(Some(Duration::from_hours(1))));
        for wrong in ["", "d", "30", "0h", "-1d", "1.5d", "36501d", "99999999999999999999d", "for ever"] {
            assert!(runs_kept(wrong).is_err(), "{wrong}");
        }
    }
}
