//! The repository's files in memory, so that every rule is a pure function.
//!
//! The tree contains the files that git tracks or would track, so neither build output nor virtual environments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Larger files count as data: the tree contains only their paths.
const TEXT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The folder above the manifest of this package. It is read when running and not when compiling, because checkouts with a common
/// target folder may share this binary.
pub(crate) fn repository_root() -> anyhow::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run it through cargo: `cargo xtask`")?;
    let root = Path::new(&manifest).parent().context("the manifest's folder has no parent")?;
    Ok(root.to_owned())
}

/// The files of a repository by their path from its root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The text of each file; `None` if it is not text.
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads every file under `root` that git tracks or would track.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let listed = Command::new("git")
            // The clone may belong to another user.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("could not start git")?;
        ensure!(
            listed.status.success(),
            "git could not list the files: {}",
            String::from_utf8_lossy(&listed.stderr).trim()
        );
        let names = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let path = root.join(name);
            // A listed file may be deleted and not yet committed. The target of a symbolic link has its own entry.
            let Ok(metadata) = path.symlink_metadata() else {
                continue;
            };
            if !metadata.is_file() {
                continue;
            }
            let text = if metadata.len() > TEXT_BYTES_MAX {
                None
            } else {
                let bytes = std::fs::read(&path).with_context(|| format!("could not read `{name}`"))?;
                String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
            };
            files.insert(name.to_owned(), text);
        }
        Ok(Self { files })
    }

    /// The text of one file; `None` if it does not exist or is not text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether `path` is a file, or a folder with at least one file.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }

    /// Every path, text or not.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every text file whose name ends in one of `extensions` (without the dot).
    pub(crate) fn texts_with<'a>(
        &'a self,
        extensions: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(|(path, _)| {
            Path::new(path)
                .extension()
                .and_then(|extension| extension.to_str())
                .is_some_and(|extension| extensions.contains(&extension))
        })
    }

    /// Every text file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// A tree made of `(path, text)` pairs, for the rules' tests.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self {
            files: files.into_iter().map(|(path, text)| (path.to_owned(), Some(text.to_owned()))).collect(),
        }
    }

    /// The same tree with one more file, for the rules' tests.
    #[cfg(test)]
    pub(crate) fn and(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), Some(text.to_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_if_it_has_a_file() {
        let tree = Tree::of([("docs/adr/0001-a.md", ""), ("docs-old/b.md", "")]);
        assert!(tree.exists("docs"));
        assert!(tree.exists("docs/adr/"));
        assert!(tree.exists("docs/adr/0001-a.md"));
        assert!(!tree.exists("docs/ad"));
        assert!(!tree.exists("doc"));
    }

    #[test]
    fn reading_a_repository_skips_ignored_files() {
        let folder = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let status = Command::new("git").args(args).current_dir(folder.path()).status().unwrap();
            assert!(status.success());
        };
        git(&["init", "--quiet"]);
        std::fs::write(folder.path().join(".gitignore"), "out/\n").unwrap();
        std::fs::create_dir(folder.path().join("out")).unwrap();
        std::fs::write(folder.path().join("out/built.rs"), "x").unwrap();
        std::fs::write(folder.path().join("kept.rs"), "//! Kept.\n").unwrap();
        std::fs::write(folder.path().join("weights.gguf"), b"GGUF\0\xff").unwrap();
        let tree = Tree::read(folder.path()).unwrap();
        assert_eq!(tree.paths().collect::<Vec<_>>(), [".gitignore", "kept.rs", "weights.gguf"]);
        assert_eq!(tree.text("kept.rs"), Some("//! Kept.\n"));
        assert_eq!(tree.text("weights.gguf"), None);
    }
}
