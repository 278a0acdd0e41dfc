//! The `podium-planner` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    podium_planner::main()
}
