//! The cluster that is measured: servers and Podium's processes, all on loopback, all gone when the value is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use podium_harness::{Nats, Postgres, Redis, Service};
use sqlx::{Connection as _, PgConnection};
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

/// What the cluster consists of, beside a gateway and a planner.
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
    pub(crate) nats: Nats,
    pub(crate) redis: Redis,
    pub(crate) database: String,
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
            account_for_statements(&mut postgres, &database).await?;
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
            redis,
            database,
            _postgres: postgres,
            _files: files,
        })
    }

    /// Where the HTTP door is.
    pub(crate) fn door(&self) -> SocketAddr {
        self.gateway.address(0)
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

/// Makes the server count statements by their text. It has to start again for it.
async fn account_for_statements(postgres: &mut Postgres, database: &str) -> Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    sqlx::raw_sql("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    postgres.restart().await?;
    let mut connection = PgConnection::connect(database).await?;
    let extension = sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&mut connection).await;
    extension.context("counting needs Postgres's own module pg_stat_statements")?;
    Ok(connection.close().await?)
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
