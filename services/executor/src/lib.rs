//! The executor: calls workers. It keeps nothing; any number may run, and any may be killed.
#![deny(missing_docs)]

use std::process::ExitCode;

use podium_cluster::{
    EXECUTOR, Program, Work, check_work, executor_keys, main as process, work_until_signal,
};

const PROGRAM: Program = Program {
    name: EXECUTOR,
    version: env!("CARGO_PKG_VERSION"),
    about: "An executor of a Podium cluster: calls the vendors' models for the steps of each run.",
};

/// Runs the process.
pub fn main() -> ExitCode {
    let check = |sources| check_work(sources, Work::Execute);
    process(&PROGRAM, &executor_keys(), check, |settings| work_until_signal(settings, Work::Execute))
}
