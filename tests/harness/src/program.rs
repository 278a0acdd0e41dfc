//! Finds programs, and runs those that end by themselves.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

/// A program and its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// The name of its executable.
    pub(crate) name: &'static str,
    /// The environment variable with its path, or its folder.
    pub(crate) variable: &'static str,
    /// Debian's package.
    pub(crate) package: &'static str,
}

impl Program {
    /// Its path: from the variable, or the first match in `PATH` and in Debian's folders for servers.
    pub(crate) fn find(&self) -> Result<PathBuf> {
        if let Some(named) = env::var_os(self.variable).filter(|value| !value.is_empty()) {
            let mut named = PathBuf::from(named);
            if named.is_dir() {
                named.push(self.name);
            }
            ensure!(is_program(&named), "{} names no program: `{}`", self.variable, named.display());
            return Ok(named);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            .chain(postgres_folders())
            .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
            .map(|folder| folder.join(self.name))
            .find(|program| is_program(program));
        found.with_context(|| {
            let Self { name, variable, package } = self;
            format!("`{name}` is missing; install it (Debian's package: {package}) or name it in {variable}")
        })
    }
}

/// The library that changes a process' clock: `FAKETIME_LIBRARY`, or that of Debian's package `faketime`.
pub(crate) fn faketime() -> Result<PathBuf> {
    const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
    let named = env::var_os("FAKETIME_LIBRARY").map(PathBuf::from).into_iter();
    let folders =
        fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path().join(LIBRARY));
    let found = named.chain(folders).find(|library| library.is_file());
    found.context(
        "libfaketime is missing; install it (Debian's package: faketime) or name it in FAKETIME_LIBRARY",
    )
}

/// `/usr/lib/postgresql/*/bin`, the newest version first.
fn postgres_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        versions.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| format!("/usr/lib/postgresql/{version}/bin").into()).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs the command and returns its output. The error has its standard error.
pub(crate) async fn output_of(command: &mut Command) -> Result<String> {
    let what = format!("`{}`", command.as_std().get_program().display());
    let output = command.stdin(Stdio::null()).output().await.with_context(|| format!("starting {what}"))?;
    if !output.status.success() {
        bail!("{what} failed, {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The folder shared by this user's tests, for locks of ports and files that are expensive to make.
pub(crate) fn shared_folder() -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("podium-harness-{}", own_user()?.0));
    fs::create_dir_all(&folder).with_context(|| format!("making `{}`", folder.display()))?;
    Ok(folder)
}

/// The ids of the user and the group that this process runs as.
pub(crate) fn own_user() -> Result<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;

    // The creator of a file owns it.
    let file = tempfile::tempfile().context("making a temporary file")?;
    let found = file.metadata().context("reading whose file it is")?;
    Ok((found.uid(), found.gid()))
}
