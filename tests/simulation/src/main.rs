//! Runs worlds: many seeds, or one seed with its trace.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use podium_simulation::{Mutation, Settings, Tracing, command, simulate};

/// Runs the engine in simulated worlds. Exits with 1 if an invariant is violated.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this seed.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print a line for each event of the seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Break a promise that the engine relies on.
    #[arg(long)]
    mutation: Option<Mutation>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let tracing = if arguments.trace { Tracing::Print } else { Tracing::Off };
    let settings = Settings { tracing, mutation: arguments.mutation };
    let seeds = match arguments.seed {
        Some(seed) => seed..=seed,
        None => arguments.from..=arguments.from.saturating_add(arguments.seeds.saturating_sub(1)),
    };
    let mut out = std::io::stdout();
    let (begun, mut done, mut failed) = (Instant::now(), 0u32, 0u32);
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for seed in seeds {
        let report = simulate(seed, settings)?;
        done += 1;
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
        if let Some(violation) = report.violation {
            failed += 1;
            writeln!(out, "seed {seed}: {violation}\n    {}", command(seed, arguments.mutation))?;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    for (what, count) in counts {
        writeln!(out, "{count:>9} {what}")?;
    }
    writeln!(out, "{done} seeds, {failed} failed, {:.1} seeds a second", f64::from(done) / seconds)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
