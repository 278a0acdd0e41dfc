//! Errors of opening and packing bundles.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::MANIFEST_BYTES_MAX;
use crate::manifest::ManifestError;

/// Why a bundle cannot be opened or packed.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The folder or its manifest is missing or cannot be read.
    #[error("bundle: `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The manifest is too long.
    #[error("bundle: `{path}` is over {MANIFEST_BYTES_MAX} bytes, the limit", path = path.display())]
    ManifestTooLong {
        /// The file.
        path: PathBuf,
    },
    /// The manifest is invalid.
    #[error("bundle: `{path}` is invalid", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: ManifestError,
    },
    /// Files are missing, surplus or do not match their checksums.
    #[error("bundle `{folder}` is invalid:{lines}", folder = folder.display(), lines = Lines(problems))]
    Files {
        /// The bundle.
        folder: PathBuf,
        /// The problems, each with the name of its file.
        problems: Vec<String>,
    },
    /// The target of the copy already exists.
    #[error("`{path}` already exists: a copy never replaces anything", path = path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The copy cannot be written. Its parts have been removed.
    #[error("`{path}` cannot be written", path = path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
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
