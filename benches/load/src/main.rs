//! `podium-bench-load`: the cost of a cluster under a load like that of real models: calls of seconds, streams, many tenants, many
//! processes.
//!
//! Processes simulate the models: they wait and write. Everything else is real. Each client asks, reads the whole answer and asks
//! again, so the number of runs under way is the number of clients. Each case prints one line of JSON. Started under the name of
//! one of the cluster's programs, the binary is that program.

mod clients;
mod cluster;
mod tenants;
mod vendor;
mod waits;
mod work;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use podium_bench_measure::{Counts, CpuTimes, rounded};
use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::clients::{CLIENTS, Ended, Order, Processes};
use crate::cluster::{Cluster, Shape, VENDOR};
use crate::waits::Waits;
use crate::work::Durations;

/// Open files that each process needs for the connections of clients, gateways and calls.
const OPEN_FILES: u64 = 200_000;
/// The measured case.
const NOTE: &str = "models are simulated by processes that wait and write 50 tokens a second; all else is real, on one \
                    machine with the clients; the time that a run takes beyond its models' is divided by its plan and the \
                    steps on its longest path";
/// The cases of `--compare`: tenants and executors.
const COMPARED: [(usize, usize); 5] = [(1000, 8), (100, 8), (1000, 2), (1000, 16), (1000, 8)];

/// Measures a cluster under calls of seconds.
#[derive(Debug, Parser)]
struct Arguments {
    /// Concurrent runs; each is one client.
    #[arg(long, default_value_t = 2_000)]
    in_flight: usize,
    /// Tenants, each with a key; the share of the n-th is proportional to 1/n. A fifth of them have a budget.
    #[arg(long, default_value_t = 1_000)]
    tenants: usize,
    /// Gateways.
    #[arg(long, default_value_t = 4)]
    gateways: usize,
    /// Planners.
    #[arg(long, default_value_t = 2)]
    planners: usize,
    /// Executors.
    #[arg(long, default_value_t = 8)]
    executors: usize,
    /// Shortest time until a worker's first token, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    first_token_ms_min: u64,
    /// Longest time until a worker's first token, in milliseconds.
    #[arg(long, default_value_t = 8_000)]
    first_token_ms_max: u64,
    /// Most tokens of a worker's answer, of which it writes 50 a second.
    #[arg(long, default_value_t = 100)]
    tokens_max: u64,
    /// Share of the requests whose answers are streamed, from 0 to 1.
    #[arg(long, default_value_t = 0.5)]
    streamed: f64,
    /// Seconds before the measurement, in which the clients start one after the other.
    #[arg(long, default_value_t = 60)]
    ramp_s: u64,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Deliver metrics, and the traces of this share of the runs, to a collector that discards them. Needs
    /// `OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf` in the environment.
    #[arg(long)]
    traces: Option<f64>,
    /// Measure 1,000 and 100 tenants, and 8, 2 and 16 executors, each case in a new cluster.
    #[arg(long)]
    compare: bool,
}

/// The variable for the protocol to the collector, which the cluster's processes inherit, and the protocol that the collector speaks.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HTTP: &str = "http/protobuf";

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == VENDOR) {
        return vendor::main();
    }
    if Path::new(&called).file_name().is_some_and(|name| name == CLIENTS) {
        return clients::main();
    }
    if let Some(exit_code) = podium_local_cluster::dispatch() {
        return exit_code;
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-bench-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { in_flight, tenants, gateways, planners, executors, .. } = *arguments;
    ensure!(in_flight > 0 && tenants > 0, "--in-flight and --tenants must be at least 1");
    ensure!(gateways > 0 && planners > 0 && executors > 0, "there must be a process of each kind");
    ensure!(
        arguments.first_token_ms_min <= arguments.first_token_ms_max && arguments.tokens_max > 0,
        "--first-token-ms-min must not be above --first-token-ms-max, nor --tokens-max zero"
    );
    ensure!((0.0..=1.0).contains(&arguments.streamed), "--streamed must be from 0 to 1");
    ensure!(
        arguments.traces.is_none() || std::env::var(PROTOCOL).is_ok_and(|value| value == HTTP),
        "--traces needs {PROTOCOL}={HTTP} in the environment"
    );
    raise_open_files()?;
    let cases = if arguments.compare { COMPARED.to_vec() } else { vec![(tenants, executors)] };
    for (tenants, executors) in cases {
        println(&measure(arguments, tenants, executors).await?.to_string());
    }
    Ok(())
}

async fn measure(arguments: &Arguments, tenants: usize, executors: usize) -> Result<Value> {
    let first_token_ms = (arguments.first_token_ms_min, arguments.first_token_ms_max);
    let shape = Shape {
        gateways: arguments.gateways,
        planners: arguments.planners,
        executors,
        tenants,
        in_flight: arguments.in_flight,
        durations: Durations { first_token_ms, tokens_max: arguments.tokens_max },
        traces: arguments.traces,
    };
    let (cluster, tenants) = Cluster::start(&std::env::current_exe()?, &shape).await?;
    let idle = cluster.resident();
    let ramp = Duration::from_secs(arguments.ramp_s);
    let order = Order {
        gateways: cluster.gateways.iter().map(|gateway| gateway.address(0)).collect(),
        tenants,
        durations: shape.durations,
        clients: shape.in_flight.try_into()?,
        start: ramp / 2,
        streamed: arguments.streamed,
        processes: 1,
        process: 0,
    };
    let mut clients = Processes::start(&cluster.clients_program(), order).await?;
    SystemClock.sleep(ramp).await;
    let in_ramp = clients.take().await?;
    let before = Reading::of(&cluster).await?;
    let begun = Instant::now();
    SystemClock.sleep(Duration::from_secs(arguments.seconds)).await;
    let wall = begun.elapsed();
    let ended = clients.take().await?;
    let used = Reading::of(&cluster).await?.since(&before);
    let memory = memory(idle, cluster.resident());
    clients.stop().await?;
    cluster.stop().await?;
    let runs = u32::try_from(ended.runs)?;
    ensure!(runs > 0, "no run ended in the measured time; {}", errors(&in_ramp, &ended));
    let mut line = json!({
        "in_flight": shape.in_flight, "under_way_at_the_end": ended.under_way, "tenants": shape.tenants,
        "streamed": arguments.streamed, "traces": arguments.traces, "gateways": shape.gateways, "planners": shape.planners, "executors": executors,
        "runs_per_s": rounded(f64::from(runs) / wall.as_secs_f64()),
        "steps_per_run": rounded(approximate(ended.steps) / f64::from(runs)),
        "failed": ended.failed + in_ramp.failed, "errors": errors(&in_ramp, &ended),
        "added_ms_per_step": { "p50": percentile(&ended, 0.5)?, "p99": percentile(&ended, 0.99)? },
        "memory_of_a_process": memory, "note": NOTE,
    });
    if let (Some(line), Value::Object(used)) = (line.as_object_mut(), used.per_run(runs)) {
        line.extend(used);
    }
    Ok(line)
}

/// Counters of everything at one moment, or their difference between two.
struct Reading {
    cpu: CpuTimes,
    counts: Counts,
    waits: Waits,
}

impl Reading {
    async fn of(cluster: &Cluster) -> Result<Self> {
        let (counts, waits) =
            (Counts::read(&cluster.servers()).await?, Waits::read(cluster.executors()).await?);
        Ok(Self { cpu: CpuTimes::read()?, counts, waits })
    }

    fn since(&self, before: &Self) -> Self {
        let (cpu, counts) = (self.cpu.since(&before.cpu), self.counts.since(&before.counts));
        Self { cpu, counts, waits: self.waits.since(&before.waits) }
    }

    fn per_run(&self, runs: u32) -> Value {
        let sum = |prefix, suffix| rounded(self.counts.sum(prefix, suffix) / f64::from(runs));
        json!({
            "cpu_ms_per_run": self.cpu.ms_per_run(runs),
            "step_waited_at_most_ms": { "p50": self.waits.bound_ms(0.5), "p99": self.waits.bound_ms(0.99) },
            "statements_per_run": sum("postgres.", ".calls"),
            "nats_messages_per_run": { "in": sum("nats.in_msgs", ""), "out": sum("nats.out_msgs", "") },
            "redis_calls_per_run": sum("redis.", ""),
            "counts_per_run": self.counts.per_run(runs),
        })
    }
}

/// Memory of each kind of process before the load and under it.
fn memory(idle: [(&'static str, u64); 3], loaded: [(&'static str, u64); 3]) -> Value {
    let figures = idle.into_iter().zip(loaded).map(|((name, idle), (_, loaded))| {
        (name.to_owned(), json!({ "idle_mib": mib(idle), "loaded_mib": mib(loaded) }))
    });
    Value::Object(figures.collect())
}

/// Raises the number of files that this process and its children may open.
pub(crate) fn raise_open_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Some(maximum.unwrap_or(OPEN_FILES).max(OPEN_FILES));
    // Only root may raise the hard limit.
    if setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).is_err() {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
            .context("the limit of open files cannot be raised")?;
    }
    Ok(())
}

fn errors(in_ramp: &Ended, ended: &Ended) -> String {
    in_ramp.errors.iter().chain(&ended.errors).cloned().collect::<Vec<_>>().join("; ")
}

fn percentile(ended: &Ended, share: f64) -> Result<f64> {
    let mut added = ended.added_ms.clone();
    added.sort_by(f64::total_cmp);
    let last = u32::try_from(added.len().saturating_sub(1))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the length")]
    let place = (f64::from(last) * share).round() as usize;
    added.get(place).copied().map(rounded).context("no run ended")
}

fn mib(bytes: u64) -> f64 {
    rounded(approximate(bytes) / f64::from(1 << 20))
}

#[expect(clippy::cast_precision_loss, reason = "counters stay far below 2 to the power of 52")]
fn approximate(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::print_stdout, reason = "the result")]
fn println(line: &str) {
    println!("{line}");
}
