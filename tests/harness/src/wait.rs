//! Waiting for a server, which is a program of its own and knows no clock of a test's.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::server::Server;

/// How often a server is asked whether it answers.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a server may take to start, on a machine that has much else to do.
const START_MAX: Duration = Duration::from_mins(1);
/// How long a server may take to end once it was told to.
const END_MAX: Duration = Duration::from_mins(1);

/// Asks until there is an answer. An error has the end of the server's log.
pub(crate) async fn until_it_answers<T>(
    server: &mut Server,
    mut ask: impl AsyncFnMut() -> io::Result<Option<T>>,
) -> Result<T> {
    // Not tokio's clock: under paused time that one jumps to the end of the wait.
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

/// Waits until it has ended; its exit code. An error has the end of the server's log.
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

/// Connects, says something, and gives the first line of the answer.
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
