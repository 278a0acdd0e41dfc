//! Parses and checks setting values.

use std::net::SocketAddr;

use super::key::Setting;
use super::sources::{Origin, Sources};
use super::{SettingsError, listeners};

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
    pub(super) fn written(&self, key: &str) -> Option<&str> {
        self.sources.values.get(key).map(|(value, _)| value.as_str())
    }

    /// The value of a setting that has a default or is required.
    pub fn read<T>(&mut self, setting: &Setting<T>) -> Option<T> {
        let key = setting.key.name;
        let Some(value) = self.written(key).map(str::to_owned) else {
            // A file that could not be read may contain it.
            if !self.sources.is_incomplete {
                self.problem(key, "is missing, and has no default");
            }
            return None;
        };
        setting.value(&value).map_err(|what| self.problem(key, &what)).ok()
    }

    /// The value of an optional setting. `None` also stands for a problem, which [`Checker::finish`] reports.
    pub fn read_if_given<T>(&mut self, setting: &Setting<T>) -> Option<T> {
        if self.has_value(setting) { self.read(setting) } else { None }
    }

    /// Whether the setting has a value, from a source or by default.
    pub fn has_value<T>(&self, setting: &Setting<T>) -> bool {
        self.written(setting.key.name).is_some()
    }

    /// The keys that are set but that the program does not use, each with its source.
    pub fn unused(&self) -> Vec<String> {
        self.sources.unused()
    }

    /// Addresses to listen on; `None` for unset keys. Two equal addresses are a problem, and so is an address that other
    /// machines can reach unless `allow_remote` is true.
    pub fn listen<const N: usize>(&mut self, settings: [&Setting<SocketAddr>; N]) -> [Option<SocketAddr>; N] {
        let remote = self.read(&listeners::ALLOW_REMOTE);
        let addresses = settings.map(|setting| self.read_if_given(setting));
        let keys = settings.map(|setting| setting.key.name);
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
