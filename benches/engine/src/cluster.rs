//! The cluster that is measured: servers and Podium's processes, all on loopback, all gone when the value is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use podium_bench_measure::{Servers, count_statements};
use podium_harness::{Nats, Postgres, Redis, Service};
use tempfile::TempDir;

use crate::worker::{self, EXECUTOR};

const GATEWAY: &str = "podium-gateway";
const PLANNER: &str = "podium-planner";
/// Where the worker is said to be. Nobody ever asks there.
const POOL: &str = r#"
schema = 1
name = "bench"
version = "1"

[[vendors]]
id = "inside"
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"

[[workers]]
id = "inside"
vendor = "inside"
model = "inside"
description = "Says one word at once."
context_tokens = 8192
output_tokens_max = 1024
usd_per_million_tokens = { input = 0.0, output = 0.0 }
limits = { in_flight_max = 10_000, call_ms_max = 30_000 }
"#;
const WORKFLOW: &str = r#"
name: chain
version: "1"
description: Three steps, each of which sees the one before.
steps:
  - worker: inside
    subtask: Begin.
  - worker: inside
    subtask: Go on.
    sees: [1]
  - worker: inside
    subtask: End.
    sees: [2]
"#;

/// The size of the cluster; it also has a gateway and a planner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) executors: usize,
    /// Steps at the same time, in each executor.
    pub(crate) slots: usize,
    /// Whether Postgres keeps account of its statements.
    pub(crate) is_counted: bool,
}

/// A cluster that runs. The processes are ended first, then what they stand on.
pub(crate) struct Cluster {
    gateway: Service,
    workers: Vec<Service>,
    nats: Nats,
    redis_url: String,
    database: String,
    _redis: Redis,
    _postgres: Postgres,
    _files: TempDir,
}

impl Cluster {
    /// Starts everything. `binary` is a program whose `main` asks [`dispatch`].
    pub(crate) async fn start(binary: &Path, shape: &Shape) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("podium-bench-").tempdir()?;
        let [gateway, planner, executor] = [GATEWAY, PLANNER, EXECUTOR].map(|name| files.path().join(name));
        for program in [&gateway, &planner, &executor] {
            std::os::unix::fs::symlink(binary, program).context("naming the programs")?;
        }
        let write = |name: &str, text: &str| -> Result<String> {
            let path = files.path().join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {name}"))?;
            Ok(path.display().to_string())
        };
        let mut postgres = Postgres::start().await?;
        let database = postgres.database().await?;
        if shape.is_counted {
            count_statements(&mut postgres, &database).await?;
        }
        let (nats, redis) = (Nats::start().await?, Redis::start().await?);
        let settings = [
            ("postgres", database.clone()),
            ("nats", nats.url()),
            ("redis", redis.url()),
            ("pool", write("pool.toml", POOL)?),
            ("conductor", format!("fixed:{}", write("chain.yaml", WORKFLOW)?)),
            ("step_slots", shape.slots.to_string()),
            ("log", "warn".to_owned()),
        ];
        let mut workers = vec![start_worker(&planner, &settings).await?];
        for _ in 0..shape.executors {
            workers.push(start_worker(&executor, &settings).await?);
        }
        let gateway = Service::start(&gateway, |[http, grpc]: [SocketAddr; 2]| {
            let own = [("listen", http.to_string()), ("grpc_listen", grpc.to_string())];
            arguments(settings.iter().chain(&own))
        });
        Ok(Self {
            gateway: gateway.await?,
            workers,
            nats,
            redis_url: redis.url(),
            database,
            _redis: redis,
            _postgres: postgres,
            _files: files,
        })
    }

    /// Where the gateway serves HTTP.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.gateway.address(0)
    }

    /// The servers whose work is counted.
    pub(crate) fn servers(&self) -> Servers<'_> {
        Servers { database: &self.database, nats_monitor: self.nats.monitor(), redis: &self.redis_url }
    }

    /// Asks every process to end, and waits until all have.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.gateway.terminate().await?;
        for worker in &mut self.workers {
            worker.terminate().await?;
        }
        Ok(())
    }
}

/// Runs as the program by whose name this process was started; `None` if by none of theirs.
pub(crate) fn dispatch() -> Option<ExitCode> {
    let called = PathBuf::from(std::env::args_os().next()?);
    match called.file_name()?.to_str()? {
        GATEWAY => Some(podium_gateway::main()),
        PLANNER => Some(podium_planner::main()),
        EXECUTOR => Some(worker::main()),
        _ => None,
    }
}

async fn start_worker(program: &Path, settings: &[(&'static str, String)]) -> Result<Service> {
    Service::start(program, |[health]: [SocketAddr; 1]| {
        arguments(settings.iter().chain(&[("listen", health.to_string())]))
    })
    .await
}

fn arguments<'s>(settings: impl Iterator<Item = &'s (&'static str, String)>) -> Vec<String> {
    settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]).collect()
}
