//! A NATS server with JetStream.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::disk::Disk;
use crate::port::Port;
use crate::program::Program;
use crate::server::{Launch, Server, Signal};
use crate::wait::{first_line, until_it_answers};

const NATS_SERVER: Program =
    Program { name: "nats-server", variable: "PODIUM_TEST_NATS_SERVER", package: "nats-server" };

/// Enough for the streams of hours of load.
const SMALL_DISK_BYTES: u64 = 128 << 20;
/// The name of the additional configuration file in a server's folder.
const CONFIGURATION: &str = "nats.conf";

/// A private NATS server with file-based JetStream.
#[derive(Debug)]
pub struct Nats {
    // Declared first, so the server ends before its folder is removed.
    server: Option<Server>,
    disk: Option<Disk>,
    folder: TempDir,
    program: PathBuf,
    port: Port,
    monitor: Port,
    version: String,
    is_configured: bool,
    // The port for the other servers of its cluster.
    route: Option<Port>,
}

impl Nats {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<Self> {
        Self::prepare(None)?.started().await
    }

    /// Starts a server with its files on a small disk that can be filled; only root can.
    pub async fn start_on_small_disk() -> Result<Self> {
        let mut nats = Self::prepare(None)?;
        nats.disk = Some(Disk::mount(nats.folder.path(), SMALL_DISK_BYTES)?);
        nats.started().await
    }

    /// Starts a server with additional configuration, such as users and rights.
    pub async fn start_configured(configuration: &str) -> Result<Self> {
        Self::prepare(Some(configuration))?.started().await
    }

    async fn started(mut self) -> Result<Self> {
        self.start_again().await?;
        Ok(self)
    }

    fn prepare(configuration: Option<&str>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("podium-nats-").tempdir()?;
        if let Some(text) = configuration {
            fs::write(folder.path().join(CONFIGURATION), text).context("configuring a nats-server")?;
        }
        let (program, port, monitor) = (NATS_SERVER.find()?, Port::take()?, Port::take()?);
        let (version, is_configured) = (String::new(), configuration.is_some());
        Ok(Self {
            server: None,
            disk: None,
            folder,
            program,
            port,
            monitor,
            version,
            is_configured,
            route: None,
        })
    }

    /// The address for clients; it survives a restart.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL for clients, `nats://127.0.0.1:…`; it survives a restart.
    pub fn url(&self) -> String {
        format!("nats://{}", self.port.address())
    }

    /// The address of its HTTP monitoring, such as `/varz`.
    pub fn monitor(&self) -> SocketAddr {
        self.monitor.address()
    }

    /// Its version, such as `2.10.27`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder of a stream's files: its messages in `msgs`, its consumers in `obs`.
    pub fn stream_folder(&self, stream: &str) -> PathBuf {
        self.folder.path().join("store/jetstream/$G/streams").join(stream)
    }

    /// Kills it with `kill -9`. Everything that it acknowledged is in its files.
    #[expect(clippy::missing_panics_doc, reason = "a test's failure is a panic")]
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.end(Signal::Kill).await.expect("a server that was killed ends");
        }
    }

    /// Starts it again on the same port with the same files.
    pub async fn start_again(&mut self) -> Result<()> {
        self.kill().await;
        let mut server = Server::spawn(&Launch {
            folder: self.folder.path(),
            program: &self.program,
            arguments: self.arguments(),
            environment: Vec::new(),
            user: None,
            last_signal: Signal::Kill,
        })?;
        let address = self.port.address();
        // The server speaks first. It accepts clients only when JetStream is ready.
        self.version =
            until_it_answers(&mut server, async || Ok(version(&first_line(address, "").await?))).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Fills its small disk.
    pub fn fill_disk(&self) -> Result<()> {
        self.disk.as_ref().context("it has no small disk")?.fill()
    }

    /// Frees that space.
    pub fn free_disk(&self) -> Result<()> {
        self.disk.as_ref().context("it has no small disk")?.free()
    }

    /// Kills it with `kill -9`, empties its files, and starts it on the same port: all its data is lost.
    pub async fn wipe(&mut self) -> Result<()> {
        self.kill().await;
        match fs::remove_dir_all(self.folder.path().join("store")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).context("emptying the store"),
            _ => {}
        }
        self.start_again().await
    }

    fn arguments(&self) -> Vec<String> {
        let store = self.folder.path().join("store").display().to_string();
        let (port, monitor) = (self.port.number(), self.monitor.number());
        let listen = ["--addr", "127.0.0.1", "--port", &port, "--http_port", &monitor];
        let keep = ["--jetstream", "--store_dir", &store];
        let file = self.folder.path().join(CONFIGURATION).display().to_string();
        let configured = self.is_configured.then_some(["--config", &file]);
        let configured = configured.iter().flatten().copied();
        listen.into_iter().chain(keep).chain(configured).map(str::to_owned).collect()
    }
}

/// Starts servers that replicate each other's streams, named `nats-1` and so on; they have not elected a leader yet.
pub async fn nats_cluster(servers: usize) -> Result<Vec<Nats>> {
    let ports = (0..servers).map(|_| Port::take()).collect::<Result<Vec<_>>>()?;
    let routes: Vec<_> = ports.iter().map(|port| format!("nats://{}", port.address())).collect();
    let mut cluster = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let configuration = format!(
            "server_name: nats-{}\ncluster {{ name: podium, listen: \"{}\", routes: [{}] }}\n",
            index + 1,
            port.address(),
            routes.join(", ")
        );
        let mut nats = Nats::prepare(Some(&configuration))?;
        nats.route = Some(port);
        nats.start_again().await?;
        cluster.push(nats);
    }
    Ok(cluster)
}

/// The version in the server's first line, `INFO {…,"version":"2.10.27",…}`.
fn version(info: &str) -> Option<String> {
    let (_, rest) = info.strip_prefix("INFO ")?.split_once("\"version\":\"")?;
    rest.split('"').next().map(str::to_owned)
}
