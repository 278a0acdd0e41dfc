//! The scripts that run inside Redis, and their arguments. They need Redis 5 or newer.

use std::time::Duration;

use redis::{Cmd, Script};

#[cfg(test)]
mod tests;

/// Both scripts, with their hashes.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) keep: Script,
}

/// What the acquiring script answers: whether it granted, and how many milliseconds the first lease has to go.
pub(crate) type Acquired = (u8, u64);

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            acquire: Script::new(include_str!("script/acquire.lua")),
            keep: Script::new(include_str!("script/keep.lua")),
        }
    }

    /// The keeping script as a command, for a pipeline. Redis refuses it with `NOSCRIPT` until the script is loaded.
    pub(crate) fn keep_command(
        &self,
        key: &str,
        ttl: Duration,
        held: &[String],
        given_back: &[String],
    ) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.keep.get_hash()).arg(1).arg(key).arg(milliseconds(ttl)).arg(held.len());
        command.arg(held).arg(given_back);
        command
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
