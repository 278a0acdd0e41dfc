//! `podium-local-cluster`: starts a cluster on this machine, prints its addresses, and ends it on a signal. Started under the name of
//! one of the cluster's programs, the binary is that program.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use podium_local_cluster::{Cluster, Shape, dispatch};
use tokio::signal::unix::{SignalKind, signal};

/// A cluster on this machine: Postgres, NATS, Redis, simulated workers, and Podium's processes. Its data is deleted at the end.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of gateways.
    #[arg(long, default_value_t = 1)]
    gateways: usize,
    /// Number of planners.
    #[arg(long, default_value_t = 1)]
    planners: usize,
    /// Number of executors.
    #[arg(long, default_value_t = 2)]
    executors: usize,
    /// The conductor: `llama:FOLDER`, `fixed:FILE`, `direct` and so on; paths are relative to the repository.
    #[arg(long, default_value = "direct")]
    conductor: String,
    /// The pool file; its workers are simulated. The demo's pool without it.
    #[arg(long)]
    pool: Option<PathBuf>,
}

/// A question that the demo's conductor and its simulated workers can answer.
const QUESTION: &str = "What is 17 times 23, in words?";

fn main() -> ExitCode {
    if let Some(exit_code) = dispatch() {
        return exit_code;
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-local-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: Arguments) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let Arguments { gateways, planners, executors, conductor, pool } = arguments;
    let mut shape = Shape::new(gateways, planners, executors, conductor);
    if let Some(path) = pool {
        shape.pool = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    }
    let binary = std::env::current_exe()?;
    let starting = Cluster::start(&binary, &shape);
    let cluster = tokio::select! {
        cluster = starting => cluster?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    describe(&cluster);
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    cluster.stop().await
}

#[expect(clippy::print_stdout, reason = "the caller wants to know it")]
fn describe(cluster: &Cluster) {
    println!(
        "A Podium cluster runs on this machine. Its workers are simulated, and its data is deleted at the end."
    );
    println!();
    for gateway in &cluster.gateways {
        println!("  gateway    http://{}/v1 (OpenAI), {} (gRPC)", gateway.address(0), gateway.address(1));
        println!("             http://{}/metrics", gateway.address(2));
        println!("             log {}", gateway.log_path().display());
    }
    let health = |name: &str, services: &[podium_harness::Service]| {
        for service in services {
            println!("  {name:<9}  http://{}/readyz and /metrics", service.address(0));
            println!("             log {}", service.log_path().display());
        }
    };
    health("planner", &cluster.planners);
    health("executor", &cluster.executors);
    println!("  Postgres   {}", cluster.database);
    println!("  NATS       {} (nats-server {})", cluster.nats.url(), cluster.nats.version());
    println!("  Redis      {}", cluster.redis.url());
    println!("  workers    {}", cluster.workers.base_url());
    if let Some(gateway) = cluster.gateways.first() {
        println!();
        println!("Ask:         podium ask --server http://{} \"{QUESTION}\"", gateway.address(1));
        println!(
            "             curl http://{}/v1/chat/completions -H 'content-type: application/json' \\",
            gateway.address(0)
        );
        println!(
            "               -d '{{\"model\": \"podium-ultra\", \"messages\": [{{\"role\": \"user\", \"content\": \"{QUESTION}\"}}]}}'"
        );
        println!("Create key:  podium key create --tenant acme --postgres '{}'", cluster.database);
    }
}
