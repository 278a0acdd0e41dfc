//! A Postgres server.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::process::Command;

use crate::port::Port;
use crate::program::{Program, output_of, own_user};
use crate::server::{Launch, Server, Signal, User};
use crate::template;
use crate::wait::until_it_answers;

const POSTGRES: Program =
    Program { name: "postgres", variable: "PODIUM_TEST_POSTGRES_BIN", package: "postgresql" };
/// Whom to run as when the test is root, which Postgres refuses to be: the first of these that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// The line of `postmaster.pid` that says how far the start has come.
const STATUS_LINE: usize = 7;

/// Whether commits are written through to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// As in service. What crash tests need.
    #[default]
    On,
    /// Commits survive the server's crash but not the machine's: for tests that are not about that and want to be quick.
    Off,
}

/// A Postgres server of a test's own. It listens on loopback, for the superuser `postgres`, who needs no password.
#[derive(Debug)]
pub struct Postgres {
    // Ends before its folder goes.
    server: Option<Server>,
    folder: TempDir,
    bin: PathBuf,
    user: Option<User>,
    port: Port,
    fsync: Fsync,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts a server that syncs its commits.
    pub async fn start() -> Result<Self> {
        Self::start_with(Fsync::On).await
    }

    /// Starts a server that answers.
    pub async fn start_with(fsync: Fsync) -> Result<Self> {
        let program = POSTGRES.find()?.canonicalize().context("finding the folder of `postgres`")?;
        let bin = program.parent().context("`postgres` is in no folder")?.to_owned();
        let user = user().await?;
        let folder = tempfile::Builder::new().prefix("podium-postgres-").tempdir()?;
        template::make_folder(folder.path(), user)?;
        template::copy(&bin, user, &folder.path().join("data")).await?;
        let (port, databases) = (Port::take()?, AtomicU32::new(0));
        let mut postgres = Self { server: None, folder, bin, user, port, fsync, databases };
        postgres.launch().await?;
        Ok(postgres)
    }

    /// Makes an empty database and gives its `postgres://` address.
    pub async fn database(&self) -> Result<String> {
        let name = format!("podium_{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        let mut createdb = Command::new(self.bin.join("createdb"));
        createdb.args(["--host=127.0.0.1", "--username=postgres", "--no-password"]);
        createdb.args(["--port", &self.port.number(), "--maintenance-db=postgres", &name]);
        output_of(&mut createdb).await?;
        Ok(format!("postgres://postgres@{}/{name}", self.port.address()))
    }

    /// Where it listens. It stays the same over a restart.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Stops it as a crash would, without a checkpoint and breaking every connection, and starts it again on the same port.
    pub async fn restart(&mut self) -> Result<()> {
        self.crash().await?;
        self.start_again().await
    }

    /// Stops it as a crash would.
    pub async fn crash(&mut self) -> Result<()> {
        match self.server.take() {
            Some(server) => server.end(Signal::Quit).await,
            None => Ok(()),
        }
    }

    /// Starts it after [`Self::crash`], on the same port with the same files.
    pub async fn start_again(&mut self) -> Result<()> {
        self.crash().await?;
        self.launch().await
    }

    async fn launch(&mut self) -> Result<()> {
        let data = self.folder.path().join("data");
        let mut server = Server::spawn(&Launch {
            folder: self.folder.path(),
            program: &self.bin.join("postgres"),
            arguments: self.arguments(&data),
            user: self.user,
            // Not KILL: its children would write on for a moment while their folder is removed.
            last_signal: Signal::Quit,
        })?;
        let pid_file = data.join("postmaster.pid");
        until_it_answers(&mut server, async || is_ready(&pid_file)).await?;
        self.server = Some(server);
        Ok(())
    }

    fn arguments(&self, data: &Path) -> Vec<String> {
        let fsync = match self.fsync {
            Fsync::On => "on",
            Fsync::Off => "off",
        };
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port.number()),
            "unix_socket_directories=".to_owned(),
            format!("fsync={fsync}"),
            "shared_buffers=32MB".to_owned(),
        ];
        let data = ["-D".to_owned(), data.display().to_string()];
        data.into_iter().chain(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting])).collect()
    }
}

fn is_ready(pid_file: &Path) -> io::Result<Option<()>> {
    let status = std::fs::read_to_string(pid_file)?;
    Ok(status.lines().nth(STATUS_LINE).is_some_and(|status| status.trim() == "ready").then_some(()))
}

/// Somebody else, if the test is root.
async fn user() -> Result<Option<User>> {
    if own_user()?.0 != 0 {
        return Ok(None);
    }
    for name in USERS {
        let id = async |what: &str| output_of(Command::new("id").args([what, name])).await;
        if let (Ok(uid), Ok(gid)) = (id("-u").await, id("-g").await) {
            return Ok(Some(User { uid: uid.parse()?, gid: gid.parse()? }));
        }
    }
    anyhow::bail!("Postgres does not run as root, and there is no user called {}", USERS.join(" or "))
}
