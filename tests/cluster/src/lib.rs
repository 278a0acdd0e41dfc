//! A whole cluster on this machine: Postgres, NATS, Redis, simulated workers, gateways, planners and executors, each a
//! process of its own on loopback, all of it gone when the value is dropped.
#![deny(missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use podium_harness::{Fsync, Nats, Postgres, Redis, Service};
use podium_vendor_sim::{Options as SimOptions, Running, VendorSim};
use tempfile::TempDir;

/// The demo's pool, whose workers are simulated.
const POOL: &str = include_str!("../../../pools/demo.toml");
/// Decides latencies and where the simulated generalist errs.
const SIMULATION_SEED: u64 = 7;

/// The names under which this binary is one of the cluster's programs.
pub const PROGRAMS: [&str; 3] = ["podium-gateway", "podium-planner", "podium-executor"];

/// What a cluster consists of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How many gateways.
    pub gateways: usize,
    /// How many planners.
    pub planners: usize,
    /// How many executors.
    pub executors: usize,
    /// Who plans, as in the setting `conductor`.
    pub conductor: String,
    /// Further settings of all processes: key and value.
    pub settings: Vec<(&'static str, String)>,
}

/// A cluster that runs. The processes are ended first, then what they stand on.
pub struct Cluster {
    /// The gateways; the first port of each is HTTP, the second gRPC.
    pub gateways: Vec<Service>,
    /// The planners.
    pub planners: Vec<Service>,
    /// The executors.
    pub executors: Vec<Service>,
    /// The queue.
    pub nats: Nats,
    /// The truth.
    pub postgres: Postgres,
    /// The limits.
    pub redis: Redis,
    /// The workers; in this process, so that calls can be counted.
    pub workers: Running,
    files: TempDir,
}

impl Cluster {
    /// Starts everything. `binary` is a program whose `main` is [`dispatch`].
    pub async fn start(binary: &Path, shape: &Shape) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("podium-cluster-").tempdir()?;
        for name in PROGRAMS {
            std::os::unix::fs::symlink(binary, files.path().join(name)).context("naming the programs")?;
        }
        let workers = VendorSim::start(SimOptions::loopback(SIMULATION_SEED)).await?;
        let pool = files.path().join("pool.toml");
        std::fs::write(&pool, pool_at(&workers.base_url())?).context("writing the pool")?;
        let postgres = Postgres::start_with(Fsync::On).await?;
        let (nats, redis) = (Nats::start().await?, Redis::start().await?);
        let mut settings = vec![
            ("postgres", postgres.database().await?),
            ("nats", nats.url()),
            ("redis", redis.url()),
            ("pool", pool.display().to_string()),
            ("conductor", shape.conductor.clone()),
        ];
        settings.extend(shape.settings.iter().cloned());
        let mut cluster = Self {
            gateways: Vec::new(),
            planners: Vec::new(),
            executors: Vec::new(),
            nats,
            postgres,
            redis,
            workers,
            files,
        };
        let [gateway, planner, executor] = PROGRAMS.map(|name| cluster.files.path().join(name));
        for _ in 0..shape.gateways {
            cluster.gateways.push(start_gateway(&gateway, &settings).await?);
        }
        for _ in 0..shape.planners {
            cluster.planners.push(start_worker(&planner, &settings).await?);
        }
        for _ in 0..shape.executors {
            cluster.executors.push(start_worker(&executor, &settings).await?);
        }
        Ok(cluster)
    }

    /// Asks every process to end, and waits until all have.
    pub async fn stop(mut self) -> Result<()> {
        for service in self.gateways.iter_mut().chain(&mut self.planners).chain(&mut self.executors) {
            service.terminate().await?;
        }
        self.workers.stop().await;
        Ok(())
    }
}

async fn start_gateway(program: &Path, settings: &[(&'static str, String)]) -> Result<Service> {
    Service::start(program, |[http, grpc]: [SocketAddr; 2]| {
        let own = [("listen", http.to_string()), ("grpc_listen", grpc.to_string())];
        arguments(settings.iter().chain(&own))
    })
    .await
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

fn pool_at(base_url: &str) -> Result<String> {
    let mut pool: toml::Table = POOL.parse()?;
    let vendors = pool.get_mut("vendors").and_then(toml::Value::as_array_mut);
    for vendor in vendors.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        vendor.insert("base_url".to_owned(), base_url.into());
    }
    Ok(pool.to_string())
}

/// Runs as the program by whose name this process was started; `None` if by none of theirs.
pub fn dispatch() -> Option<std::process::ExitCode> {
    let called = PathBuf::from(std::env::args_os().next()?);
    match called.file_name()?.to_str()? {
        "podium-gateway" => Some(podium_gateway::main()),
        "podium-planner" => Some(podium_planner::main()),
        "podium-executor" => Some(podium_executor::main()),
        _ => None,
    }
}
