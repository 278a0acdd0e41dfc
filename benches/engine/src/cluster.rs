//! The cluster that is measured: servers and Podium's processes, all on loopback, all gone when the value is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use podium_bench_measure::{Backbone, Servers, name_programs, start_gateway, start_worker};
use podium_harness::Service;
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
    backbone: Backbone,
    _files: TempDir,
}

impl Cluster {
    /// Starts everything. `binary` is a program whose `main` asks [`dispatch`].
    pub(crate) async fn start(binary: &Path, shape: &Shape) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("podium-bench-").tempdir()?;
        name_programs(files.path(), binary, &[GATEWAY, PLANNER, EXECUTOR])?;
        let [gateway, planner, executor] = [GATEWAY, PLANNER, EXECUTOR].map(|name| files.path().join(name));
        let write = |name: &str, text: &str| -> Result<String> {
            let path = files.path().join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {name}"))?;
            Ok(path.display().to_string())
        };
        let backbone = Backbone::start(shape.is_counted).await?;
        let mut settings = backbone.settings();
        settings.extend([
            ("pool", write("pool.toml", POOL)?),
            ("conductor", format!("fixed:{}", write("chain.yaml", WORKFLOW)?)),
            ("step_slots", shape.slots.to_string()),
        ]);
        let mut workers = vec![start_worker(&planner, &settings).await?];
        for _ in 0..shape.executors {
            workers.push(start_worker(&executor, &settings).await?);
        }
        let gateway = start_gateway(&gateway, &settings).await?;
        Ok(Self { gateway, workers, backbone, _files: files })
    }

    /// Where the gateway serves HTTP.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.gateway.address(0)
    }

    /// The servers whose work is counted.
    pub(crate) fn servers(&self) -> Servers {
        self.backbone.servers()
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
