//! The settings of the log.

use super::{Group, Setting, Values, values};
use crate::LogFormat;

/// What is logged.
pub const LOG: Setting<String> = Setting::parsed(
    "log",
    Values::Form("LEVEL or TARGET=LEVEL, separated by commas"),
    |_, text| values::log_filter(text),
    "What to log. The levels are off, error, warn, info, debug and trace; an example is info,podium_engine=debug.",
)
.default("info");

/// The format of log lines.
pub const LOG_FORMAT: Setting<LogFormat> = Setting::words(
    "log_format",
    &["text", "json"],
    |key, word| match word {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(key.must_be(word)),
    },
    "The format of log lines: for people, or one JSON object per line.",
)
.default("text");

/// The log.
pub const LOGGING: Group = Group { title: "Log", keys: &[LOG.key, LOG_FORMAT.key] };
