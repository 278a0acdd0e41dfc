//! Parsers of values that several programs use. Their errors follow the key's name in a sentence.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use podium_bundle::{SEQUENCES_MAX, WAITING_MAX};
use podium_domain::ids::WorkerId;
use podium_domain::share::Share;

use crate::LogFormat;
use crate::conductor::ConductorChoice;

const DRAIN_MS_MAX: u64 = 3_600_000;
/// A hundred years.
const RUNS_KEPT_HOURS_MAX: u64 = 36_500 * 24;

/// Most concurrent plans or steps of one process, per lane.
pub const SLOTS_MAX: usize = 65_536;
/// Concurrent plans if no local model writes them: large enough that the model's own limits decide.
const PLAN_SLOTS: usize = 256;

/// Concurrent plans or steps of one process, per lane: 1 to [`SLOTS_MAX`].
pub fn slots(text: &str) -> Result<usize, String> {
    let slots = number(text, 1, SLOTS_MAX as u64)?;
    usize::try_from(slots).map_err(|e| e.to_string())
}

/// Default for concurrent plans: the number of sequences of a local model, if there is one.
pub fn plan_slots(sequences_of_a_model_here: Option<NonZeroU16>) -> usize {
    sequences_of_a_model_here.map_or(PLAN_SLOTS, |sequences| sequences.get().into())
}

/// An address and a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("is `{text}`, it must be an address and a port such as 127.0.0.1:8080"))
}

/// `true` or `false`.
pub fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("is `{text}`, it must be true or false"))
}

/// A path that is not empty.
pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is empty, it must be a file or a folder".to_owned()) } else { Ok(text.into()) }
}

/// A whole number from `min` to `max`.
pub fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("is `{text}`, it must be {min} to {max}"))
}

/// How many plans a local model writes concurrently.
pub fn plan_sequences(text: &str) -> Result<NonZeroU16, String> {
    let sequences = number(text, 1, u64::from(SEQUENCES_MAX))?;
    u16::try_from(sequences).and_then(NonZeroU16::try_from).map_err(|e| e.to_string())
}

/// How many requests may wait for a local model.
pub fn plans_waiting_max(text: &str) -> Result<NonZeroUsize, String> {
    let waiting = number(text, 1, WAITING_MAX as u64)?;
    usize::try_from(waiting).and_then(NonZeroUsize::try_from).map_err(|e| e.to_string())
}

/// Time for unfinished work at shutdown, in milliseconds.
pub fn drain(text: &str) -> Result<Duration, String> {
    number(text, 0, DRAIN_MS_MAX).map(Duration::from_millis)
}

/// How long runs are kept after their end: `forever` (`None`), or days or hours such as `30d` or `12h`.
pub fn runs_kept(text: &str) -> Result<Option<Duration>, String> {
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
pub fn log_filter(text: &str) -> Result<String, String> {
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

/// The format of log lines.
pub fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("is `{text}`, it must be text or json")),
    }
}

/// The planning method.
pub fn conductor(text: &str) -> Result<ConductorChoice, String> {
    let wrong = || {
        format!(
            "is `{text}`, it must be auto, llama:FOLDER, worker:WORKER, model:FILE#WORKER, remote:URL#MODEL, \
             fixed:FILE, direct or direct:WORKER"
        )
    };
    match text.split_once(':') {
        None if text == "auto" => Ok(ConductorChoice::Auto),
        None if text == "direct" => Ok(ConductorChoice::Direct(None)),
        Some(("llama", path)) if !path.is_empty() => Ok(ConductorChoice::Llama(path.into())),
        Some(("fixed", path)) if !path.is_empty() => Ok(ConductorChoice::Fixed(path.into())),
        Some(("direct", worker)) => worker_id(worker).map(|id| ConductorChoice::Direct(Some(id))),
        Some(("worker", worker)) => worker_id(worker).map(ConductorChoice::Worker),
        Some(("model", rest)) => match rest.rsplit_once('#') {
            Some((file, worker)) if !file.is_empty() => {
                worker_id(worker).map(|worker| ConductorChoice::Model { file: file.into(), worker })
            }
            _ => Err(wrong()),
        },
        Some(("remote", rest)) => match rest.rsplit_once('#') {
            Some((url, model)) if url.starts_with("http") && !model.is_empty() => {
                Ok(ConductorChoice::Remote { url: url.to_owned(), model: model.to_owned() })
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// A share of all runs, from 0 to 1.
pub fn share(text: &str) -> Result<Share, String> {
    let share = text.parse::<f64>().ok().and_then(|share| Share::new(share).ok());
    share.ok_or_else(|| format!("is `{text}`, it must be a number from 0 to 1"))
}

fn worker_id(name: &str) -> Result<WorkerId, String> {
    WorkerId::new(name).map_err(|e| format!("names a worker: {e}"))
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
