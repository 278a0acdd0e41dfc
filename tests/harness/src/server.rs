//! A server's process, which never outlives the test's.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Runs a server in the background and prints its process id. A line on standard input is a signal for the server. The end of
/// standard input, which comes when the test's process ends in any way, ends the server and removes its files. Exits with the
/// server's exit code, or 128 plus the signal's number if a signal ended it.
///
/// It does not use the kernel's parent-death signal, which is sent when the parent's *thread* ends.
const WATCHDOG: &str = r#"
folder=$1 last_signal=$2
shift 2
exec 3<&0 </dev/null
"$@" 3<&- >>"$folder/log" 2>&1 &
server=$!
echo "$server"
exec >/dev/null 2>&1
{
    if read -r signal <&3; then kill -s "$signal" "$server"; else kill -s "$last_signal" "$server"; exit 9; fi
} &
reader=$!
exec 3<&-
wait "$server"
code=$?
kill "$reader"
wait "$reader"
if [ $? -eq 9 ]; then rm -rf "$folder"; fi
exit "$code"
"#;
/// The name of a server's log file in its folder.
pub(crate) const LOG: &str = "log";
/// Most characters of a log in an error.
const LOG_CHARS_MAX: usize = 2000;

/// The user to run as, if different from the current one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A signal by its name for `kill -s`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Kill,
    Abort,
    Quit,
    Terminate,
    Stop,
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Abort => "ABRT",
            Self::Quit => "QUIT",
            Self::Terminate => "TERM",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// The server to start.
#[derive(Debug)]
pub(crate) struct Launch<'l> {
    /// The folder of its files and its log; removed when the test's process ends.
    pub(crate) folder: &'l Path,
    pub(crate) program: &'l Path,
    pub(crate) arguments: Vec<String>,
    /// Variables in addition to those of the test's process.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) user: Option<User>,
    /// The signal that ends it at the end of the test.
    pub(crate) last_signal: Signal,
}

/// A running server. Dropping it ends the server, waits until it has ended, and removes its folder.
#[derive(Debug)]
pub(crate) struct Server {
    watchdog: Child,
    /// `None` after the end was requested.
    orders: Option<ChildStdin>,
    pid: u32,
    log: PathBuf,
}

impl Server {
    pub(crate) fn spawn(launch: &Launch<'_>) -> Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", WATCHDOG, "podium-harness"])
            .arg(launch.folder)
            .arg(launch.last_signal.name())
            .arg(launch.program)
            .args(&launch.arguments)
            .current_dir(launch.folder)
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Signals for the test's group, such as an interrupt, end the test; the watchdog ends after it.
            .process_group(0);
        if let Some(User { uid, gid }) = launch.user {
            command.uid(uid).gid(gid);
        }
        let mut watchdog = command.spawn().context("starting `sh`")?;
        let orders = watchdog.stdin.take();
        let told = watchdog.stdout.take().context("the watchdog has no output")?;
        let mut pid = String::new();
        BufReader::new(told).read_line(&mut pid).context("reading a server's process id")?;
        let pid = pid.trim().parse().context("a watchdog printed no process id")?;
        Ok(Self { watchdog, orders, pid, log: launch.folder.join(LOG) })
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.watchdog.try_wait(), Ok(None))
    }

    /// Sends a signal after which it continues.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "kill", signal.name(), &self.pid.to_string()])
            .status()
            .context("starting `sh`")?;
        ensure!(sent.success(), "the server takes no signal: {}", self.log_end());
        Ok(())
    }

    /// The id of its process.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its exit code after its end, or 128 plus the number of the signal that ended it.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.watchdog.try_wait().ok().flatten()?.code()
    }

    /// Sends a signal that ends it, and waits until it has ended. Its folder stays.
    pub(crate) async fn end(mut self, signal: Signal) -> Result<()> {
        if let Some(mut orders) = self.orders.take() {
            // If it has already ended, nothing reads the order.
            writeln!(orders, "{}", signal.name()).ok();
        }
        let wait = move || self.watchdog.wait().context("waiting for a server's end");
        tokio::task::spawn_blocking(wait).await.context("waiting for a server's end")??;
        Ok(())
    }

    /// The end of its log.
    pub(crate) fn log_end(&self) -> String {
        log_end(&self.log)
    }
}

/// The end of a server's log.
pub(crate) fn log_end(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let skip = log.chars().count().saturating_sub(LOG_CHARS_MAX);
    log.chars().skip(skip).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It cannot fail unless another caller has waited for the process.
        self.watchdog.wait().ok();
    }
}
