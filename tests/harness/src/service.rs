//! Runs one of Podium's programs as a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::port::Port;
use crate::program::faketime;
use crate::server::{LOG, Launch, Server, Signal, log_end};
use crate::wait::{first_line, until_it_answers, until_it_ends};

/// One of Podium's programs, with its own ports and a `/readyz` endpoint.
#[derive(Debug)]
pub struct Service {
    // Declared first, so the server ends before its folder is removed.
    server: Option<Server>,
    folder: TempDir,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    ports: Vec<Port>,
}

impl Service {
    /// Starts `program` with `PORTS` ports, the first one for HTTP, and waits until it is ready. `arguments` builds its arguments
    /// from the addresses of the ports.
    pub async fn start<const PORTS: usize>(
        program: &Path,
        arguments: impl FnOnce([SocketAddr; PORTS]) -> Vec<String>,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().display().to_string();
        let folder = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?;
        let ports = (0..PORTS).map(|_| Port::take()).collect::<Result<Vec<_>>>()?;
        let addresses = std::array::from_fn(|index| ports[index].address());
        let arguments = arguments(addresses);
        let program = program.to_owned();
        let environment = Vec::new();
        let mut service = Self { server: None, folder, program, arguments, environment, ports };
        service.start_again().await?;
        Ok(service)
    }

    /// The address of a port, by index.
    pub fn address(&self, port: usize) -> SocketAddr {
        self.ports[port].address()
    }

    /// Whether it is running.
    pub fn runs(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| !server.has_ended())
    }

    /// The id of its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// The path of its log.
    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    /// The end of its log, over all restarts.
    pub fn log_end(&self) -> String {
        log_end(&self.folder.path().join(LOG))
    }

    /// The whole log, over all restarts.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Starts it with the same arguments, after `kill -9` if it runs, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.kill().await?;
        let mut server = self.spawn()?;
        let address = self.address(0);
        let ready = async || {
            let line =
                first_line(address, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            Ok(line.await?.contains(" 200 ").then_some(()))
        };
        until_it_answers(&mut server, ready).await.with_context(|| self.program.display().to_string())?;
        self.server = Some(server);
        Ok(())
    }

    /// Uses another program with the same arguments, from the next start on.
    pub fn set_program(&mut self, program: PathBuf) {
        self.program = program;
    }

    /// Adds arguments, from the next start on.
    pub fn add_arguments(&mut self, arguments: impl IntoIterator<Item = String>) {
        self.arguments.extend(arguments);
    }

    /// Shifts its wall clock by this many seconds from the next start on, with libfaketime. Time passes at its normal rate, and the
    /// monotonic clock is correct. Zero removes the shift.
    pub fn set_clock_off(&mut self, seconds: i64) -> Result<()> {
        self.environment.clear();
        if seconds != 0 {
            let library = faketime()?.display().to_string();
            let variables = [
                ("LD_PRELOAD", library),
                ("FAKETIME", format!("{seconds:+}s")),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ];
            self.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        }
        Ok(())
    }

    /// Starts it with the same arguments, without waiting until it is ready.
    pub async fn start_unready(&mut self) -> Result<()> {
        self.kill().await?;
        self.server = Some(self.spawn()?);
        Ok(())
    }

    /// Kills it with `kill -9`.
    pub async fn kill(&mut self) -> Result<()> {
        match self.server.take() {
            Some(server) => server.end(Signal::Kill).await,
            None => Ok(()),
        }
    }

    /// Ends it as its own abort would.
    pub async fn abort(&mut self) -> Result<()> {
        match self.server.take() {
            Some(server) => server.end(Signal::Abort).await,
            None => Ok(()),
        }
    }

    /// Asks it to end (`SIGTERM`) without waiting.
    pub fn ask_to_end(&self) -> Result<()> {
        self.server.as_ref().context("it does not run")?.signal(Signal::Terminate)
    }

    /// Waits until it has ended, and returns its exit code. Fails after a minute; then it still runs.
    pub async fn ended(&mut self) -> Result<i32> {
        let server = self.server.as_mut().context("it does not run")?;
        let code = until_it_ends(server).await.with_context(|| self.program.display().to_string())?;
        self.server = None;
        Ok(code)
    }

    /// Asks it to end, waits, and returns its exit code.
    pub async fn terminate(&mut self) -> Result<i32> {
        self.ask_to_end()?;
        self.ended().await
    }

    /// Suspends it (`SIGSTOP`), which it does not notice.
    pub fn freeze(&self) -> Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.signal(Signal::Stop))
    }

    /// Resumes it.
    pub fn thaw(&self) -> Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.signal(Signal::Continue))
    }

    fn spawn(&self) -> Result<Server> {
        Server::spawn(&Launch {
            folder: self.folder.path(),
            program: &self.program,
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            user: None,
            last_signal: Signal::Kill,
        })
    }
}
