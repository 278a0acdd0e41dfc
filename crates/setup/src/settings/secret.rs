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

/// Why a secret is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or is not text.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The variable or the file holds nothing.
    #[error("{0} is empty")]
    Empty(SecretRef),
    /// The file cannot be read.
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
    /// Reads a reference as it is written in settings, and checks that its secret is there.
    pub fn read(text: &str) -> Result<Self, String> {
        let reference = match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Self::Environment(name.to_owned()),
            Some(("file", path)) if !path.is_empty() => Self::File(path.into()),
            // The text may be a secret that was written here by mistake: it is not repeated.
            _ => return Err("must be env:NAME or file:PATH, and never the secret itself".to_owned()),
        };
        match reference.resolve() {
            Ok(_) => Ok(reference),
            Err(error) => Err(format!("cannot be used: {}", crate::with_causes(&error))),
        }
    }

    /// The secret, which is not empty.
    pub fn resolve(&self) -> Result<SecretString, SecretError> {
        let secret = match self {
            Self::Environment(name) => std::env::var(name).map_err(|_| SecretError::NotSet(name.clone()))?,
            Self::File(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|source| SecretError::Unreadable { path: path.clone(), source })?;
                text.trim_end_matches(['\n', '\r']).to_owned()
            }
        };
        if secret.is_empty() { Err(SecretError::Empty(self.clone())) } else { Ok(secret.into()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_missing_or_empty_is_refused_when_settings_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let reference = format!("file:{}", path.display());
        assert!(SecretRef::read(&reference).unwrap_err().contains("cannot be read"));
        std::fs::write(&path, "\n").unwrap();
        assert!(SecretRef::read(&reference).unwrap_err().contains("is empty"));
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(SecretRef::read(&reference), Ok(SecretRef::File(path)));
        let unset = SecretRef::read("env:PODIUM_TEST_NO_SUCH_VARIABLE").unwrap_err();
        assert!(unset.contains("PODIUM_TEST_NO_SUCH_VARIABLE is not set"), "{unset}");
        assert!(!SecretRef::read("hunter2").unwrap_err().contains("hunter2"));
    }
}
