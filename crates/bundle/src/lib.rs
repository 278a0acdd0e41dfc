//! A conductor bundle on disk: a folder with `conductor.toml` and the files that it names, each checked against its checksum;
//! and the hardware and memory that its model may use.
//!
//! All functions block and read whole files: weights of a gigabyte take seconds. They load no model and never follow a name
//! out of the folder.
#![deny(missing_docs)]

mod checksum;
mod error;
pub mod gguf;
pub mod hardware;
mod local_limits;
pub mod manifest;
mod pack;
pub mod prompt;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

pub use checksum::{of_bytes as sha256, of_file as sha256_of_file};
pub use error::BundleError;
pub use local_limits::{LocalLimits, SEQUENCES_MAX, WAITING_MAX};
pub use manifest::{MANIFEST_FILE, Manifest};
pub use pack::{pack_copy, pack_in_place};

/// Longest manifest in bytes; most of it is the prompt.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Prefixes of file names for people. Such files may be in a bundle without being named in the manifest.
const FOR_PEOPLE: [&str; 3] = ["LICENSE", "NOTICE", "README"];

/// A bundle with a valid manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
    sha256: String,
    weights: PathBuf,
}

impl Bundle {
    /// Reads the manifest and checks all files that it names against their checksums. Other files in the folder are ignored.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        let bundle = Self::read(folder)?;
        let problems = bundle.wrong_files();
        bundle.check_problems(problems)
    }

    /// Like [`Self::open`]; in addition the folder must not contain files that are neither named nor for people.
    pub fn verify(folder: &Path) -> Result<Self, BundleError> {
        let bundle = Self::read(folder)?;
        let problems = bundle.wrong_files().into_iter().chain(bundle.extra_files()?);
        bundle.check_problems(problems.collect())
    }

    /// Reads the manifest only.
    pub fn read(folder: &Path) -> Result<Self, BundleError> {
        let text = read_manifest(folder)?;
        Self::of(folder, &text)
    }

    fn of(folder: &Path, text: &str) -> Result<Self, BundleError> {
        let refused = |source| BundleError::Manifest { path: folder.join(MANIFEST_FILE), source };
        let manifest = Manifest::parse(text).map_err(refused)?;
        // The manifest's check guarantees that the name has no path.
        let weights = folder.join(&manifest.weights.file);
        Ok(Self { folder: folder.to_owned(), manifest, sha256: checksum::of_bytes(text.as_bytes()), weights })
    }

    /// The contents of `conductor.toml`.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// SHA-256 of `conductor.toml`, which contains all other checksums: equal values mean equal bundles.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Path of the weights.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// Path of a file of the bundle.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn check_problems(self, problems: Vec<String>) -> Result<Self, BundleError> {
        if problems.is_empty() { Ok(self) } else { Err(BundleError::Files { folder: self.folder, problems }) }
    }

    fn wrong_files(&self) -> Vec<String> {
        let wrong = |key: &str, file: &str, expected: &str| match checksum::of_file(&self.path(file)) {
            Ok(actual) if actual == expected => None,
            Ok(actual) => {
                Some(format!("`{file}` ({key}) has SHA-256 {actual}, {MANIFEST_FILE} says {expected}"))
            }
            Err(error) => Some(format!("`{file}` ({key}) cannot be read: {error}")),
        };
        let files = self.manifest.files();
        files.iter().filter_map(|named| wrong(&named.key, named.file, named.sha256)).collect()
    }

    /// Reads the values of its adapters and rejects files that are damaged or contain NaN or infinity. Weights are not
    /// checked: they have many more data types and take gigabytes.
    pub fn check_adapters(self) -> Result<Self, BundleError> {
        let files = self.manifest.files().into_iter().filter(|named| named.key.starts_with("adapters"));
        let refused = files.filter_map(|named| {
            let path = self.path(named.file);
            let checked = gguf::Gguf::read(&path).and_then(|head| head.check_numbers(&path));
            Some(format!("`{}` ({}) is refused: {}", named.file, named.key, checked.err()?))
        });
        let problems = refused.collect();
        self.check_problems(problems)
    }

    fn extra_files(&self) -> Result<Vec<String>, BundleError> {
        let files = self.manifest.files();
        let named: BTreeSet<_> = files.iter().map(|named| named.file).chain([MANIFEST_FILE]).collect();
        let extra = names_in(&self.folder)?.into_iter();
        let extra = extra.filter(|name| !named.contains(name.as_str()) && !is_for_people(name));
        Ok(extra
            .map(|name| format!("`{name}` is in the folder, but {MANIFEST_FILE} does not name it"))
            .collect())
    }

    /// The files for people, sorted.
    fn for_people(&self) -> Result<Vec<String>, BundleError> {
        let checked: BTreeSet<_> =
            self.manifest.files().into_iter().map(|named| named.file.to_owned()).collect();
        let mut names = names_in(&self.folder)?;
        names.retain(|name| is_for_people(name) && !checked.contains(name));
        Ok(names)
    }
}

fn is_for_people(name: &str) -> bool {
    FOR_PEOPLE.iter().any(|begin| name.starts_with(begin))
}

/// All names in a folder, sorted.
fn names_in(folder: &Path) -> Result<Vec<String>, BundleError> {
    let unreadable = |source| BundleError::Unreadable { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        names.push(entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn read_manifest(folder: &Path) -> Result<String, BundleError> {
    let path = folder.join(MANIFEST_FILE);
    let unreadable = |source| BundleError::Unreadable { path: path.clone(), source };
    let mut text = String::new();
    let file = File::open(&path).map_err(unreadable)?;
    let read = file.take(MANIFEST_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if read as u64 > MANIFEST_BYTES_MAX {
        return Err(BundleError::ManifestTooLong { path });
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
