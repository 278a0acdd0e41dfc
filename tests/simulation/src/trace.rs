//! What happened in a world, one line for each event, so that two executions of a seed can be compared byte by byte.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;

/// What becomes of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// They are not even made: fastest.
    #[default]
    Off,
    /// They are kept for [`Report::trace`](crate::Report::trace).
    Keep,
    /// They go to standard output at once.
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
            // Whoever reads the lines may have closed the pipe: the rest of the world is of no interest to them.
            let _ = std::io::stdout().write_all(line.as_bytes());
        }
    }

    /// The lines that were kept, and the hash of all lines.
    pub(crate) fn into_text(self) -> (String, u64) {
        (self.text, self.hasher.finish())
    }
}

/// Notes a line, if anybody wants it.
macro_rules! note {
    ($core:expr, $($what:tt)+) => {
        if $core.trace.is_on() {
            let now_ms = $core.now_ms;
            $core.trace.line(now_ms, format_args!($($what)+));
        }
    };
}
pub(crate) use note;
