//! Settings of a process, from defaults, a file, the environment and flags, in ascending priority. All problems are reported
//! at once, each with the source of its value.

mod checker;
mod hardware;
mod key;
mod secret;
mod server;
mod sources;
mod step_cache;
pub mod values;

use std::fmt;

pub use checker::Checker;
pub use hardware::hardware;
pub use key::{Key, listing};
pub use secret::{SecretError, SecretRef};
pub use server::{SERVER_KEYS, keyless_warning, server_limits};
pub use sources::Sources;
pub use step_cache::step_cache;

/// All problems of a process's settings.
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
