//! Collects values by key from all sources; a later source replaces an earlier one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::key::Key;
use super::{Checker, ProgramKeys};

const PREFIX: &str = "PODIUM__";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => path.display().fmt(f),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(key) => write!(f, "--{}", key.replace('_', "-")),
            Self::Set => f.write_str("--set"),
        }
    }
}

/// Similarity of two names, from 0 to 1, above which one is suggested for the other.
const ALIKE: f64 = 0.8;

/// Unparsed values by key.
#[derive(Debug)]
pub struct Sources {
    used: Vec<Key>,
    /// Keys of other programs.
    accepted: Vec<Key>,
    pub(super) values: BTreeMap<&'static str, (String, Origin)>,
    pub(super) problems: Vec<String>,
    /// Whether a file could not be read, so its keys are unknown.
    pub(super) is_incomplete: bool,
}

impl Sources {
    /// Starts with the defaults of a program's keys.
    pub fn new(keys: &ProgramKeys) -> Self {
        let used: Vec<_> = keys.used().copied().collect();
        let accepted = keys.accepted().to_vec();
        let defaults =
            used.iter().chain(&accepted).filter_map(|key| Some((key.name, key.default()?.to_owned())));
        let values = defaults.map(|(key, value)| (key, (value, Origin::Default))).collect();
        Self { used, accepted, values, problems: Vec::new(), is_incomplete: false }
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.used.iter().chain(&self.accepted)
    }

    /// Adds a TOML file of `key = value` lines.
    pub fn read_file(&mut self, path: &Path) {
        let problem = |what: String| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot be read: {e}"));
        let table = text.and_then(|text| {
            text.parse::<toml::Table>().map_err(|e| format!("invalid TOML: {}", e.to_string().trim_end()))
        });
        let table = match table {
            Ok(table) => table,
            Err(what) => {
                self.is_incomplete = true;
                return self.problems.push(problem(what));
            }
        };
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Boolean(yes) => yes.to_string(),
                toml::Value::Integer(number) => number.to_string(),
                _ => {
                    self.problems
                        .push(problem(format!("{name} must be a string, a whole number, true or false")));
                    continue;
                }
            };
            self.put(&name, value, Origin::File(path.to_owned()));
        }
    }

    /// Adds the variables with the prefix `PODIUM__`.
    pub fn read_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        for (name, value) in variables {
            if let Some(key) = name.strip_prefix(PREFIX) {
                self.put(&key.to_ascii_lowercase(), value, Origin::Environment(name.clone()));
            }
        }
    }

    /// Adds the variables of this process.
    pub fn read_own_environment(&mut self) {
        let variables = std::env::vars_os();
        self.read_environment(
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
    }

    /// Adds a flag, if it was given.
    pub fn flag(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.put(key, value.to_owned(), Origin::Flag(key));
        }
    }

    /// Adds `KEY=VALUE` from the command line.
    pub fn set(&mut self, text: &str) {
        match text.split_once('=') {
            Some((key, value)) => self.put(key.trim(), value.to_owned(), Origin::Set),
            None => self.problems.push(format!("--set `{text}` must be KEY=VALUE")),
        }
    }

    fn put(&mut self, name: &str, value: String, origin: Origin) {
        let known = self.keys().find(|key| key.name == name).copied();
        if let Some(key) = known {
            self.values.insert(key.name, (value, origin));
            return;
        }
        let alike = self.keys().map(|key| (strsim::jaro_winkler(key.name, name), key.name));
        let nearest = alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
        let advice = match nearest {
            Some((_, nearest)) => format!("did you mean `{nearest}`?"),
            None => "--print-keys lists all keys".to_owned(),
        };
        self.problems.push(format!("{origin}: unknown key `{name}`; {advice}"));
    }

    /// The keys that are set but that the program does not use, each with its source.
    pub(super) fn unused(&self) -> Vec<String> {
        let given = self.accepted.iter().filter_map(|key| match self.values.get(key.name) {
            Some((_, origin)) if *origin != Origin::Default => Some(format!("{} (from {origin})", key.name)),
            _ => None,
        });
        given.collect()
    }

    /// Finishes collecting; the checker parses the values.
    pub fn into_checker(self) -> Checker {
        Checker::new(self)
    }
}
