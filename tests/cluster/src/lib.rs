//! A whole cluster on this machine: Postgres, NATS, Redis, simulated workers, gateways, planners and executors, each a separate
//! process on loopback. Dropping the value ends all of them.
#![deny(missing_docs)]

mod panicking;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use podium_harness::{Fsync, Nats, Postgres, Proxy, Redis, Service};
use podium_vendor_sim::{Options as SimOptions, Running, VendorSim};
use tempfile::TempDir;

/// The demo's pool, whose workers are simulated.
const POOL: &str = include_str!("../../../pools/demo.toml");
/// The seed of the simulated latencies and of the simulated generalist's errors.
const SIMULATION_SEED: u64 = 7;

/// The names under which this binary runs as one of the cluster's programs.
pub const PROGRAMS: [&str; 3] = ["podium-gateway", "podium-planner", "podium-executor"];

/// The name under which it runs as an executor whose loop panics on its first task.
pub const PANICKING_EXECUTOR: &str = "podium-panicking-executor";

/// How processes reach Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Directly.
    Direct,
    /// Through a proxy for each kind of process, which can drop the answers to commits.
    ByProxy,
}

/// Where Postgres and NATS keep their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// On the machine's disk.
    Machine,
    /// Each on a small disk that can be filled. Requires root: [`podium_harness::small_disks`].
    Small,
}

/// The processes and settings of a cluster.
#[derive(Clone)]
pub struct Shape {
    /// Number of gateways.
    pub gateways: usize,
    /// Number of planners.
    pub planners: usize,
    /// Number of executors.
    pub executors: usize,
    /// The setting `conductor`; `{workers}` stands for the base URL of the simulated vendor.
    pub conductor: String,
    /// Further settings of all processes, as keys and values. They override the settings that the cluster makes, such as the address of a server.
    pub settings: Vec<(&'static str, String)>,
    /// How the workers are simulated.
    pub workers: SimOptions,
    /// The pool file; all its vendors are the simulated one.
    pub pool: String,
    /// Concurrent calls of each worker; without it, the pool's limit.
    pub calls_max: Option<u32>,
    /// How the processes reach Postgres.
    pub postgres: Reach,
    /// Where Postgres and NATS keep their files.
    pub disks: Disks,
}

impl Shape {
    /// These numbers of processes; everything else as in `make cluster`.
    pub fn new(gateways: usize, planners: usize, executors: usize, conductor: impl Into<String>) -> Self {
        Self {
            gateways,
            planners,
            executors,
            conductor: conductor.into(),
            settings: Vec::new(),
            workers: SimOptions::loopback(SIMULATION_SEED),
            pool: POOL.to_owned(),
            calls_max: None,
            postgres: Reach::Direct,
            disks: Disks::Machine,
        }
    }
}

/// The proxies between the processes and Postgres.
pub struct Proxies {
    /// For the gateways.
    pub gateways: Proxy,
    /// For the planners.
    pub planners: Proxy,
    /// For the executors.
    pub executors: Proxy,
}

/// A running cluster. Dropping it ends Podium's processes first, and then the servers.
pub struct Cluster {
    /// The gateways; the first port of each is HTTP, the second gRPC.
    pub gateways: Vec<Service>,
    /// The planners.
    pub planners: Vec<Service>,
    /// The executors.
    pub executors: Vec<Service>,
    /// The proxies before Postgres, with [`Reach::ByProxy`].
    pub proxies: Option<Proxies>,
    /// The queue.
    pub nats: Nats,
    /// The store.
    pub postgres: Postgres,
    /// The URL of its database.
    pub database: String,
    /// The limiter's server.
    pub redis: Redis,
    /// The workers; in this process, so that calls can be counted.
    pub workers: Running,
    pool: PathBuf,
    files: TempDir,
}

impl Cluster {
    /// Starts everything: first the servers, then all processes of Podium concurrently, as an orchestrator would. `binary` is a
    /// program whose `main` is [`dispatch`].
    pub async fn start(binary: &Path, shape: &Shape) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("podium-cluster-").tempdir()?;
        let programs = name_programs(binary, files.path())?;
        let workers = VendorSim::start(shape.workers.clone()).await?;
        let pool = files.path().join("pool.toml");
        std::fs::write(&pool, pool_at(&workers.base_url(), shape)?).context("writing the pool")?;
        let (postgres, nats) = match shape.disks {
            Disks::Machine => tokio::try_join!(Postgres::start_with(Fsync::On), Nats::start())?,
            Disks::Small => tokio::try_join!(Postgres::start_on_small_disk(), Nats::start_on_small_disk())?,
        };
        let redis = Redis::start().await?;
        let mut settings = vec![
            ("nats", nats.url()),
            ("redis", redis.url()),
            ("pool", pool.display().to_string()),
            ("conductor", shape.conductor.replace("{workers}", &workers.base_url())),
        ];
        settings.extend(shape.settings.iter().cloned());
        let database = postgres.database().await?;
        let proxies = match shape.postgres {
            Reach::Direct => None,
            Reach::ByProxy => Some(Proxies {
                gateways: Proxy::start(postgres.address()).await?,
                planners: Proxy::start(postgres.address()).await?,
                executors: Proxy::start(postgres.address()).await?,
            }),
        };
        let with_database = |by: fn(&Proxies) -> &Proxy| {
            let direct = postgres.address().to_string();
            let reached =
                proxies.as_ref().map_or(direct.clone(), |proxies| by(proxies).address().to_string());
            let postgres = ("postgres", database.replace(&direct, &reached));
            // If a key is set twice, the later value applies.
            [postgres].into_iter().chain(settings.iter().cloned()).collect::<Vec<_>>()
        };
        let [gateway, planner, executor] = programs;
        let of_gateways = with_database(|proxies| &proxies.gateways);
        let of_planners = with_database(|proxies| &proxies.planners);
        let of_executors = with_database(|proxies| &proxies.executors);
        let (gateways, planners, executors) = tokio::try_join!(
            try_join_all((0..shape.gateways).map(|_| start_gateway(&gateway, &of_gateways))),
            try_join_all((0..shape.planners).map(|_| start_worker(&planner, &of_planners))),
            try_join_all((0..shape.executors).map(|_| start_worker(&executor, &of_executors))),
        )?;
        Ok(Self {
            gateways,
            planners,
            executors,
            proxies,
            nats,
            postgres,
            database,
            redis,
            workers,
            pool,
            files,
        })
    }

    /// All processes of Podium.
    pub fn services(&mut self) -> impl Iterator<Item = &mut Service> {
        self.gateways.iter_mut().chain(&mut self.planners).chain(&mut self.executors)
    }

    /// Writes a pool file with another version and one more worker, `id`, a copy of the first one. Processes follow it.
    pub fn add_worker(&self, id: &str) -> Result<()> {
        self.change_pool(id, |pool| {
            let workers =
                pool.get_mut("workers").and_then(toml::Value::as_array_mut).context("no workers")?;
            let mut worker = workers.first().cloned().context("no worker")?;
            worker.as_table_mut().context("a worker is no table")?.insert("id".to_owned(), id.into());
            workers.push(worker);
            Ok(())
        })
    }

    /// Writes a pool file with another version in which all workers have this price for a million tokens. Processes follow it.
    pub fn set_price(&self, version: &str, usd: f64) -> Result<()> {
        let price = toml::Table::from_iter(
            [("input", usd), ("output", usd)].map(|(key, usd)| (key.to_owned(), usd.into())),
        );
        self.change_pool(version, |pool| {
            for worker in tables(pool, "workers") {
                worker.insert("usd_per_million_tokens".to_owned(), price.clone().into());
            }
            Ok(())
        })
    }

    fn change_pool(&self, version: &str, change: impl FnOnce(&mut toml::Table) -> Result<()>) -> Result<()> {
        let mut pool: toml::Table = std::fs::read_to_string(&self.pool)?.parse()?;
        change(&mut pool)?;
        pool.insert("version".to_owned(), version.into());
        std::fs::write(&self.pool, pool.to_string()).context("writing the pool")
    }

    /// Executes statements in the database as its superuser.
    pub async fn execute(&self, statements: &str) -> Result<()> {
        let (_, name) = self.database.rsplit_once('/').context("the address names no database")?;
        self.postgres.execute(name, statements).await.map(drop)
    }

    /// The user of the processes in the database.
    pub fn database_user(&self) -> Option<&str> {
        Some(self.database.strip_prefix("postgres://")?.split_once('@')?.0)
    }

    /// The address of the database for another user, or through a proxy.
    pub fn database_url(&self, user: &str, address: SocketAddr) -> String {
        let name = self.database.rsplit('/').next().unwrap_or_default();
        format!("postgres://{user}@{address}/{name}")
    }

    /// Sets the binary of all processes from their next start on. Its `main` must be [`dispatch`].
    pub fn set_binary(&mut self, binary: &Path) -> Result<()> {
        let folder = tempfile::Builder::new().tempdir_in(self.files.path())?.keep();
        let [gateway, planner, executor] = name_programs(binary, &folder)?;
        let Self { gateways, planners, executors, .. } = self;
        for (services, program) in [(gateways, gateway), (planners, planner), (executors, executor)] {
            for service in services {
                service.set_program(program.clone());
            }
        }
        Ok(())
    }

    /// Replaces an executor by one whose loop panics on its first task. Returns once it is ready.
    pub async fn replace_by_panicking(&mut self, executor: usize, binary: &Path) -> Result<()> {
        let program = self.files.path().join(PANICKING_EXECUTOR);
        std::os::unix::fs::symlink(binary, &program).context("naming the program")?;
        let executor = self.executors.get_mut(executor).context("there is no such executor")?;
        executor.set_program(program);
        executor.start_again().await
    }

    /// Stops all processes at once and waits until they have ended. An exit code other than 0 is an error.
    pub async fn stop(mut self) -> Result<()> {
        self.services().try_for_each(|service| service.ask_to_end())?;
        for service in self.services() {
            let code = service.ended().await?;
            ensure!(code == 0, "a process ended with exit code {code}: {}", service.log_end());
        }
        self.workers.stop().await;
        Ok(())
    }
}

/// Creates links to the binary under the names of the programs.
fn name_programs(binary: &Path, folder: &Path) -> Result<[PathBuf; 3]> {
    let programs = PROGRAMS.map(|name| folder.join(name));
    for program in &programs {
        std::os::unix::fs::symlink(binary, program).context("naming the programs")?;
    }
    Ok(programs)
}

async fn start_gateway(program: &Path, settings: &[(&'static str, String)]) -> Result<Service> {
    Service::start(program, |[http, grpc, metrics]: [SocketAddr; 3]| {
        let own = [("listen", http), ("grpc_listen", grpc), ("metrics_listen", metrics)]
            .map(|(key, address)| (key, address.to_string()));
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

fn pool_at(base_url: &str, shape: &Shape) -> Result<String> {
    let mut pool: toml::Table = shape.pool.parse()?;
    for vendor in tables(&mut pool, "vendors") {
        vendor.insert("base_url".to_owned(), base_url.into());
    }
    if let Some(calls_max) = shape.calls_max {
        for limits in
            tables(&mut pool, "workers").filter_map(|worker| worker.get_mut("limits")?.as_table_mut())
        {
            limits.insert("in_flight_max".to_owned(), calls_max.into());
        }
    }
    Ok(pool.to_string())
}

fn tables<'p>(pool: &'p mut toml::Table, name: &str) -> impl Iterator<Item = &'p mut toml::Table> {
    let entries = pool.get_mut(name).and_then(toml::Value::as_array_mut);
    entries.into_iter().flatten().filter_map(toml::Value::as_table_mut)
}

/// Runs the program under whose name this process was started; `None` for any other name.
pub fn dispatch() -> Option<std::process::ExitCode> {
    let called = PathBuf::from(std::env::args_os().next()?);
    match called.file_name()?.to_str()? {
        "podium-gateway" => Some(podium_gateway::main()),
        "podium-planner" => Some(podium_planner::main()),
        "podium-executor" => Some(podium_executor::main()),
        PANICKING_EXECUTOR => Some(panicking::main()),
        _ => None,
    }
}
