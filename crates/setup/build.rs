//! Passes the commit that the programs are built from to the compiler, as `PODIUM_BUILD`: `+` and its first twelve digits, or
//! nothing.
//!
//! The commit is that of the variable `PODIUM_COMMIT`. Without it, release builds ask git. Other builds have no commit, because each
//! new commit would compile this crate and its dependents again.

use std::env;
use std::path::Path;
use std::process::Command;

/// As many as git needs for repositories of any size.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=PODIUM_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let named = env::var("PODIUM_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named.or_else(|| is_release.then(commit_of_git).flatten());
    let commit = commit.as_deref().and_then(shortened);
    println!(
        "cargo::rustc-env=PODIUM_BUILD={}",
        commit.map(|commit| format!("+{commit}")).unwrap_or_default()
    );
}

/// The first digits of a commit; `None` if it is something else, such as `unknown`.
fn shortened(commit: &str) -> Option<&str> {
    let is_commit = commit.len() >= DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    commit.get(..DIGITS).filter(|_| is_commit)
}

/// The commit of the checkout. A new commit or another branch compiles the crate again.
fn commit_of_git() -> Option<String> {
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // A missing file would compile the crate at every build.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
