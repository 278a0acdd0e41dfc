//! Secrets, which settings only point at.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;

/// Where a secret is: `env:NAME` or `file:PATH`. Never the secret itself, so that settings can be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// In an environment variable.
    Environment(String),
    /// In a file, without the line break at its end.
    File(PathBuf),
}

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or is not text.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The file does not read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

impl SecretRef {
    /// Reads a reference as it is written in settings.
    pub fn read(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Environment(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            // The text may be a secret that was written here by mistake: it is not repeated.
            _ => Err("must be env:NAME or file:PATH, and never the secret itself".to_owned()),
        }
    }

    /// The secret.
    pub fn resolve(&self) -> Result<SecretString, SecretError> {
        match self {
            Self::Environment(name) => {
                std::env::var(name).map(Into::into).map_err(|_| SecretError::NotSet(name.clone()))
            }
            Self::File(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|source| SecretError::Unreadable { path: path.clone(), source })?;
                Ok(text.trim_end_matches(['\n', '\r']).into())
            }
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}
