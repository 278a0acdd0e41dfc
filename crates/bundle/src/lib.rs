//! A conductor bundle on disk: a folder with `conductor.toml` and the files that it names, each held against its checksum.
//!
//! Everything here blocks and reads whole files: weights of a gigabyte take seconds. It loads no model, and refuses to follow
//! a name out of the folder.
#![deny(missing_docs)]

mod checksum;
mod error;
pub mod gguf;
mod pack;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use podium_domain::bundle::Manifest;

pub use checksum::of_bytes as sha256;
pub use error::BundleError;
pub use pack::{pack_copy, pack_in_place};
pub use podium_domain::bundle::MANIFEST_FILE;

/// Most bytes of a manifest; its prompt is the long part.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// What the names of files begin with that are for people: they may lie in a bundle without being named.
const FOR_PEOPLE: [&str; 3] = ["LICENSE", "NOTICE", "README"];

/// A bundle whose manifest is well-formed.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
    sha256: String,
    weights: PathBuf,
}

impl Bundle {
    /// Reads the manifest and holds all files that it names against their checksums. What else lies in the folder does not
    /// matter: nothing of it is read.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        let bundle = Self::read(folder)?;
        let problems = bundle.wrong_files();
        bundle.complain(problems)
    }

    /// The same, and nothing may lie in the folder that is neither named nor for people.
    pub fn verify(folder: &Path) -> Result<Self, BundleError> {
        let bundle = Self::read(folder)?;
        let problems = bundle.wrong_files().into_iter().chain(bundle.extra_files()?);
        bundle.complain(problems.collect())
    }

    /// Reads the manifest alone.
    pub fn read(folder: &Path) -> Result<Self, BundleError> {
        let text = read_manifest(folder)?;
        Self::of(folder, &text)
    }

    fn of(folder: &Path, text: &str) -> Result<Self, BundleError> {
        let refused = |source| BundleError::Manifest { path: folder.join(MANIFEST_FILE), source };
        let manifest = Manifest::parse(text).map_err(refused)?;
        // The manifest's check has made sure that the name is a plain one.
        let weights = folder.join(&manifest.weights.file);
        Ok(Self { folder: folder.to_owned(), manifest, sha256: checksum::of_bytes(text.as_bytes()), weights })
    }

    /// What `conductor.toml` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// SHA-256 of `conductor.toml`, which names the checksums of all else: two bundles with the same one are the same.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Where the weights are.
    pub fn weights(&self) -> &Path {
        &self.weights
    }

    /// Where a file of the bundle is.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn complain(self, problems: Vec<String>) -> Result<Self, BundleError> {
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

    /// Reads the numbers of its adapters, and refuses those of which one is none or has no end, or whose file cannot be read to
    /// its end. Those of the weights are not looked at: they have many more types, and take gigabytes.
    pub fn check_adapters(self) -> Result<Self, BundleError> {
        let files = self.manifest.files().into_iter().filter(|named| named.key.starts_with("adapters"));
        let refused = files.filter_map(|named| {
            let path = self.path(named.file);
            let checked = gguf::Gguf::read(&path).and_then(|head| head.check_numbers(&path));
            Some(format!("`{}` ({}) is refused: {}", named.file, named.key, checked.err()?))
        });
        let problems = refused.collect();
        self.complain(problems)
    }

    fn extra_files(&self) -> Result<Vec<String>, BundleError> {
        let files = self.manifest.files();
        let named: BTreeSet<_> = files.iter().map(|named| named.file).chain([MANIFEST_FILE]).collect();
        let extra = names_in(&self.folder)?.into_iter();
        let extra = extra.filter(|name| !named.contains(name.as_str()) && !is_for_people(name));
        Ok(extra.map(|name| format!("`{name}` is in the folder, {MANIFEST_FILE} does not name it")).collect())
    }

    /// The files for people, in order.
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

/// All names in a folder, in order.
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
