//! References to secrets. Settings never contain secrets themselves.

use std::fmt;
use std::path::PathBuf;

use podium_ports::causes::with_causes;
use secrecy::SecretString;

/// The place of a secret: `env:NAME` or `file:PATH`. It can be printed safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// In an environment variable.
    Environment(String),
    /// In a file; a final line break is ignored.
    File(PathBuf),
}

/// Why a secret is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is unset or not valid Unicode.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The variable or file is empty.
    #[error("{0} is empty")]
    Empty(SecretRef),
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
}

impl SecretRef {
    /// Parses a reference from settings and checks that its secret exists.
    pub fn read(text: &str) -> Result<Self, String> {
        let reference = match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Self::Environment(name.to_owned()),
            Some(("file", path)) if !path.is_empty() => Self::File(path.into()),
            // The text may be a secret that was written here by mistake, so it is not repeated.
            _ => return Err("must be env:NAME or file:PATH, and never the secret itself".to_owned()),
        };
        match reference.resolve() {
            Ok(_) => Ok(reference),
            Err(error) => Err(format!("cannot be used: {}", with_causes(&error))),
        }
    }

    /// Reads the secret. It is never empty.
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
    fn a_missing_or_empty_secret_is_rejected() {
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
