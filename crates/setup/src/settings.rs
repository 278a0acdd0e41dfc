//! How a process is set up: from defaults, a file, the environment and flags, in rising order. Everything that is wrong is
//! found at once, and each problem says where its value came from.

mod checker;
mod hardware;
mod secret;
mod server;
mod sources;
mod step_cache;
pub mod values;

use std::fmt;

pub use checker::Checker;
pub use hardware::hardware;
pub use secret::{SecretError, SecretRef};
pub use server::{SERVER_KEYS, server_limits};
pub use sources::Sources;
pub use step_cache::step_cache;

/// A key, and its default if it has one. The file has it as `key = value`, the environment as `PODIUM__KEY`.
pub type Key = (&'static str, Option<&'static str>);

/// Everything that is wrong with a setup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(pub Vec<String>);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "the configuration has a problem: {only}"),
            all => {
                write!(f, "the configuration has {} problems:", all.len())?;
                all.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for SettingsError {}
