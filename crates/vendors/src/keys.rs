//! Where the vendors' keys come from. A pool names variables and files; it never holds keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use podium_domain::pool::SecretRef;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

/// Most bytes of a file of keys.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Most keys of a vendor that are used at the same time.
const KEYS_MAX: usize = 256;
/// How long a key rests that the vendor refused for what it is: unknown, unpaid, without the right.
const REFUSED_REST: Duration = Duration::from_mins(1);
/// How long a key rests that was used too much, where the vendor does not say.
const LIMITED_REST: Duration = Duration::from_secs(1);
/// Longest rest of a key.
const REST_MAX: Duration = Duration::from_hours(1);

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

/// A secret that a pool points at. One in the environment is read once; one in a file is read for each use.
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
                // Blanks around a key (a line's end, most often) do not belong to it.
                let key = source.key(variable).and_then(|key| trimmed(key.expose_secret()));
                key.map_or_else(|| Self::Missing { variable: variable.clone() }, Self::Known)
            }
            SecretRef::File(path) => {
                let last = std::fs::read_to_string(path).ok().and_then(|text| trimmed(&text));
                Self::File { path: path.clone(), last: Mutex::new(last) }
            }
        }
    }

    /// The secret as it is now. A file that cannot be read, is empty or is too large at this moment counts as unchanged: what
    /// rotates it may be about to write it.
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

    /// What is missing, if the secret was not there when it was last read.
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

/// The keys of a vendor, in turn. A key that was refused rests; where all of them rest, the one that wakes first is tried.
#[derive(Debug)]
pub(crate) struct Keys {
    sources: Vec<Secret>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    turn: usize,
    /// Keys that rest, and until when. A key that was replaced in its file is another one.
    rests: Vec<(SecretString, Instant)>,
}

impl Keys {
    pub(crate) fn find(references: &[SecretRef], source: &dyn KeySource) -> Self {
        let sources = references.iter().map(|reference| Secret::find(reference, source)).collect();
        Self { sources, state: Mutex::default() }
    }

    /// Whether the vendor asks for a key.
    pub(crate) fn are_needed(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The keys that are not there.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.sources.iter().filter_map(Secret::missing).collect()
    }

    /// Whether no key is there.
    pub(crate) fn are_all_missing(&self) -> bool {
        self.are_needed() && self.missing().len() == self.sources.len()
    }

    /// All keys as they are now. A file may hold several, one on each line.
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

    /// Of `keys` those to try for one call, in this order.
    pub(crate) fn in_turn(&self, keys: &[SecretString]) -> Vec<SecretString> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.rests.retain(|(_, until)| *until > now);
        let rest_of = |key: &SecretString| {
            state.rests.iter().find(|(resting, _)| is_same(resting, key)).map(|(_, until)| *until)
        };
        let awake: Vec<_> = keys.iter().filter(|key| rest_of(key).is_none()).cloned().collect();
        if awake.is_empty() {
            return keys.iter().min_by_key(|key| rest_of(key)).cloned().into_iter().collect();
        }
        let first = state.turn % awake.len();
        state.turn = state.turn.wrapping_add(1);
        awake.iter().cycle().skip(first).take(awake.len()).cloned().collect()
    }

    /// The vendor used a key too much, and asks for that pause.
    pub(crate) fn limited(&self, key: &SecretString, pause: Option<Duration>) {
        self.rest(key, pause.unwrap_or(LIMITED_REST));
    }

    /// The vendor refused a key for what it is.
    pub(crate) fn refused(&self, key: &SecretString) {
        self.rest(key, REFUSED_REST);
    }

    fn rest(&self, key: &SecretString, pause: Duration) {
        let until = Instant::now() + pause.min(REST_MAX);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.rests.retain(|(resting, _)| !is_same(resting, key));
        if state.rests.len() < KEYS_MAX {
            state.rests.push((key.clone(), until));
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
    async fn keys_take_turns_and_rest_after_a_refusal() {
        let keys = two();
        assert_eq!(order(&keys).await, ["A", "B"]);
        assert_eq!(order(&keys).await, ["B", "A"]);
        keys.limited(&SecretString::from("A"), Some(Duration::from_secs(5)));
        assert_eq!(order(&keys).await, ["B"]);
        keys.refused(&SecretString::from("B"));
        assert_eq!(order(&keys).await, ["A"], "all rest: the one that wakes first");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(order(&keys).await, ["A"]);
        tokio::time::advance(REFUSED_REST).await;
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
        assert_eq!(order(&keys).await, ["new"], "an empty file is about to be written");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(order(&keys).await, ["new"]);
        assert!(keys.missing().is_empty());
    }
}
