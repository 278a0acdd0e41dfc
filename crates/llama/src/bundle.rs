//! Opens a conductor bundle: a directory with `conductor.toml` and the weights that it names, held against their checksum.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use podium_domain::bundle::{Manifest, ManifestError};
use podium_head::{FileError, LinearHead};
use sha2::{Digest, Sha256};

/// The manifest's name in a bundle.
pub const MANIFEST_FILE: &str = "conductor.toml";
/// Most bytes of a manifest; its prompt is the long part.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// A bundle whose manifest is well-formed and whose weights are the ones that it names.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    manifest: Manifest,
    weights: PathBuf,
    head: Option<LinearHead>,
}

/// Why a directory is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file is missing or cannot be read.
    #[error("bundle file `{path}` cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The manifest is too long.
    #[error("bundle file `{path}` is over {MANIFEST_BYTES_MAX} bytes, the limit", path = path.display())]
    ManifestTooLong {
        /// The file.
        path: PathBuf,
    },
    /// The manifest is wrong.
    #[error("bundle file `{path}` is refused", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// The weights are others than the manifest says.
    #[error("bundle file `{path}` has SHA-256 {actual}, weights.sha256 is {expected}", path = path.display())]
    OtherWeights {
        /// The file.
        path: PathBuf,
        /// What the manifest says.
        expected: String,
        /// What the file has.
        actual: String,
    },
    /// The mini head is another than the manifest says.
    #[error("bundle file `{path}` has SHA-256 {actual}, head.sha256 is {expected}", path = path.display())]
    OtherHead {
        /// The file.
        path: PathBuf,
        /// What the manifest says.
        expected: String,
        /// What the file has.
        actual: String,
    },
    /// The mini head is none.
    #[error("the bundle's mini head is refused")]
    Head(#[source] FileError),
}

impl Bundle {
    /// Reads the manifest and all of the weights. Blocks; weights of a gigabyte take seconds.
    pub fn open(directory: &Path) -> Result<Self, BundleError> {
        let manifest_path = directory.join(MANIFEST_FILE);
        let text = read_manifest(&manifest_path)?;
        let manifest = Manifest::parse(&text)
            .map_err(|source| BundleError::Manifest { path: manifest_path.clone(), source })?;
        // The manifest's check has made sure that the name is a plain one.
        let weights = directory.join(&manifest.weights.file);
        let actual =
            checksum(&weights).map_err(|source| BundleError::Unreadable { path: weights.clone(), source })?;
        if actual != manifest.weights.sha256 {
            let expected = manifest.weights.sha256;
            return Err(BundleError::OtherWeights { path: weights, expected, actual });
        }
        let head = read_head(directory, &manifest)?;
        Ok(Self { manifest, weights, head })
    }

    /// What `conductor.toml` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where the weights are.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// The mini head, if there is one. What it was trained for is not checked yet.
    pub fn head(&self) -> Option<&LinearHead> {
        self.head.as_ref()
    }
}

fn read_head(directory: &Path, manifest: &Manifest) -> Result<Option<LinearHead>, BundleError> {
    let Some(named) = &manifest.head else { return Ok(None) };
    let path = directory.join(&named.file);
    let actual = checksum(&path).map_err(|source| BundleError::Unreadable { path: path.clone(), source })?;
    if actual != named.sha256 {
        let expected = named.sha256.clone();
        return Err(BundleError::OtherHead { path, expected, actual });
    }
    LinearHead::read(&path).map(Some).map_err(BundleError::Head)
}

fn read_manifest(path: &Path) -> Result<String, BundleError> {
    let unreadable = |source| BundleError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(MANIFEST_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if read as u64 > MANIFEST_BYTES_MAX {
        return Err(BundleError::ManifestTooLong { path: path.to_owned() });
    }
    Ok(text)
}

fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
