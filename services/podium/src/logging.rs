//! Log lines go to standard error; standard output is for answers.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, Settings};

/// Starts logging. `level` is what is logged where the settings do not say.
pub(crate) fn start(settings: &Settings, level: &str) {
    let filter = EnvFilter::new(settings.log.as_deref().unwrap_or(level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start (two commands in one test process) changes nothing.
    let _ = match settings.log_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}
