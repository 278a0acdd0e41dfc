//! Writes to standard output. A closed pipe (`podium ask ... | head -1`) is no error.

use std::io::{self, Write as _};

use crate::error::Error;
use crate::terminal;

/// Writes a line to standard output. On a terminal, control characters are made visible instead of being sent.
pub(crate) fn print_line(text: &str) -> Result<(), Error> {
    print(&if terminal::is_stdout() { terminal::visible(text) } else { text.into() })
}

/// Clears the terminal on standard output, and continues at its beginning.
pub(crate) fn clear_terminal() -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let cleared = out.write_all(b"\x1b[H\x1b[2J").and_then(|()| out.flush());
    cleared.map_err(|source| Error::System { what: "standard output cannot be written", source })
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::System { what: "standard output cannot be written", source: e })
        }
        _ => Ok(()),
    }
}

/// Writes lines to standard output, as [`print_line`] does.
pub(crate) fn print_text(text: &str) -> Result<(), Error> {
    print_line(text.trim_end())
}

/// Writes a value to standard output as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::System { what: "the report cannot be written as JSON", source: e.into() })?;
    print(&if terminal::is_stdout() { terminal::visible_json(&text) } else { text })
}
