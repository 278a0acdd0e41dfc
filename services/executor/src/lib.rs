//! The executor: calls workers. It keeps nothing; any number may run, and any may be killed.
#![deny(missing_docs)]

use std::process::ExitCode;

use podium_cluster::{Work, check_work, main as process, work_keys, work_until_signal};

/// Runs the process.
pub fn main() -> ExitCode {
    let serve = |settings| work_until_signal(settings, Work::Execute);
    process("podium-executor", env!("CARGO_PKG_VERSION"), &work_keys(), check_work, serve)
}
