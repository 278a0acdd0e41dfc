//! A Postgres server.

pub(crate) mod archive;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::process::Command;

use crate::certificates::{Authority, Identity};
use crate::disk::Disk;
use crate::port::Port;
use crate::program::{Program, output_of, own_user};
use crate::server::{Launch, Server, Signal, User};
use crate::template;
use crate::wait::until_it_answers;

const POSTGRES: Program =
    Program { name: "postgres", variable: "PODIUM_TEST_POSTGRES_BIN", package: "postgresql" };
/// Users to run as if the test is root, which Postgres refuses: the first one that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Rules for connections to a secured server; the harness itself has access without a password.
const ACCESS: &str = "host all postgres 127.0.0.1/32 trust
hostssl all podium_certified 127.0.0.1/32 cert
hostssl all podium 127.0.0.1/32 scram-sha-256
";
/// Enough for a database of some hundred thousand runs with its log.
const SMALL_DISK_BYTES: u64 = 512 << 20;
/// Settings that keep its log within that.
const SMALL_LOG: [&str; 2] = ["max_wal_size=96MB", "min_wal_size=32MB"];
/// The line of `postmaster.pid` with the progress of the start.
const STATUS_LINE: usize = 7;

/// Whether commits are flushed to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// As in production; crash tests need it.
    #[default]
    On,
    /// Commits survive a crash of the server but not of the machine: for fast tests that do not need that.
    Off,
}

/// A private Postgres server. It listens on loopback; its superuser `postgres` needs no password.
#[derive(Debug)]
pub struct Postgres {
    // Declared first, so the server ends before its folder is removed.
    server: Option<Server>,
    disk: Option<Disk>,
    folder: TempDir,
    bin: PathBuf,
    user: Option<User>,
    port: Port,
    fsync: Fsync,
    databases: AtomicU32,
    settings: Vec<String>,
}

/// How clients authenticate to a server over TLS, and the server to them.
#[derive(Clone, Copy, Debug)]
pub struct Secured<'s> {
    /// The authority that must have signed clients' certificates.
    pub authority: &'s Authority,
    /// The server's certificate.
    pub own: &'s Identity,
    /// The password of the user `podium`. The user `podium_certified` needs a certificate of that name instead.
    pub password: &'s str,
}

impl Postgres {
    /// Starts a server that syncs its commits.
    pub async fn start() -> Result<Self> {
        Self::start_with(Fsync::On).await
    }

    /// Starts a server and waits until it answers.
    pub async fn start_with(fsync: Fsync) -> Result<Self> {
        let mut postgres = Self::prepare(fsync).await?;
        template::copy(&postgres.bin, postgres.user, &postgres.data()).await?;
        postgres.launch().await?;
        Ok(postgres)
    }

    /// Starts a server that syncs its commits to a small disk that can be filled; only root can.
    pub async fn start_on_small_disk() -> Result<Self> {
        let mut postgres = Self::prepare(Fsync::On).await?;
        postgres.disk = Some(Disk::mount(postgres.folder.path(), SMALL_DISK_BYTES)?);
        template::make_folder(postgres.folder.path(), postgres.user)?;
        template::copy(&postgres.bin, postgres.user, &postgres.data()).await?;
        postgres.settings = SMALL_LOG.map(str::to_owned).into();
        postgres.launch().await?;
        Ok(postgres)
    }

    /// Starts a server whose users, except `postgres`, must use TLS and authenticate; they own no database yet.
    pub async fn start_secured(secured: Secured<'_>) -> Result<Self> {
        let mut postgres = Self::prepare(Fsync::Off).await?;
        template::copy(&postgres.bin, postgres.user, &postgres.data()).await?;
        let file = |name: &str| postgres.data().join(name);
        let files = [
            (&secured.authority.root(), "root.pem"),
            (&secured.own.certificate, "own.pem"),
            (&secured.own.key, "own.key"),
        ];
        for (from, name) in files {
            template::put(&std::fs::read(from)?, &file(name), postgres.user)?;
        }
        template::put(ACCESS.as_bytes(), &file("pg_hba.conf"), postgres.user)?;
        let tls = ["ssl=on", "ssl_ca_file=root.pem", "ssl_cert_file=own.pem", "ssl_key_file=own.key"];
        postgres.settings = tls.map(str::to_owned).into();
        postgres.launch().await?;
        let users = format!(
            "CREATE ROLE podium LOGIN SUPERUSER PASSWORD '{}'; CREATE ROLE podium_certified LOGIN SUPERUSER",
            secured.password
        );
        postgres.execute("postgres", &users).await?;
        Ok(postgres)
    }

    /// Starts a standby of this server, as in [`Self::follow`].
    pub async fn start_standby(&self) -> Result<Self> {
        let mut standby = Self::prepare(self.fsync).await?;
        standby.databases = AtomicU32::new(self.databases.load(Ordering::Relaxed));
        standby.follow(self).await?;
        Ok(standby)
    }

    /// Discards its data and becomes a standby of `primary`, at its present address. From then on `primary` acknowledges a commit
    /// only after a standby has it; otherwise acknowledged commits would be lost when it is killed and the standby is promoted.
    pub async fn follow(&mut self, primary: &Self) -> Result<()> {
        self.kill().await?;
        let data = self.data();
        let mut remove = template::as_user("rm".as_ref(), self.user);
        output_of(remove.arg("-rf").arg(&data)).await?;
        let mut copy = template::as_user(&self.bin.join("pg_basebackup"), self.user);
        copy.args([
            "--host=127.0.0.1",
            "--username=postgres",
            "--no-password",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        copy.args(["--write-recovery-conf", "--wal-method=fetch", "--port", &primary.port.number()]);
        output_of(copy.arg("--pgdata").arg(&data)).await?;
        self.launch().await?;
        primary.wait_for_followers("ANY 1 (*)").await
    }

    /// Promotes a standby to a primary that waits for no standby.
    pub async fn promote(&self) -> Result<()> {
        self.execute("postgres", "SELECT pg_promote()").await?;
        self.wait_for_followers("").await
    }

    /// Sets which standbys must have a commit before it is acknowledged.
    async fn wait_for_followers(&self, names: &str) -> Result<()> {
        self.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await?;
        self.execute("postgres", "SELECT pg_reload_conf()").await?;
        Ok(())
    }

    /// Executes statements as the superuser; returns their rows without headings.
    pub async fn execute(&self, database: &str, statements: &str) -> Result<String> {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["--host=127.0.0.1", "--username=postgres", "--no-password", "--no-psqlrc", "--quiet"]);
        psql.args(["--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--port", &self.port.number()]);
        output_of(psql.args(["--dbname", database, "--command", statements])).await
    }

    async fn prepare(fsync: Fsync) -> Result<Self> {
        let program = POSTGRES.find()?.canonicalize().context("finding the folder of `postgres`")?;
        let bin = program.parent().context("`postgres` is in no folder")?.to_owned();
        let user = user().await?;
        let folder = tempfile::Builder::new().prefix("podium-postgres-").tempdir()?;
        template::make_folder(folder.path(), user)?;
        let (port, databases) = (Port::take()?, AtomicU32::new(0));
        let (disk, settings) = (None, Vec::new());
        Ok(Self { server: None, disk, folder, bin, user, port, fsync, databases, settings })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Creates an empty database and returns its `postgres://` address.
    pub async fn database(&self) -> Result<String> {
        let name = format!("podium_{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        let mut createdb = Command::new(self.bin.join("createdb"));
        createdb.args(["--host=127.0.0.1", "--username=postgres", "--no-password"]);
        createdb.args(["--port", &self.port.number(), "--maintenance-db=postgres", &name]);
        output_of(&mut createdb).await?;
        Ok(format!("postgres://postgres@{}/{name}", self.port.address()))
    }

    /// The address for clients; it survives a restart.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Stops it as a crash would, without a checkpoint and with broken connections, and starts it again on the same port.
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

    /// Kills it with `kill -9`.
    pub async fn kill(&mut self) -> Result<()> {
        match self.server.take() {
            Some(server) => server.end(Signal::Kill).await,
            None => Ok(()),
        }
    }

    /// Starts it after [`Self::crash`], on the same port with the same files.
    pub async fn start_again(&mut self) -> Result<()> {
        self.crash().await?;
        self.launch().await
    }

    /// Fills its small disk.
    pub fn fill_disk(&self) -> Result<()> {
        self.disk.as_ref().context("it has no small disk")?.fill()
    }

    /// Frees that space, and starts the server again if the full disk ended it.
    pub async fn free_disk(&mut self) -> Result<()> {
        self.disk.as_ref().context("it has no small disk")?.free()?;
        if self.server.as_mut().is_none_or(Server::has_ended) {
            self.start_again().await?;
        }
        Ok(())
    }

    async fn launch(&mut self) -> Result<()> {
        let data = self.data();
        let mut server = Server::spawn(&Launch {
            folder: self.folder.path(),
            program: &self.bin.join("postgres"),
            arguments: self.arguments(&data),
            environment: Vec::new(),
            user: self.user,
            // Not KILL: its child processes would write for a moment while their folder is removed.
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
        let settings = settings.into_iter().chain(self.settings.iter().cloned());
        data.into_iter().chain(settings.flat_map(|setting| ["-c".to_owned(), setting])).collect()
    }
}

fn is_ready(pid_file: &Path) -> io::Result<Option<()>> {
    let status = std::fs::read_to_string(pid_file)?;
    Ok(status.lines().nth(STATUS_LINE).is_some_and(|status| status.trim() == "ready").then_some(()))
}

/// Another user if the test is root.
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
