//! The files of a new Postgres cluster, made once per version and copied for each server, because `initdb` takes more than a
//! second.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::program::{output_of, shared_folder};
use crate::server::User;

/// Makes `to` a new cluster of the Postgres in `bin`. Its superuser `postgres` needs no password.
pub(crate) async fn copy(bin: &Path, user: Option<User>, to: &Path) -> Result<()> {
    let template = made(bin, user).await?;
    // Copy-on-write, if the file system supports it.
    let mut copy = as_user("cp".as_ref(), user);
    output_of(copy.args(["-a", "--reflink=auto"]).arg(template).arg(to)).await?;
    Ok(())
}

/// The template's folder, created if it does not exist. Other processes may create it concurrently.
async fn made(bin: &Path, user: Option<User>) -> Result<PathBuf> {
    let version = output_of(Command::new(bin.join("postgres")).arg("--version")).await?;
    let word = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let owner = user.map_or_else(String::new, |user| format!("-{}", user.uid));
    let name = format!("{}{owner}", version.chars().map(word).collect::<String>());
    let folder = shared_folder()?.join("clusters").join(name);
    make_folder(&folder, user)?;
    let template = folder.join("template");
    if template.exists() {
        return Ok(template);
    }
    let lock = File::create(folder.join("lock")).context("making the template's lock")?;
    // `initdb` takes seconds, so the wait is short.
    lock.lock().context("locking the template")?;
    if !template.exists() {
        let half_made = folder.join("half-made");
        fs::remove_dir_all(&half_made).ok();
        let mut initdb = as_user(&bin.join("initdb"), user);
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        output_of(initdb.arg("--pgdata").arg(&half_made)).await?;
        fs::rename(&half_made, &template).context("finishing the template")?;
    }
    Ok(template)
}

/// A folder that the user can use.
pub(crate) fn make_folder(folder: &Path, user: Option<User>) -> Result<()> {
    let context = || format!("making `{}`", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    if let Some(User { uid, gid }) = user {
        chown(folder, Some(uid), Some(gid)).with_context(context)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).with_context(context)?;
    }
    Ok(())
}

/// A file that only the user can read.
pub(crate) fn put(bytes: &[u8], file: &Path, user: Option<User>) -> Result<()> {
    let context = || format!("writing `{}`", file.display());
    fs::write(file, bytes).with_context(context)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).with_context(context)?;
    if let Some(User { uid, gid }) = user {
        chown(file, Some(uid), Some(gid)).with_context(context)?;
    }
    Ok(())
}

/// A command run as another user, in a folder that everyone can access.
pub(crate) fn as_user(program: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}
