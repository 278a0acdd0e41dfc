//! A Redis server.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::certificates::{Authority, Identity};
use crate::port::Port;
use crate::program::Program;
use crate::server::{Launch, Server, Signal};
use crate::wait::{first_line, until_it_answers};

const REDIS_SERVER: Program =
    Program { name: "redis-server", variable: "PODIUM_TEST_REDIS_SERVER", package: "redis-server" };

/// A private Redis server. It stores nothing on disk: a kill empties it.
#[derive(Debug)]
pub struct Redis {
    // Declared first, so the server ends before its folder is removed.
    server: Option<Server>,
    folder: TempDir,
    program: PathBuf,
    port: Port,
    tls_port: Option<Port>,
    arguments: Vec<String>,
}

impl Redis {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<Self> {
        Self::start_with(None, Vec::new()).await
    }

    /// Starts a server with TLS at [`Self::tls_address`], for clients that trust the authority, with the user `podium` and this
    /// password. Clients may present a certificate of the authority.
    pub async fn start_secured(authority: &Authority, own: &Identity, password: &str) -> Result<Self> {
        let tls_port = Port::take()?;
        let number = tls_port.number();
        let file = |path: &std::path::Path| path.display().to_string();
        let (root, certificate, key) = (file(&authority.root()), file(&own.certificate), file(&own.key));
        let tls = ["--tls-port", &number, "--tls-ca-cert-file", &root, "--tls-cert-file", &certificate];
        let more = ["--tls-key-file", &key, "--tls-auth-clients", "optional"];
        let word = format!(">{password}");
        let users = ["--user", "podium", "on", &word, "~*", "&*", "+@all", "--user", "default", "off"];
        let arguments = tls.iter().chain(&more).chain(&users).map(|text| (*text).to_owned()).collect();
        Self::start_with(Some(tls_port), arguments).await
    }

    async fn start_with(tls_port: Option<Port>, arguments: Vec<String>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("podium-redis-").tempdir()?;
        let (program, port) = (REDIS_SERVER.find()?, Port::take()?);
        let mut redis = Self { server: None, folder, program, port, tls_port, arguments };
        redis.start_again().await?;
        Ok(redis)
    }

    /// The unencrypted address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The address with TLS; `None` without it.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_port.as_ref().map(Port::address)
    }

    /// The URL `redis://127.0.0.1:…`; it survives a restart.
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// Kills it with `kill -9`.
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
            environment: Vec::new(),
            user: None,
            last_signal: Signal::Kill,
        })?;
        let address = self.port.address();
        // A server that requires authentication answers too.
        let pong = async || {
            let line = first_line(address, "PING\r\n").await?;
            Ok((line == "+PONG" || line.starts_with("-NOAUTH")).then_some(()))
        };
        until_it_answers(&mut server, pong).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Deletes all its data while it runs.
    pub async fn flush(&mut self) -> Result<()> {
        let answer = first_line(self.port.address(), "FLUSHALL\r\n").await?;
        ensure!(answer == "+OK", "FLUSHALL was answered `{answer}`");
        Ok(())
    }

    /// Suspends it (`SIGSTOP`): connections stay open and get no answers.
    pub fn freeze(&self) {
        self.signal(Signal::Stop);
    }

    /// Resumes it after [`Self::freeze`].
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
        let own =
            ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir", &folder];
        own.map(str::to_owned).into_iter().chain(self.arguments.iter().cloned()).collect()
    }
}
