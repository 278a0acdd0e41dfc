//! The systems under test: Podium embedded and as a cluster, the peers that are installed, and the vendor itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use podium_bench_measure::{Backbone, name_programs, resident_bytes, start_gateway, start_worker};
use podium_harness::Service;
use podium_local_cluster::PROGRAMS;
use tempfile::TempDir;
use tokio::process::Command;

/// The names under which this binary is the vendor, and `podium`.
pub(crate) const VENDOR: &str = "podium-gateways-vendor";
pub(crate) const PODIUM: &str = "podium";
/// Longest start of a peer. `LiteLLM` imports for more than a minute on a busy machine.
const START_MAX: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const SWITCHYARD: &str = "import sys, threading
from switchyard_rust.server import Server
server = Server(sys.argv[1], int(sys.argv[2]))
threading.Event().wait()";

/// A kind of system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing in between: the floor of every latency.
    Vendor,
    /// `podium serve`, which stores every run in SQLite.
    Embedded,
    /// A gateway, a planner and an executor, with Postgres, NATS and Redis.
    Cluster,
    /// `nemo-switchyard`.
    Switchyard,
    /// `litellm[proxy]`.
    LiteLlm,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Vendor => "vendor alone",
            Self::Embedded => "Podium, embedded",
            Self::Cluster => "Podium, cluster",
            Self::Switchyard => "Switchyard",
            Self::LiteLlm => "LiteLLM",
        }
    }
}

/// The folder with this binary under its other names, and the vendor's address.
pub(crate) struct Place {
    files: TempDir,
    vendor: Service,
}

/// A system under test. All of it is gone when the value is dropped.
pub(crate) struct System {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// The processes whose memory counts, without servers.
    pids: Vec<u32>,
    _parts: Vec<Box<dyn Send>>,
}

impl System {
    /// Bytes of memory that its processes have resident.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.pids.iter().copied().map(resident_bytes).sum()
    }
}

impl Place {
    pub(crate) async fn new(binary: &Path) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("podium-gateways-").tempdir()?;
        name_programs(files.path(), binary, &PROGRAMS)?;
        name_programs(files.path(), binary, &[VENDOR, PODIUM])?;
        let program = files.path().join(VENDOR);
        let vendor = Service::start(&program, |[address]: [SocketAddr; 1]| vec![address.to_string()]).await?;
        let place = Self { files, vendor };
        std::fs::write(place.path("pool.toml"), place.pool()).context("writing the pool")?;
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// One worker, with limits.
    fn pool(&self) -> String {
        format!(
            "schema = 1\nname = \"gateways\"\nversion = \"1\"\n\n\
             [[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://{}/v1\"\n\n\
             [[workers]]\nid = \"w\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"Says twenty words.\"\n\
             context_tokens = 128000\noutput_tokens_max = 4096\n\
             usd_per_million_tokens = {{ input = 0.1, output = 0.4 }}\n\
             limits = {{ in_flight_max = 1000, requests_per_minute = 10000000, call_ms_max = 60000 }}\n",
            self.vendor.address(0)
        )
    }

    /// Starts a system. `venv` has the peer.
    pub(crate) async fn start(&self, kind: Kind, venv: Option<&Path>) -> Result<System> {
        match (kind, venv) {
            (Kind::Vendor, _) => Ok(System {
                address: self.vendor.address(0),
                key: String::new(),
                pids: vec![],
                _parts: vec![],
            }),
            (Kind::Embedded, _) => self.embedded().await,
            (Kind::Cluster, _) => self.cluster().await,
            (Kind::Switchyard, Some(venv)) => self.switchyard(venv).await,
            (Kind::LiteLlm, Some(venv)) => self.litellm(venv).await,
            (Kind::Switchyard | Kind::LiteLlm, None) => anyhow::bail!("{} is not installed", kind.name()),
        }
    }

    async fn embedded(&self) -> Result<System> {
        let data = tempfile::Builder::new().prefix("podium-gateways-data-").tempdir()?;
        let folder = data.path().display().to_string();
        let key = self.key(&["--data", &folder]).await?;
        let program = self.path(PODIUM);
        let service = Service::start(&program, |[http, grpc]: [SocketAddr; 2]| {
            let settings = [
                ("listen", http.to_string()),
                ("grpc_listen", grpc.to_string()),
                ("data", folder),
                ("keys_required", "true".to_owned()),
            ];
            let settings = settings.into_iter().chain(self.common());
            std::iter::once("serve".to_owned()).chain(arguments(settings)).collect()
        });
        let service = service.await?;
        let (address, pids) = (service.address(0), service.pid().into_iter().collect());
        Ok(System { address, key, pids, _parts: vec![Box::new(service), Box::new(data)] })
    }

    async fn cluster(&self) -> Result<System> {
        let backbone = Backbone::start(false).await?;
        let mut settings: Vec<_> = backbone.settings().into_iter().chain(self.common()).collect();
        let [planner, executor] = [&PROGRAMS[1], &PROGRAMS[2]].map(|name| self.path(name));
        let workers = [start_worker(&planner, &settings).await?, start_worker(&executor, &settings).await?];
        settings.push(("keys_required", "true".to_owned()));
        let gateway = start_gateway(&self.path(PROGRAMS[0]), &settings).await?;
        let key = self.key(&["--postgres", backbone.database()]).await?;
        let address = gateway.address(0);
        let pids = workers.iter().chain([&gateway]).filter_map(Service::pid).collect();
        // The processes end before the servers.
        let parts: Vec<Box<dyn Send>> = vec![Box::new(gateway), Box::new(workers), Box::new(backbone)];
        Ok(System { address, key, pids, _parts: parts })
    }

    /// The settings of every process of Podium's.
    fn common(&self) -> impl Iterator<Item = (&'static str, String)> {
        let pool = self.path("pool.toml").display().to_string();
        [("pool", pool), ("conductor", "direct:w".to_owned()), ("log", "warn".to_owned())].into_iter()
    }

    /// Makes a key with a budget that no measurement uses up.
    async fn key(&self, at: &[&str]) -> Result<String> {
        let create = ["key", "create", "--tenant", "bench", "--budget-usd", "1000000"];
        let made = Command::new(self.path(PODIUM)).args(create).args(at).output().await?;
        ensure!(made.status.success(), "making a key: {}", String::from_utf8_lossy(&made.stderr));
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    async fn switchyard(&self, venv: &Path) -> Result<System> {
        let routes = format!(
            "schema_version = 1\n[llm_clients.v]\nformat = \"openai_chat\"\nbase_url = \"http://{}/v1\"\n\
             api_key_env = \"VENDOR_KEY\"\n[targets.t]\nid = \"m\"\nllm_client = \"v\"\n\
             [routes.podium-mini]\nid = \"podium-mini\"\ntype = \"passthrough\"\ntarget = \"t\"\n",
            self.vendor.address(0)
        );
        std::fs::write(self.path("routes.toml"), routes)?;
        let address = a_free_address()?;
        let mut command = Command::new(venv.join("bin/python"));
        command.args(["-c", SWITCHYARD]).arg(self.path("routes.toml")).arg(address.port().to_string());
        command.env("VENDOR_KEY", "any-key").env("RUST_LOG", "warn");
        peer(command, address, "/health").await
    }

    async fn litellm(&self, venv: &Path) -> Result<System> {
        let models = format!(
            "model_list:\n  - model_name: podium-mini\n    litellm_params:\n      model: openai/m\n      \
             api_base: http://{}/v1\n      api_key: any-key\n",
            self.vendor.address(0)
        );
        std::fs::write(self.path("litellm.yaml"), models)?;
        let address = a_free_address()?;
        let mut command = Command::new(venv.join("bin/litellm"));
        command.arg("--config").arg(self.path("litellm.yaml"));
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--telemetry", "False"]).env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        // It does not start without a key.
        command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
        peer(command, address, "/health/liveliness").await
    }
}

/// A peer once it answers at `path`.
async fn peer(mut command: Command, address: SocketAddr, path: &str) -> Result<System> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().context("starting a peer")?;
    let begun = Instant::now();
    while podium_bench_measure::get(address, path).await.is_err() {
        ensure!(begun.elapsed() < START_MAX, "a peer does not answer at {address}{path}");
        ensure!(child.try_wait()?.is_none(), "a peer ended at its start");
        // Until it ends, or the next look.
        let _ = tokio::time::timeout(LOOK_EVERY, child.wait()).await;
    }
    let pids = child.id().into_iter().collect();
    Ok(System { address, key: "any".to_owned(), pids, _parts: vec![Box::new(child)] })
}

/// An address of this machine where nothing listens. Somebody else may take it before the peer does, which then does not start.
fn a_free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The version of a package that a virtual environment has.
pub(crate) async fn version(venv: &Path, package: &str) -> Result<String> {
    let script = format!("import importlib.metadata as m; print(m.version({package:?}))");
    let said = Command::new(venv.join("bin/python")).args(["-c", &script]).output().await?;
    ensure!(said.status.success(), "{} has no {package}", venv.display());
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

fn arguments(settings: impl Iterator<Item = (&'static str, String)>) -> impl Iterator<Item = String> {
    settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")])
}
