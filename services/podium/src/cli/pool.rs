//! `podium pool check`: checks a pool file, lists its workers, and calls them on request.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use podium_domain::money::{Price, Prices};
use podium_domain::pool::Worker;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;

use super::SetupArgs;
use super::output::print_line;
use crate::error::Error;
use crate::pool::{self, Pace};
use crate::probe;
use crate::report::count;
use crate::settings::PoolChoice;

#[derive(Debug, Subcommand)]
pub(super) enum PoolCommand {
    /// Check a pool file and list its workers.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The file. Without it, the pool of the settings.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Call each worker once with a short question, which costs money, and report the result.
    #[arg(long)]
    call: bool,
    #[command(flatten)]
    setup: SetupArgs,
}

pub(super) async fn pool(command: PoolCommand) -> Result<ExitCode, Error> {
    let PoolCommand::Check(args) = command;
    let choice = match args.file {
        Some(file) => PoolChoice::File(file),
        None => args.setup.settings()?.pool,
    };
    let pool = pool::read(&choice)?;
    let (workers, vendors) = (pool.workers().len(), pool.vendors().len());
    let (workers, vendors) = (count(workers, "worker"), count(vendors, "vendor"));
    print_line(&format!("pool {}: {workers} of {vendors}", pool.version()))?;
    let now = SystemClock.now();
    pool.workers().iter().try_for_each(|worker| print_line(&line(worker, now)))?;
    for worker in pool.unpriced_at(now) {
        eprintln!("podium: worker `{}` has no price list that is valid yet; it cannot be called", worker.id);
    }
    probe::missing_secrets(&pool)?.iter().for_each(|missing| eprintln!("podium: {missing}"));
    if args.call { call(&choice).await } else { Ok(ExitCode::SUCCESS) }
}

/// Fails if a worker fails.
async fn call(choice: &PoolChoice) -> Result<ExitCode, Error> {
    let workers = pool::open(choice, Pace::Instant).await?;
    if workers.are_simulated() {
        print_line("called, though these workers are simulated and tell nothing about a vendor:")?;
    } else {
        print_line("called:")?;
    }
    let results = probe::each(workers.pool()).await;
    workers.close().await;
    let results = results?;
    for (worker, outcome) in &results {
        match outcome {
            Ok(answered) => print_line(&format!("  {worker}  works: {answered}"))?,
            Err(problem) => print_line(&format!("  {worker}  FAILED: {problem}"))?,
        }
    }
    let all_work = results.iter().all(|(_, outcome)| outcome.is_ok());
    Ok(if all_work { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(worker: &Worker, now: Timestamp) -> String {
    let list = worker.prices.at(now);
    let usd = |prices: &Prices| {
        let [input, output] = [prices.input, prices.output].map(Price::usd_per_million_tokens);
        format!("${input} in, ${output} out")
    };
    let long = list
        .long_prompt
        .map(|long| format!(" ({} for prompts above {} tokens)", usd(&long.prices), long.above_tokens));
    let later = worker.prices.iter().filter(|list| list.from > now).count();
    let later = if later == 0 { String::new() } else { format!(", {}", count(later, "later price list")) };
    format!(
        "  {}  {} at {} ({})  {} a million tokens{}{later}",
        worker.id,
        worker.model,
        worker.vendor,
        worker.api,
        usd(&list.prices),
        long.unwrap_or_default(),
    )
}
