//! DBOS Transact for Rust: a workflow of three no-op steps, run in this process, checkpointed in Postgres. Prints one line of
//! JSON.

mod cpu;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use dbos::{Config, DBOS, Error, step};
use serde_json::json;
use tokio::task::JoinSet;

const CONNECTIONS_MAX: u32 = 20;
const WARM_UP_RUNS: u32 = 3;

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long)]
    runs: u32,
    #[arg(long)]
    in_flight: u32,
    /// `postgres://` address of a separate database.
    #[arg(long)]
    database: String,
    /// A server whose CPU time counts, too: `NAME=PID`.
    #[arg(long)]
    server: Vec<String>,
}

async fn add_one(number: u32) -> Result<u32, Error> {
    Ok(number + 1)
}

async fn three_steps(number: u32) -> Result<u32, Error> {
    let number = step("first", move || add_one(number)).await?;
    let number = step("second", move || add_one(number)).await?;
    step("third", move || add_one(number)).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let config = Config {
        app_version: Some("bench".to_owned()),
        max_connections: CONNECTIONS_MAX,
        ..Config::new("bench", &arguments.database)
    };
    let dbos = DBOS::new(config);
    let workflow = dbos.register_workflow("three_steps", three_steps).map_err(failed)?;
    dbos.launch().await.map_err(failed)?;
    let workflow = Arc::new(workflow);
    for number in 0..WARM_UP_RUNS {
        workflow.run(number).await.map_err(failed)?;
    }

    let mut processes = vec![("client".to_owned(), std::process::id())];
    for server in &arguments.server {
        let (name, pid) = server.split_once('=').context("a server is NAME=PID")?;
        processes.push((name.to_owned(), pid.parse()?));
    }
    let before = cpu::seconds_of(&processes)?;
    let (next, runs) = (Arc::new(AtomicU32::new(0)), arguments.runs);
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..arguments.in_flight {
        let (workflow, next) = (Arc::clone(&workflow), Arc::clone(&next));
        callers.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= runs {
                    return Ok(times);
                }
                let begun = Instant::now();
                let result = workflow.run(number).await.map_err(failed)?;
                ensure!(result == number + 3, "run {number} gave {result}");
                times.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
        });
    }
    let mut times = Vec::new();
    while let Some(caller) = callers.join_next().await {
        times.extend(caller??);
    }
    let wall_s = begun.elapsed().as_secs_f64();
    let after = cpu::seconds_of(&processes)?;
    if times.len() != runs as usize {
        bail!("{} of {runs} runs ended", times.len());
    }
    times.sort_by(f64::total_cmp);
    let per_run = |seconds: f64| rounded(seconds * 1000.0 / f64::from(runs));
    let cpu = processes.iter().zip(before.iter().zip(&after));
    let cpu: serde_json::Map<_, _> =
        cpu.map(|((name, _), (before, after))| (name.clone(), json!(per_run(after - before)))).collect();
    let line = json!({
        "engine": "DBOS Rust 0.5.0",
        "runs": runs,
        "in_flight": arguments.in_flight,
        "wall_s": rounded(wall_s),
        "per_s": rounded(f64::from(runs) / wall_s),
        "p50_ms": rounded(percentile(&times, 50)),
        "p99_ms": rounded(percentile(&times, 99)),
        "cpu_ms_per_run": cpu,
    });
    println!("{line}");
    dbos.shutdown().await;
    Ok(())
}

/// The crate's errors are not all of a kind that `anyhow` takes.
fn failed(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow::anyhow!("{error:?}")
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
