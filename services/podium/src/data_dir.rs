//! The folder that keeps the runs, and its lock against a second process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

const DATABASE: &str = "podium.db";

/// A data folder that only this process uses, until dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// Holds the lock. The operating system releases it when the process ends in any way.
    _lock: File,
}

/// The error if a data folder is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDirError {
    /// Another process uses it.
    #[error(
        "data folder {} is in use by another podium{}; stop that one, ask it with --server, or pass another --data",
        path.display(), holder.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The id of that process, if the lock file has it.
        holder: Option<String>,
    },
    /// The operating system refuses access.
    #[error("cannot use data folder {}", path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl DataDir {
    /// Creates the folder if it is missing, readable only by its owner, and takes its lock.
    pub(crate) fn open(path: &Path) -> Result<Self, DataDirError> {
        let refused = |source| DataDirError::Refused { path: path.to_owned(), source };
        create(path).map_err(refused)?;
        let file = path.join("lock");
        let mut lock = open_lock(&file).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::InUse { path: path.to_owned(), holder: holder(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        sign(&mut lock).map_err(refused)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The store's file in a folder that another process may use concurrently, which the store allows.
    pub(crate) fn shared_database(path: &Path) -> Result<PathBuf, DataDirError> {
        create(path).map_err(|source| DataDirError::Refused { path: path.to_owned(), source })?;
        Ok(path.join(DATABASE))
    }

    /// The store's file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }
}

/// Opens the lock's file, which only its owner may read.
fn open_lock(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{}", std::process::id())
}

fn holder(lock: &mut File) -> Option<String> {
    let mut pid = String::new();
    lock.take(20).read_to_string(&mut pid).ok()?;
    (!pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit())).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_until_the_first_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        let first = DataDir::open(&path).unwrap();
        let refusal = DataDir::open(&path).unwrap_err().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_the_lock() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let _data = DataDir::open(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join("lock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
