//! Many executors share a vendor's limits through Redis: how much of what is allowed do they use, and how often are they
//! answered 429?
//!
//! Each executor is a limiter with a connection and an instance of its own, and a client of its own for the vendor; or a process of
//! a whole cluster. The vendor is vendor-sim, which refuses what is above its limit in any sixty seconds whatever, or another
//! server that counts. Under the name of one of the cluster's programs this is that program.

mod cluster;
mod decisions;
mod executor;
mod prompt;
mod pull;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use podium_domain::pool::Pool;
use podium_harness::Redis;
use podium_ports::clock::Clock;
use podium_setup::SystemClock;
use podium_vendor_sim::{AccountLimit, Behaviour, Milliseconds, Options as SimOptions, VendorSim};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::executor::{Executor, Tally};

/// The share of the scarcer one of requests and tokens that must be used.
const USED_MIN: f64 = 0.95;
/// How many calls may be answered 429.
const LIMITED_MAX: f64 = 0.01;
/// Decides the simulated vendor's latencies.
const SEED: u64 = 7;

/// Many executors against a vendor's limits.
#[derive(Parser, Clone)]
struct Arguments {
    /// How long is measured.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Executors, each with its own connections.
    #[arg(long, default_value_t = 32)]
    executors: u32,
    /// Calls that each executor would make at the same time.
    #[arg(long, default_value_t = 4)]
    callers: u32,
    /// Limit of the account.
    #[arg(long, default_value_t = 600)]
    requests_per_minute: u64,
    /// Limit of the account.
    #[arg(long, default_value_t = 100_000)]
    tokens_per_minute: u64,
    /// Words of a prompt at most; it has at least a third of that. The answer repeats them.
    #[arg(long, default_value_t = 40)]
    prompt_words: u64,
    /// Most tokens of an answer, as the calls ask for.
    #[arg(long, default_value_t = 512)]
    output_tokens_max: u32,
    /// Measure a whole cluster instead, with so many executors, each a process of its own; vendor-sim counts.
    #[arg(long, conflicts_with_all = ["base_url", "executors"])]
    processes: Option<usize>,
    /// Measure instead whether runs of one vendor are slowed down by runs that wait for another.
    #[arg(long)]
    pull: bool,
    /// Measure instead what a permit costs: CPU of Redis, and time.
    #[arg(long, conflicts_with = "pull")]
    decisions: bool,
    /// Where another server than vendor-sim speaks Chat Completions.
    #[arg(long)]
    base_url: Option<String>,
}

/// The results of the measured time.
#[derive(Debug, Default)]
struct Counted {
    /// Calls at the same time.
    callers: u64,
    /// Requests that took of what is allowed.
    used: u64,
    /// Tokens that they took.
    tokens: u64,
    /// Calls answered 429.
    limited: u64,
    /// Calls that failed otherwise.
    failed: u64,
    /// Number of refusals by the limiters.
    refused_asks: u64,
}

fn main() -> ExitCode {
    if let Some(exit_code) = podium_local_cluster::dispatch() {
        return exit_code;
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-bench-limits: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> Result<()> {
    if arguments.pull {
        return pull::run().await;
    }
    if arguments.decisions {
        return decisions::run().await;
    }
    let counted = match arguments.processes {
        Some(executors) => cluster::run(arguments, executors).await?,
        None => limiters(arguments).await?,
    };
    report(arguments, &counted)
}

/// The limiters alone, all in this process.
async fn limiters(arguments: &Arguments) -> Result<Counted> {
    let redis = Redis::start().await?;
    let sim = VendorSim::start(sim_options(arguments)).await?;
    let base_url = arguments.base_url.clone().unwrap_or_else(|| sim.base_url());
    let pool = Arc::new(Pool::parse(&pool(arguments, &base_url))?);
    let (tally, stop, mut tasks) = (Arc::new(Tally::default()), CancellationToken::new(), JoinSet::new());
    for number in 0..arguments.executors {
        let executor = Executor::start(&redis.url(), &pool, &tally, &stop, &mut tasks)?;
        for caller in 0..arguments.callers {
            let seed = u64::from(number * arguments.callers + caller);
            let (words, tokens) = (arguments.prompt_words, arguments.output_tokens_max);
            tasks.spawn(executor.clone().call_until_stopped(seed, words, tokens));
        }
    }
    SystemClock.sleep(Duration::from_secs(arguments.seconds)).await;
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.context("an executor panicked")?;
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(Counted {
        callers: (arguments.executors * arguments.callers).into(),
        used: count(&tally.answered),
        tokens: count(&tally.tokens),
        limited: count(&tally.limited),
        failed: count(&tally.failed),
        refused_asks: count(&tally.refused),
    })
}

fn sim_options(arguments: &Arguments) -> SimOptions {
    let limit = AccountLimit {
        requests_per_minute: arguments.requests_per_minute,
        tokens_per_minute: arguments.tokens_per_minute,
    };
    let behaviour = Behaviour { first_token_ms: Milliseconds { min: 200, max: 800 }, ..Behaviour::default() };
    SimOptions { limit, behaviour, ..SimOptions::loopback(SEED) }
}

fn pool(arguments: &Arguments, base_url: &str) -> String {
    let Arguments { requests_per_minute, tokens_per_minute, output_tokens_max, .. } = arguments;
    format!(
        r#"
schema = 1
name = "limits"
version = "1"

[[vendors]]
id = "vendor"
api = "openai-chat"
base_url = "{base_url}"

[[workers]]
id = "worker"
vendor = "vendor"
model = "sim-echo"
description = "repeats what it is asked"
context_tokens = 100000
output_tokens_max = {output_tokens_max}
usd_per_million_tokens = {{ input = 0.0, output = 0.0 }}

[workers.limits]
in_flight_max = 10000
requests_per_minute = {requests_per_minute}
tokens_per_minute = {tokens_per_minute}
"#
    )
}

#[expect(clippy::cast_precision_loss, reason = "they are small")]
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn report(arguments: &Arguments, counted: &Counted) -> Result<()> {
    let Counted { callers, used, tokens, limited, failed, refused_asks } = counted;
    let share = |used: u64, per_minute: u64| used as f64 * 60.0 / (per_minute * arguments.seconds) as f64;
    let of_requests = share(*used, arguments.requests_per_minute);
    let of_tokens = share(*tokens, arguments.tokens_per_minute);
    let of_calls = *limited as f64 / (used + limited).max(1) as f64;
    let (scarce, most) =
        if of_requests >= of_tokens { ("requests", of_requests) } else { ("tokens", of_tokens) };
    let line = json!({
        "seconds": arguments.seconds, "executors": arguments.processes.unwrap_or(arguments.executors as usize),
        "are_processes": arguments.processes.is_some(), "callers": callers, "scarce": scarce,
        "answered": used, "answered_429": limited, "failed": failed, "refused_asks": refused_asks,
        "share_of_requests": of_requests, "share_of_tokens": of_tokens, "share_answered_429": of_calls,
    });
    println!("{line}");
    ensure!(most >= USED_MIN, "used {most:.3} of the {scarce}, at least {USED_MIN} is expected");
    ensure!(
        of_calls < LIMITED_MAX,
        "{of_calls:.4} of the calls were answered 429, less than {LIMITED_MAX} is expected"
    );
    Ok(())
}
