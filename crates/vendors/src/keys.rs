//! Where the vendors' keys come from. A pool names variables; it never holds keys.

use std::collections::BTreeMap;

use secrecy::SecretString;

/// Gives keys by the name of their environment variable.
pub trait KeySource {
    /// The key that `variable` holds, if it is set.
    fn key(&self, variable: &str) -> Option<SecretString>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentKeys;

impl KeySource for EnvironmentKeys {
    fn key(&self, variable: &str) -> Option<SecretString> {
        std::env::var(variable).ok().map(SecretString::from)
    }
}

/// Keys that were read elsewhere, by the name of the variable that they stand for.
impl KeySource for BTreeMap<String, SecretString> {
    fn key(&self, variable: &str) -> Option<SecretString> {
        self.get(variable).cloned()
    }
}
