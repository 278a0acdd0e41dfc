//! The real binary for tests: its files, its process, its APIs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::Channel;

/// Longest wait for anything that should take a second. The machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The demo's question, for the workflow of [`Folder::workflow`].
pub(crate) const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.";
/// Its answer.
pub(crate) const ANSWER: &str = "five thousand two hundred and eighty";

const WORKFLOW: &str = r#"
name: three-steps
version: "1"
steps:
  - worker: sim-dates
    subtask: the number of days between 3 March 2024 and 17 May 2025
  - worker: sim-arithmetic
    subtask: multiply the result by 12
    sees: [1]
  - worker: sim-words
    subtask: write the result in words
    sees: [2]
"#;

/// A folder with everything that podium needs, removed after the test.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The demo's pool, served at `base_url`.
    pub(crate) fn pool(&self, base_url: &str) -> PathBuf {
        let demo = include_str!("../../../../pools/demo.toml");
        let mut pool: toml::Table = demo.parse().unwrap();
        pool["vendors"][0]["base_url"] = base_url.into();
        self.write("pool.toml", &pool.to_string())
    }

    /// Dates, then arithmetic, then words.
    pub(crate) fn workflow(&self) -> PathBuf {
        self.write("workflow.yaml", WORKFLOW)
    }
}

/// The binary with these arguments, without the settings of the user who runs the tests.
pub(crate) fn podium(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podium"));
    let own = std::env::vars().filter(|(name, _)| name.starts_with("PODIUM__"));
    own.for_each(|(name, _)| {
        command.env_remove(name);
    });
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    podium(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A server under test. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    /// The address of the gRPC API.
    pub(crate) grpc: String,
    /// The address of the HTTP API.
    pub(crate) http: String,
    log: mpsc::Receiver<String>,
}

impl Server {
    /// Starts `podium serve` on free ports and waits until it listens.
    pub(crate) fn start(data: &Path, pool: &Path, workflow: &Path) -> Self {
        Self::start_with(data, pool, &format!("fixed:{}", workflow.display()))
    }

    /// The same with any conductor.
    pub(crate) fn start_with(data: &Path, pool: &Path, conductor: &str) -> Self {
        Self::start_bounded(data, pool, conductor, &[])
    }

    /// The same with further arguments.
    pub(crate) fn start_bounded(data: &Path, pool: &Path, conductor: &str, bounds: &[&str]) -> Self {
        let arguments =
            ["serve", "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--log-format", "json"];
        let mut command = podium(&arguments);
        command.args(["--conductor", conductor]).args(bounds).arg("--data").arg(data).arg("--pool").arg(pool);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = lines_of(child.stderr.take().unwrap());
        let mut seen = Vec::new();
        let line = loop {
            let Ok(line) = log.recv_timeout(PATIENCE) else {
                let _ = child.kill();
                panic!("the server does not listen; it said: {seen:#?}");
            };
            if line.contains("\"listening\"") {
                break serde_json::from_str::<Value>(&line).unwrap();
            }
            seen.push(line);
        };
        let address = |field: &str| line["fields"][field].as_str().unwrap().to_owned();
        Self { grpc: address("grpc"), http: address("http"), child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn client(&self) -> PodiumServiceClient<Channel> {
        PodiumServiceClient::connect(format!("http://{}", self.grpc)).await.unwrap()
    }

    /// Sends a signal, and returns the next log line that contains `says`.
    pub(crate) fn signal(&self, name: &str, says: &str) -> String {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        self.logged(says)
    }

    /// The next log line that contains `says`.
    pub(crate) fn logged(&self, says: &str) -> String {
        logged_by(&self.log, says)
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the process to stop and waits for its end. Also returns the lines that it logged meanwhile.
    pub(crate) fn terminate(mut self) -> (ExitStatus, Vec<String>) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut lines = Vec::new();
        // The log ends when the process does.
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the server does not stop; it said: {lines:#?}")
                }
            }
        }
        (self.child.wait().unwrap(), lines)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread so that the pipe is never full.
pub(crate) fn lines_of(pipe: std::process::ChildStderr) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        while pipe.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            // The receiver is gone. Reading continues so that the writer does not block.
            let _ = sender.send(std::mem::take(&mut line));
        }
        let _ = pipe.read_to_end(&mut Vec::new());
    });
    lines
}

/// The next line of a log that contains `says`.
pub(crate) fn logged_by(log: &mpsc::Receiver<String>, says: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match log.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(says) => return line,
            Ok(line) => seen.push(line),
            Err(error) => panic!("{error}: nothing says `{says}`: {seen:#?}"),
        }
    }
}

/// A request for a run that asks the question.
pub(crate) fn asking() -> v1::CreateRunRequest {
    let message =
        v1::Message { role: v1::Role::User.into(), text: QUESTION.to_owned(), ..Default::default() };
    v1::CreateRunRequest { messages: vec![message], ..Default::default() }
}

/// Within the test's patience.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("it takes too long until {what}"))
}
