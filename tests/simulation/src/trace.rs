//! The trace of a world: a line for each event, so that two executions of a seed can be compared byte by byte.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;

/// How the trace is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// No lines are written: fastest.
    #[default]
    Off,
    /// Lines are kept for [`Report::trace`](crate::Report::trace).
    Keep,
    /// Lines go to standard output at once.
    Print,
}

#[derive(Debug)]
pub(crate) struct Trace {
    tracing: Tracing,
    text: String,
    hasher: DefaultHasher,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Self { tracing, text: String::new(), hasher: DefaultHasher::new() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.tracing != Tracing::Off
    }

    pub(crate) fn line(&mut self, now_ms: u64, what: fmt::Arguments<'_>) {
        let line = format!("{:>4}.{:03} {what}\n", now_ms / 1000, now_ms % 1000);
        self.hasher.write(line.as_bytes());
        if self.tracing == Tracing::Keep {
            self.text.push_str(&line);
        } else {
            // The reader may have closed the pipe; then it does not need the rest.
            let _ = std::io::stdout().write_all(line.as_bytes());
        }
    }

    /// The kept lines, and the hash of all lines.
    pub(crate) fn into_text(self) -> (String, u64) {
        (self.text, self.hasher.finish())
    }
}

/// Writes a line if tracing is on.
macro_rules! note {
    ($core:expr, $($what:tt)+) => {
        if $core.trace.is_on() {
            let now_ms = $core.now_ms;
            $core.trace.line(now_ms, format_args!($($what)+));
        }
    };
}
pub(crate) use note;
