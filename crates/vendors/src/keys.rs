//! Reads the vendors' keys. A pool names variables and files; it never contains keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podium_domain::pool::SecretRef;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

/// Longest file of keys in bytes.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Most keys of one vendor that are used concurrently.
const KEYS_MAX: usize = 256;
/// Pause of a key that the vendor rejected as unknown, unpaid or without permission.
const REJECTED_PAUSE: Duration = Duration::from_mins(1);
/// Pause of a rate-limited key if the vendor does not name one.
const LIMITED_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause of a key.
const PAUSE_MAX: Duration = Duration::from_hours(1);

/// Looks up keys by the name of their environment variable.
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

/// Keys that were read elsewhere, by the name of their variable.
impl KeySource for BTreeMap<String, SecretString> {
    fn key(&self, variable: &str) -> Option<SecretString> {
        self.get(variable).cloned()
    }
}

/// A secret that a pool refers to. A variable is read once at the start, a file for each use.
#[derive(Debug)]
pub(crate) enum Secret {
    Known(SecretString),
    Missing { variable: String },
    File { path: String, last: Mutex<Option<SecretString>> },
}

impl Secret {
    pub(crate) fn find(reference: &SecretRef, source: &dyn KeySource) -> Self {
        match reference {
            SecretRef::Env(variable) => {
                // Surrounding blanks (usually a newline) are not part of the key.
                let key = source.key(variable).and_then(|key| trimmed(key.expose_secret()));
                key.map_or_else(|| Self::Missing { variable: variable.clone() }, Self::Known)
            }
            SecretRef::File(path) => {
                let last = std::fs::read_to_string(path).ok().and_then(|text| trimmed(&text));
                Self::File { path: path.clone(), last: Mutex::new(last) }
            }
        }
    }

    /// The current secret. If its file is unreadable, empty or too large at this moment, the last value is kept: a rotation
    /// may be about to write it.
    pub(crate) async fn read(&self) -> Option<SecretString> {
        match self {
            Self::Known(secret) => Some(secret.clone()),
            Self::Missing { .. } => None,
            Self::File { path, last } => {
                let text = tokio::fs::read_to_string(path).await.ok();
                let now = text.filter(|text| text.len() <= FILE_BYTES_MAX).and_then(|text| trimmed(&text));
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if now.is_some() {
                    *last = now;
                }
                last.clone()
            }
        }
    }

    /// The missing variable or file, if the last read found no secret.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Self::Known(_) => None,
            Self::Missing { variable } => Some(format!("environment variable {variable}")),
            Self::File { path, last } => {
                let is_missing = last.lock().unwrap_or_else(PoisonError::into_inner).is_none();
                is_missing.then(|| format!("file {path}"))
            }
        }
    }
}

fn trimmed(text: &str) -> Option<SecretString> {
    let text = text.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// A vendor's keys, used in turn. A rejected key pauses; if all of them pause, the one whose pause ends first is tried.
#[derive(Debug)]
pub(crate) struct Keys {
    sources: Vec<Secret>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    turn: usize,
    /// Paused keys and the end of each pause. A key that was replaced in its file is a new key.
    pauses: Vec<(SecretString, Instant)>,
}

impl Keys {
    pub(crate) fn find(references: &[SecretRef], source: &dyn KeySource) -> Self {
        let sources = references.iter().map(|reference| Secret::find(reference, source)).collect();
        Self { sources, state: Mutex::default() }
    }

    /// Whether the vendor requires a key.
    pub(crate) fn are_needed(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The keys that are missing.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.sources.iter().filter_map(Secret::missing).collect()
    }

    /// Whether keys are required and every one is missing.
    pub(crate) fn are_all_missing(&self) -> bool {
        self.are_needed() && self.missing().len() == self.sources.len()
    }

    /// All current keys. A file may hold several, one on each line.
    pub(crate) async fn read(&self) -> Vec<SecretString> {
        let mut keys = Vec::new();
        for source in &self.sources {
            let Some(secret) = source.read().await else { continue };
            match source {
                Secret::File { .. } => {
                    keys.extend(secret.expose_secret().lines().filter_map(trimmed));
                }
                Secret::Known(_) | Secret::Missing { .. } => keys.push(secret),
            }
        }
        keys.truncate(KEYS_MAX);
        keys
    }

    /// The keys to try for one call, in this order.
    pub(crate) fn in_turn(&self, keys: &[SecretString]) -> Vec<SecretString> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pauses.retain(|(_, until)| *until > now);
        let pause_of = |key: &SecretString| {
            state.pauses.iter().find(|(paused, _)| is_same(paused, key)).map(|(_, until)| *until)
        };
        let active: Vec<_> = keys.iter().filter(|key| pause_of(key).is_none()).cloned().collect();
        if active.is_empty() {
            return keys.iter().min_by_key(|key| pause_of(key)).cloned().into_iter().collect();
        }
        let first = state.turn % active.len();
        state.turn = state.turn.wrapping_add(1);
        active.iter().cycle().skip(first).take(active.len()).cloned().collect()
    }

    /// Pauses a key that the vendor rate-limits; `pause` is the vendor's own, if it named one.
    pub(crate) fn limited(&self, key: &SecretString, pause: Option<Duration>) {
        self.pause(key, pause.unwrap_or(LIMITED_PAUSE));
    }

    /// Pauses a key that the vendor rejected as invalid.
    pub(crate) fn refused(&self, key: &SecretString) {
        self.pause(key, REJECTED_PAUSE);
    }

    fn pause(&self, key: &SecretString, pause: Duration) {
        let until = Instant::now() + pause.min(PAUSE_MAX);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pauses.retain(|(paused, _)| !is_same(paused, key));
        if state.pauses.len() < KEYS_MAX {
            state.pauses.push((key.clone(), until));
        }
    }
}

fn is_same(one: &SecretString, other: &SecretString) -> bool {
    one.expose_secret() == other.expose_secret()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Keys {
        let source = BTreeMap::from(["A", "B"].map(|name| (name.to_owned(), SecretString::from(name))));
        let references = ["A", "B"].map(|name| SecretRef::Env(name.to_owned()));
        Keys::find(&references, &source)
    }

    async fn order(keys: &Keys) -> Vec<String> {
        let all = keys.read().await;
        keys.in_turn(&all).iter().map(|key| key.expose_secret().to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_rotate_and_pause_after_a_rejection() {
        let keys = two();
        assert_eq!(order(&keys).await, ["A", "B"]);
        assert_eq!(order(&keys).await, ["B", "A"]);
        keys.limited(&SecretString::from("A"), Some(Duration::from_secs(5)));
        assert_eq!(order(&keys).await, ["B"]);
        keys.refused(&SecretString::from("B"));
        assert_eq!(order(&keys).await, ["A"], "all are paused: the one that ends first");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(order(&keys).await, ["A"]);
        tokio::time::advance(REJECTED_PAUSE).await;
        assert_eq!(order(&keys).await.len(), 2);
    }

    #[tokio::test]
    async fn a_key_that_is_replaced_in_its_file_is_used_at_once() {
        let path = std::env::temp_dir().join(format!("podium-keys-{}", std::process::id()));
        std::fs::write(&path, "old-1\n\n old-2 \n").unwrap();
        let keys = Keys::find(&[SecretRef::File(path.display().to_string())], &BTreeMap::new());
        assert_eq!(order(&keys).await, ["old-1", "old-2"]);
        keys.refused(&SecretString::from("old-1"));
        keys.refused(&SecretString::from("old-2"));
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(order(&keys).await, ["new"]);
        std::fs::write(&path, "").unwrap();
        assert_eq!(order(&keys).await, ["new"], "an empty file keeps the last key");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(order(&keys).await, ["new"]);
        assert!(keys.missing().is_empty());
    }
}
