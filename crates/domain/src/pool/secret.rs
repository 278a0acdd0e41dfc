//! References to secrets: a pool names where a secret is stored and never contains one.

use std::fmt;

/// Longest path of a file that holds a secret.
const PATH_BYTES_MAX: usize = 4096;

/// Where a secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRef {
    /// In the environment variable with that name, read at start.
    Env(String),
    /// In the file at that path, read for every call, so that rotating it needs no restart.
    File(String),
}

impl SecretRef {
    /// The environment variable with that name; the error describes the problem of the name.
    pub(super) fn env(name: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let is_name =
            !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(allowed);
        // The error does not repeat the text, because it may be the key itself.
        is_name
            .then(|| Self::Env(name.to_owned()))
            .ok_or_else(|| "must name an environment variable, not hold a key".to_owned())
    }

    /// The file at that path.
    pub(super) fn file(path: &str) -> Result<Self, String> {
        let fits = !path.trim().is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains('\0');
        fits.then(|| Self::File(path.to_owned()))
            .ok_or_else(|| format!("must be the path of a file, of 1 to {PATH_BYTES_MAX} bytes"))
    }

    /// Parses `env:NAME` or `file:PATH`; `None` if the text has neither form.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(name) = text.strip_prefix("env:") {
            return Some(Self::env(name));
        }
        text.strip_prefix("file:").map(Self::file)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}
