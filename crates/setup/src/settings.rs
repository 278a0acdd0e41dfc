//! Settings of a process, from defaults, a file, the environment and flags, in ascending priority. All problems are reported
//! at once, each with the source of its value.
//!
//! A [`Setting`] is declared once, next to the code that uses it. Its default, unit, bounds, flag, comment in the settings file
//! and line in the reference page come from there. A [`Group`] lists the keys of one subject, and [`ProgramKeys`] the groups of
//! one program.

mod checker;
pub mod client_limits;
pub mod engine;
mod flags;
mod key;
pub mod listeners;
pub mod log;
mod program;
mod reference;
mod secret;
mod sources;
pub mod step_cache;
pub mod tls;
pub mod values;

use std::fmt;

pub use checker::Checker;
pub use flags::{FlagKeys, Flags, read_flags, with_all_flags};
pub use key::{Group, Key, Setting, Unset, Values};
pub use program::ProgramKeys;
pub use reference::reference;
pub use secret::{SecretError, SecretRef};
pub use sources::Sources;

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
