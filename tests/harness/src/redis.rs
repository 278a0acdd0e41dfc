//! A Redis server.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::port::Port;
use crate::program::Program;
use crate::server::{Launch, Server, Signal};
use crate::wait::{first_line, until_it_answers};

const REDIS_SERVER: Program =
    Program { name: "redis-server", variable: "PODIUM_TEST_REDIS_SERVER", package: "redis-server" };

/// A Redis server of a test's own. It keeps nothing on disk: after a kill it is empty.
#[derive(Debug)]
pub struct Redis {
    // Ends before its folder goes.
    server: Option<Server>,
    folder: TempDir,
    program: PathBuf,
    port: Port,
}

impl Redis {
    /// Starts a server that answers.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("podium-redis-").tempdir()?;
        let (program, port) = (REDIS_SERVER.find()?, Port::take()?);
        let mut redis = Self { server: None, folder, program, port };
        redis.start_again().await?;
        Ok(redis)
    }

    /// Where it listens: `redis://127.0.0.1:…`. It stays the same over a restart.
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// Ends it with `kill -9`.
    #[expect(clippy::missing_panics_doc, reason = "a test's failure is a panic")]
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.end(Signal::Kill).await.expect("a server that was killed ends");
        }
    }

    /// Starts it on the same port, empty.
    pub async fn start_again(&mut self) -> Result<()> {
        self.kill().await;
        let mut server = Server::spawn(&Launch {
            folder: self.folder.path(),
            program: &self.program,
            arguments: self.arguments(),
            user: None,
            last_signal: Signal::Kill,
        })?;
        let address = self.port.address();
        let pong = async || Ok((first_line(address, "PING\r\n").await? == "+PONG").then_some(()));
        until_it_answers(&mut server, pong).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Makes it forget everything, and lives on.
    pub async fn flush(&mut self) -> Result<()> {
        let answer = first_line(self.port.address(), "FLUSHALL\r\n").await?;
        ensure!(answer == "+OK", "FLUSHALL was answered `{answer}`");
        Ok(())
    }

    /// Stops it as it is (`SIGSTOP`): connections stay and nothing is answered.
    pub fn freeze(&self) {
        self.signal(Signal::Stop);
    }

    /// Lets it go on after [`Self::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::Continue);
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.signal(signal).expect("a server that runs takes a signal");
        }
    }

    fn arguments(&self) -> Vec<String> {
        let folder = self.folder.path().display().to_string();
        let port = self.port.number();
        ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir", &folder]
            .map(str::to_owned)
            .into()
    }
}
