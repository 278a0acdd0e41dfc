//! `podium-bench-gateways`: the cost of a gateway for one call of one worker: CPU, memory and latency, of Podium and of peers, for
//! whole and streamed answers.
//!
//! Each system stands in front of the same vendor, which answers at once. The systems take turns in each round, and the medians over
//! the rounds are printed as a Markdown table. Under the name of a program of Podium's, or of the vendor, this binary is that program.

mod client;
mod systems;
mod vendor;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use podium_bench_measure::CpuTimes;

use crate::client::{Target, Took, ask};
use crate::systems::{Kind, PODIUM, Place, System, VENDOR, version};

/// Clients that warm a system up, and for how long.
const WARM_UP: (usize, Duration) = (4, Duration::from_secs(1));
/// Printed with the figures: how they were measured.
const NOTE: &str = "One worker, whose vendor answers at once: 20 words, whole or in 22 chunks. CPU is of all processes of a \
                    system, its servers included, without the clients and the vendor. Memory is of its own processes after the \
                    load, without servers. Latency is added to the vendor's own, at the median. Podium requires keys, keeps \
                    limits and a budget, and stores every run; the peers require no key and store nothing.";

/// Measures the cost of one call through Podium and through other gateways.
#[derive(Debug, Parser)]
struct Arguments {
    /// Numbers of clients, each of which has one request under way.
    #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
    clients: Vec<usize>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds, of which the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A virtual environment with `nemo-switchyard`.
    #[arg(long, value_name = "FOLDER")]
    switchyard: Option<PathBuf>,
    /// A virtual environment with `litellm[proxy]`.
    #[arg(long, value_name = "FOLDER")]
    litellm: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Measured {
    per_s: f64,
    first_ms: f64,
    median_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
    memory_mb: f64,
}

/// A case: the system's place in the list, whether answers were streamed, and the clients.
type Case = (usize, bool, usize);

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_owned();
    if called == VENDOR {
        return vendor::main();
    }
    if called == PODIUM {
        return podium::main();
    }
    if let Some(exit_code) = podium_local_cluster::dispatch() {
        return exit_code;
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-bench-gateways: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
async fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { clients, rounds, switchyard, litellm, .. } = arguments;
    ensure!(
        *rounds > 0 && clients.iter().all(|clients| *clients > 0),
        "--rounds and --clients must be at least 1"
    );
    let binary = std::env::current_exe()?;
    let place = Place::new(&binary).await?;
    let profile = binary.parent().and_then(Path::file_name).unwrap_or_default().display().to_string();
    let mut systems = vec![
        (Kind::Vendor, None, String::new()),
        (Kind::Embedded, None, format!("{} ({profile})", env!("CARGO_PKG_VERSION"))),
        (Kind::Cluster, None, format!("{} ({profile})", env!("CARGO_PKG_VERSION"))),
    ];
    for (kind, venv, package) in
        [(Kind::Switchyard, switchyard, "nemo-switchyard"), (Kind::LiteLlm, litellm, "litellm")]
    {
        match venv {
            Some(venv) => systems.push((kind, Some(venv.as_path()), version(venv, package).await?)),
            None => eprintln!("LEFT OUT: {}, which is not installed", kind.name()),
        }
    }
    let mut measured: BTreeMap<Case, Vec<Measured>> = BTreeMap::new();
    for round in 1..=*rounds {
        for (index, (kind, venv, _)) in systems.iter().enumerate() {
            let system = place.start(*kind, *venv).await.with_context(|| kind.name())?;
            eprintln!("round {round}: {} (load {})", kind.name(), load());
            for (is_streamed, clients) in
                [false, true].into_iter().flat_map(|s| clients.iter().map(move |c| (s, *c)))
            {
                let span = Duration::from_secs(arguments.seconds);
                let one = measure(&system, is_streamed, clients, span).await.with_context(|| kind.name())?;
                measured.entry((index, is_streamed, clients)).or_default().push(one);
            }
        }
    }
    let names: Vec<_> =
        systems.iter().map(|(kind, _, version)| format!("{} {version}", kind.name())).collect();
    println!("{}", table(&names, &measured));
    println!(
        "{NOTE}\n\n{}, load {}; medians of {rounds} rounds of {} s.",
        machine(),
        load(),
        arguments.seconds
    );
    Ok(())
}

async fn measure(system: &System, is_streamed: bool, clients: usize, span: Duration) -> Result<Measured> {
    let target = Target { address: system.address, key: system.key.clone(), is_streamed };
    ask(&target, WARM_UP.0.min(clients), WARM_UP.1).await?;
    let (before, begun) = (CpuTimes::read()?, Instant::now());
    let Took { first, whole } = ask(&target, clients, span).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let requests = u32::try_from(whole.len())?;
    let cpu = CpuTimes::read()?.since(&before).ms_per_run(requests);
    let own = cpu.as_object().into_iter().flatten().filter(|(name, _)| !is_of_the_bench(name));
    let cpu_us = own.filter_map(|(_, ms)| ms.as_f64()).fold(0.0, |sum, ms| sum + ms) * 1e3;
    let at = |took: &[Duration], hundredths: usize| {
        took.get(took.len() * hundredths / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3)
    };
    Ok(Measured {
        per_s: f64::from(requests) / seconds,
        first_ms: at(&first, 50),
        median_ms: at(&whole, 50),
        p99_ms: at(&whole, 99),
        cpu_us,
        memory_mb: f64::from(u32::try_from(system.resident_bytes() >> 10)?) / 1024.0,
    })
}

/// Whether a program is a client or the vendor. Linux keeps 15 characters of a name.
fn is_of_the_bench(name: &str) -> bool {
    name == "client" || VENDOR.starts_with(name) && name.len() == 15
}

fn table(names: &[String], measured: &BTreeMap<Case, Vec<Measured>>) -> String {
    let mut text =
        "| answers | clients | system | requests/s | first word: added ms | added ms | p99 ms | CPU us a request | memory MB |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    let mut cases: Vec<_> = measured.iter().collect();
    cases.sort_by_key(|((system, is_streamed, clients), _)| (*is_streamed, *clients, *system));
    for ((system, is_streamed, clients), rounds) in cases {
        let median_of =
            |rounds: &[Measured], of: fn(&Measured) -> f64| median(rounds.iter().map(of).collect());
        let vendor = measured.get(&(0, *is_streamed, *clients)).map_or(&[][..], Vec::as_slice);
        let added = |of: fn(&Measured) -> f64| median_of(rounds, of) - median_of(vendor, of);
        let answers = if *is_streamed { "streamed" } else { "whole" };
        let _ = writeln!(
            text,
            "| {answers} | {clients} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
            names[*system].trim(),
            median_of(rounds, |m| m.per_s),
            added(|m| m.first_ms),
            added(|m| m.median_ms),
            median_of(rounds, |m| m.p99_ms),
            median_of(rounds, |m| m.cpu_us),
            median_of(rounds, |m| m.memory_mb),
        );
    }
    text
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The processor and how many of it there are.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{count} processors ({})", model.map_or("unknown", |(_, model)| model))
}

/// How many programs wanted to run in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_and_the_latency_beyond_the_vendors() {
        let one = |median_ms, cpu_us| Measured {
            per_s: 100.0,
            first_ms: median_ms / 2.0,
            median_ms,
            p99_ms: 9.0,
            cpu_us,
            memory_mb: 50.0,
        };
        let measured = BTreeMap::from([
            ((0, false, 16), vec![one(0.5, 0.0)]),
            ((1, false, 16), vec![one(2.0, 300.0), one(1.5, 200.0), one(9.0, 900.0)]),
        ]);
        let names = ["vendor alone ".to_owned(), "Podium 1".to_owned()];
        let rows: Vec<_> = table(&names, &measured).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(rows[1], "| whole | 16 | Podium 1 | 100 | 0.75 | 1.50 | 9.00 | 300 | 50 |");
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn only_clients_and_the_vendor_are_left_out_of_a_systems_cpu() {
        assert!(is_of_the_bench("client") && is_of_the_bench("podium-gateways"));
        assert!(!is_of_the_bench("podium-gateway") && !is_of_the_bench("podium"));
    }
}
