//! Waits for servers in real time, because they are separate processes that do not follow a test's clock.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::server::Server;

/// The interval between two tries.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// The longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The longest start of a server, on a busy machine.
const START_MAX: Duration = Duration::from_mins(1);
/// The longest end of a server after the request to end.
const END_MAX: Duration = Duration::from_mins(1);

/// Repeats a request until there is an answer. The error has the end of the server's log.
pub(crate) async fn until_it_answers<T>(
    server: &mut Server,
    mut ask: impl AsyncFnMut() -> io::Result<Option<T>>,
) -> Result<T> {
    // Not tokio's clock: under paused time it would jump to the end of the wait.
    let start = Instant::now();
    let mut asking = interval(ASK_EVERY);
    asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        asking.tick().await;
        if let Ok(Some(answer)) = ask().await {
            return Ok(answer);
        }
        if server.has_ended() {
            bail!("the server ended as it started: {}", server.log_end());
        }
        if start.elapsed() > START_MAX {
            bail!("the server did not answer within {START_MAX:?}: {}", server.log_end());
        }
    }
}

/// Waits until it has ended and returns its exit code. The error has the end of the server's log.
pub(crate) async fn until_it_ends(server: &mut Server) -> Result<i32> {
    let start = Instant::now();
    let mut asking = interval(ASK_EVERY);
    asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        asking.tick().await;
        if let Some(code) = server.exit_code() {
            return Ok(code);
        }
        if start.elapsed() > END_MAX {
            bail!("the server did not end within {END_MAX:?}: {}", server.log_end());
        }
    }
}

/// Connects, sends a text, and returns the first line of the answer.
pub(crate) async fn first_line(address: SocketAddr, say: &str) -> io::Result<String> {
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(say.as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    };
    timeout(ANSWER_MAX, talk).await?
}
