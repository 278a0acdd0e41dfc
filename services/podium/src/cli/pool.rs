//! `podium pool check`: whether a pool file is right, and what is in it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_domain::pool::{Pool, Worker};

use super::SetupArgs;
use super::output::print_line;
use crate::error::Error;
use crate::settings::PoolChoice;

#[derive(Debug, Subcommand)]
pub(super) enum PoolCommand {
    /// Check a pool file and list its workers.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The file; by default the pool of the settings.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    setup: SetupArgs,
}

pub(super) fn pool(command: PoolCommand) -> Result<ExitCode, Error> {
    let PoolCommand::Check(args) = command;
    let choice = match args.file {
        Some(file) => PoolChoice::File(file),
        None => args.setup.settings()?.pool,
    };
    let pool = crate::pool::read(&choice)?;
    let (workers, vendors) = (pool.workers().len(), pool.vendors().len());
    print_line(&format!("pool {}: {workers} workers of {vendors} vendors", pool.version()))?;
    pool.workers().iter().try_for_each(|worker| print_line(&line(worker)))?;
    missing_keys(&pool)
        .for_each(|name| eprintln!("podium: {name} is not set; its vendor's workers cannot be called"));
    Ok(ExitCode::SUCCESS)
}

fn line(worker: &Worker) -> String {
    format!(
        "  {}  {} at {}  ${} in, ${} out a million tokens",
        worker.id,
        worker.model,
        worker.vendor,
        worker.prices.input.usd_per_million_tokens(),
        worker.prices.output.usd_per_million_tokens(),
    )
}

fn missing_keys(pool: &Pool) -> impl Iterator<Item = &str> {
    let keys = pool.vendors().iter().filter_map(|vendor| vendor.api_key_env.as_deref());
    keys.filter(|name| std::env::var_os(name).is_none_or(|key| key.is_empty()))
}
