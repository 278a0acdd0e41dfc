//! The simulated vendor as a process.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use podium_vendor_sim::{Arguments, run};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vendor-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<()> {
    let options = Arguments::parse().options()?;
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    Ok(runtime.block_on(run(options))?)
}
