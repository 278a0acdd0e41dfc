//! Log lines go to standard error; standard output is for answers.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging what `filter` lets through: a level, or a list such as `info,podium_engine=debug`. From then on a panic is a
/// line of the log as well.
pub fn start_log(filter: &str, format: LogFormat) {
    let lines =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr);
    // A second start (two commands in one test process) changes nothing.
    let started = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a task panicked")));
    }
}
