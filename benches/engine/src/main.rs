//! `podium-bench-engine`: how many workflows a second a cluster on this machine runs when its workers cost nothing, and what
//! each workflow costs. A workflow is a chain of three steps; what a step's worker says is there at once, inside the executor.
//! The rest are Podium's real parts: HTTP API, engine, Postgres with fsync, NATS with files, Redis limits, each a separate process.
//!
//! It prints one line of JSON. Under the name of one of the cluster's programs it is that program.

mod client;
mod cluster;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use podium_bench_measure::{Counts, CpuTimes, rounded};
use serde_json::json;

use client::Clients;
use cluster::{Cluster, Shape};

/// Workflows before the measured ones, for each one in flight: connections, caches and prepared statements are there then.
const WARM_UP_EACH: usize = 4;
/// The workers of the measured cluster, as the output names them.
const NOTE: &str = "a chain of 3 steps; workers answer at once inside the executor; clients over HTTP watch half of the \
                    runs; Postgres fsync on, NATS JetStream in files, limits in Redis; warm-up not counted";

/// Measures Podium's own cost of a workflow.
#[derive(Debug, Parser)]
struct Arguments {
    /// Workflows to measure.
    #[arg(long, default_value_t = 2_000)]
    runs: usize,
    /// Workflows under way at the same time.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Executors.
    #[arg(long, default_value_t = 1)]
    executors: usize,
    /// Also count what a workflow asks of Postgres, NATS and Redis. Counting costs time: measure without.
    #[arg(long)]
    count: bool,
}

fn main() -> ExitCode {
    if let Some(exit_code) = cluster::dispatch() {
        return exit_code;
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-bench-engine: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { runs, in_flight, executors, count } = *arguments;
    ensure!(
        runs > 0 && in_flight > 0 && executors > 0,
        "--runs, --in-flight and --executors must be at least 1"
    );
    let binary = std::env::current_exe()?;
    let cluster =
        Cluster::start(&binary, &Shape { executors, slots: 2 * in_flight, is_counted: count }).await?;
    let clients = Clients::connect(cluster.gateway(), in_flight).await?;
    clients.ask(WARM_UP_EACH * in_flight).await?;
    let counts_before = if count { Some(Counts::read(&cluster.servers()).await?) } else { None };
    let (cpu_before, begun) = (CpuTimes::read()?, Instant::now());
    let mut latencies = clients.ask(runs).await?;
    let wall = begun.elapsed();
    let cpu = CpuTimes::read()?.since(&cpu_before);
    latencies.sort_unstable();
    let percentile = |share: usize| {
        let place = (latencies.len() * share).div_ceil(100).saturating_sub(1);
        latencies.get(place).map(|latency| rounded(latency.as_secs_f64() * 1e3)).context("no latencies")
    };
    let of_runs = u32::try_from(runs)?;
    let mut line = json!({
        "engine": "podium",
        "runs": runs,
        "in_flight": in_flight,
        "wall_s": rounded(wall.as_secs_f64()),
        "per_s": rounded(f64::from(of_runs) / wall.as_secs_f64()),
        "p50_ms": percentile(50)?,
        "p99_ms": percentile(99)?,
        "cpu_ms_per_run": cpu.ms_per_run(of_runs),
        "note": NOTE,
    });
    if let Some(before) = counts_before {
        line["counts_per_run"] = Counts::read(&cluster.servers()).await?.since(&before).per_run(of_runs);
    }
    drop(clients);
    cluster.stop().await?;
    println(&line.to_string());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn println(line: &str) {
    println!("{line}");
}
