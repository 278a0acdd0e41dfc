//! `cargo xtask tidy` checks the rules of this repository that neither the compiler nor clippy knows.
//!
//! It reads the tree and writes nothing.
//! Exit code 0: no rule is broken; 1: the broken rules are listed; 2: the tree could not be read.

mod tidy;
mod tree;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;

use crate::tree::Tree;

const USAGE: &str = "usage: cargo xtask tidy";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [task] if task == "tidy" => tidy_the_repository(),
        _ => bail!("{USAGE}"),
    }
}

fn tidy_the_repository() -> anyhow::Result<ExitCode> {
    let tree = Tree::read(&tree::repository_root()?)?;
    let report = tidy::check(&tree);
    write!(std::io::stdout(), "{report}")?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
