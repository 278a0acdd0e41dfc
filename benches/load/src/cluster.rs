//! The cluster under load: Postgres, NATS, Redis, the simulated vendors and Podium's processes on loopback. Dropping the value ends
//! all of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use podium_bench_measure::{Backbone, Servers, name_programs, resident_bytes, start_gateway, start_worker};
use podium_harness::Service;
use podium_local_cluster::PROGRAMS;
use tempfile::TempDir;

use crate::clients::CLIENTS;
use crate::tenants::Tenants;
use crate::vendor::CONDUCTOR_MODEL;
use crate::work::{Durations, TOKENS_PER_SECOND, WORKERS};

/// The name under which this binary is the vendor.
pub(crate) const VENDOR: &str = "podium-load-vendor";
/// Processes of the vendor: one for each worker, as each call is an open file.
const VENDORS: usize = WORKERS;
/// The time that a call may take beyond its model's.
const CALL_MARGIN_MS: u64 = 50_000;
/// Connections of each process to Postgres, which allows 100 altogether.
const POSTGRES_CONNECTIONS: usize = 3;

/// The processes of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) gateways: usize,
    pub(crate) planners: usize,
    pub(crate) executors: usize,
    pub(crate) tenants: usize,
    /// Concurrent runs, for which all limits are set.
    pub(crate) in_flight: usize,
    pub(crate) durations: Durations,
    /// The share of the runs whose traces are delivered, to a collector that discards them. `None` delivers nothing.
    pub(crate) traces: Option<f64>,
}

/// A running cluster.
pub(crate) struct Cluster {
    pub(crate) gateways: Vec<Service>,
    planners: Vec<Service>,
    executors: Vec<Service>,
    vendors: Vec<Service>,
    backbone: Backbone,
    files: TempDir,
}

impl Cluster {
    /// Starts everything and creates the tenants. `binary` is this program.
    pub(crate) async fn start(binary: &Path, shape: &Shape) -> Result<(Self, Tenants)> {
        let files = tempfile::Builder::new().prefix("podium-load-").tempdir()?;
        let [gateway, planner, executor] = PROGRAMS;
        name_programs(files.path(), binary, &[gateway, planner, executor, VENDOR, CLIENTS])?;
        let program = |name: &str| files.path().join(name);
        let backbone = Backbone::start(true).await?;
        let tenants = Tenants::create(backbone.database(), shape.tenants).await?;
        let Durations { first_token_ms: (shortest, longest), tokens_max } = shape.durations;
        let mut vendors = Vec::new();
        for _ in 0..VENDORS {
            let arguments = |[address]: [SocketAddr; 1]| {
                let numbers = [shortest, longest, tokens_max].map(|number| number.to_string());
                numbers.into_iter().chain([address.to_string()]).collect()
            };
            vendors.push(Service::start(&program(VENDOR), arguments).await?);
        }
        let pool = files.path().join("pool.toml");
        std::fs::write(&pool, pool_of(&vendors, shape)).context("writing the pool")?;
        let mut settings = backbone.settings();
        settings.extend([
            ("postgres_connections", POSTGRES_CONNECTIONS.to_string()),
            ("pool", pool.display().to_string()),
            ("conductor", format!("model:{}#conductor", pool.display())),
            ("step_slots", shape.in_flight.to_string()),
            ("plan_slots", shape.in_flight.to_string()),
            ("plans_waiting_max", shape.in_flight.to_string()),
        ]);
        if let Some(share) = shape.traces {
            let collector = format!("http://{}", vendors[0].address(0));
            settings.extend([("otlp_endpoint", collector), ("trace_share", share.to_string())]);
        }
        let start_all = async |name: &str, count| {
            let (program, mut services) = (program(name), Vec::new());
            for _ in 0..count {
                services.push(start_worker(&program, &settings).await?);
            }
            anyhow::Ok(services)
        };
        let planners = start_all(planner, shape.planners).await?;
        let executors = start_all(executor, shape.executors).await?;
        let mut gateways = Vec::new();
        settings.push(("keys_required", "true".to_owned()));
        for _ in 0..shape.gateways {
            gateways.push(start_gateway(&program(gateway), &settings).await?);
        }
        Ok((Self { gateways, planners, executors, vendors, backbone, files }, tenants))
    }

    /// The path of the program that is many clients.
    pub(crate) fn clients_program(&self) -> PathBuf {
        self.files.path().join(CLIENTS)
    }

    /// The servers whose work is counted.
    pub(crate) fn servers(&self) -> Servers {
        self.backbone.servers()
    }

    /// The addresses of the executors' metrics.
    pub(crate) fn executors(&self) -> impl Iterator<Item = SocketAddr> {
        self.executors.iter().map(|executor| executor.address(0))
    }

    /// Mean resident bytes of each kind of process.
    pub(crate) fn resident(&self) -> [(&'static str, u64); 3] {
        let mean = |services: &[Service]| {
            let bytes: u64 = services.iter().filter_map(Service::pid).map(resident_bytes).sum();
            bytes / u64::try_from(services.len().max(1)).unwrap_or(1)
        };
        let [gateway, planner, executor] = PROGRAMS;
        [(gateway, mean(&self.gateways)), (planner, mean(&self.planners)), (executor, mean(&self.executors))]
    }

    /// Kills Podium's processes without waiting for runs under way, and then the vendors.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for service in self.gateways.iter_mut().chain(&mut self.planners).chain(&mut self.executors) {
            service.kill().await?;
        }
        for vendor in &mut self.vendors {
            vendor.kill().await?;
        }
        Ok(())
    }
}

/// The workers, each with its own address, and the conductor.
fn pool_of(vendors: &[Service], shape: &Shape) -> String {
    let mut pool = "schema = 1\nname = \"load\"\nversion = \"1\"\n".to_owned();
    let (_, longest) = shape.durations.first_token_ms;
    let call_ms_max = longest + shape.durations.tokens_max * 1000 / TOKENS_PER_SECOND + CALL_MARGIN_MS;
    for (place, vendor) in vendors.iter().enumerate() {
        let address = vendor.address(0);
        let vendor =
            format!("id = \"vendor-{place}\"\napi = \"openai-chat\"\nbase_url = \"http://{address}/v1\"");
        pool = [pool, "\n[[vendors]]\n".to_owned(), vendor, "\n".to_owned()].concat();
    }
    let worker = |id: &str, place: usize, model: &str| {
        format!(
            "\n[[workers]]\nid = \"{id}\"\nvendor = \"vendor-{place}\"\nmodel = \"{model}\"\n\
             description = \"Waits and writes.\"\ncontext_tokens = 128000\noutput_tokens_max = 4096\n\
             usd_per_million_tokens = {{ input = 0.1, output = 0.4 }}\n\
             limits = {{ in_flight_max = 10000, requests_per_minute = 10000000, call_ms_max = {call_ms_max}, first_byte_ms_max = {call_ms_max} }}\n"
        )
    };
    for place in 0..WORKERS {
        pool += &worker(&format!("worker-{place}"), place, "load-worker");
    }
    pool + &worker("conductor", 0, CONDUCTOR_MODEL)
}
