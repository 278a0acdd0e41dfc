//! Why a folder is no bundle, or none can be made of it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use podium_domain::bundle::ManifestError;

use crate::MANIFEST_BYTES_MAX;

/// Why a folder is no bundle, or none can be made of it.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The folder or its manifest is missing or cannot be read.
    #[error("bundle: `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// Which of them.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The manifest is too long.
    #[error("bundle: `{path}` is over {MANIFEST_BYTES_MAX} bytes, the limit", path = path.display())]
    ManifestTooLong {
        /// The file.
        path: PathBuf,
    },
    /// The manifest is wrong.
    #[error("bundle: `{path}` is refused", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// Files are wrong, missing, or too many; each is listed.
    #[error("bundle `{folder}` has {count} problem(s):{lines}", folder = folder.display(), count = problems.len(), lines = Lines(problems))]
    Files {
        /// The bundle.
        folder: PathBuf,
        /// What is wrong, each with the name of its file.
        problems: Vec<String>,
    },
    /// Something is already where the copy was to be.
    #[error("`{path}` is there already: a copy never replaces anything", path = path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// The copy cannot be written. Nothing is left of it.
    #[error("`{path}` cannot be written", path = path.display())]
    Unwritable {
        /// Which file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  - {line}"))
    }
}
