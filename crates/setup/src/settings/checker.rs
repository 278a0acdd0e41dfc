//! Parses and checks setting values.

use std::net::SocketAddr;

use super::sources::{Origin, Sources};
use super::{SettingsError, values};

/// Reads values by key and collects their problems.
#[derive(Debug)]
pub struct Checker {
    sources: Sources,
}

impl Checker {
    pub(super) const fn new(sources: Sources) -> Self {
        Self { sources }
    }

    /// Adds a problem with a key's value; `what` follows the key's name in a sentence.
    pub fn problem(&mut self, key: &str, what: &str) {
        let from = match self.sources.values.get(key) {
            Some((_, origin)) if *origin != Origin::Default => format!(" (from {origin})"),
            _ => String::new(),
        };
        self.sources.problems.push(format!("{key}{from} {what}"));
    }

    /// The unparsed value, if any.
    pub fn written(&self, key: &str) -> Option<&str> {
        self.sources.values.get(key).map(|(value, _)| value.as_str())
    }

    /// The value of a key that has a default or is required.
    pub fn read<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let Some(value) = self.written(key).map(str::to_owned) else {
            // A file that could not be read may contain it.
            if !self.sources.is_incomplete {
                self.problem(key, "is missing, and has no default");
            }
            return None;
        };
        read(&value).map_err(|what| self.problem(key, &what)).ok()
    }

    /// The value of an optional key.
    pub fn read_if_given<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if self.written(key).is_some() { self.read(key, read) } else { None }
    }

    /// Whether a file, the environment or a flag sets the key.
    pub fn is_given(&self, key: &str) -> bool {
        self.sources.values.get(key).is_some_and(|(_, origin)| *origin != Origin::Default)
    }

    /// The keys that are set but unused by `program`, each with its source.
    pub fn unused_by(&self, program: &str) -> Vec<String> {
        self.sources.unused_by(program)
    }

    /// Addresses to listen on; `None` for unset keys. Two equal addresses are a problem, and so is an address that other
    /// machines can reach unless `allow_remote` is true.
    pub fn listen<const N: usize>(&mut self, keys: [&str; N]) -> [Option<SocketAddr>; N] {
        let remote = self.read("allow_remote", values::yes_or_no);
        let addresses = keys.map(|key| self.read_if_given(key, values::address));
        for (index, (key, address)) in keys.into_iter().zip(addresses).enumerate() {
            let Some(address) = address else { continue };
            if remote == Some(false) && !address.ip().is_loopback() {
                let what = format!(
                    "is `{address}`, which other machines can reach; set allow_remote = true to allow that"
                );
                self.problem(key, &what);
            }
            let same = (index + 1..N).find(|later| addresses[*later] == Some(address));
            if let Some(same) = same.filter(|_| address.port() != 0) {
                let what = format!("and {} are both `{address}`: each listener needs its own", keys[same]);
                self.problem(key, &what);
            }
        }
        addresses
    }

    /// The settings, or all problems.
    pub fn finish<T>(self, settings: Option<T>) -> Result<T, SettingsError> {
        match settings {
            Some(settings) if self.sources.problems.is_empty() => Ok(settings),
            _ => Err(SettingsError(self.sources.problems)),
        }
    }
}
