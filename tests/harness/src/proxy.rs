//! A proxy in front of a Postgres that can lose the answers to writes: the server has committed, and the client gets no answer.

mod statements;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::port::Port;
use statements::Statements;

/// Bytes read at a time, in each direction of a connection.
const CHUNK_BYTES: usize = 16 << 10;

/// A proxy on a port of the loopback interface. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    to: SocketAddr,
    board: watch::Sender<Board>,
}

/// Answers to lose, and answers lost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Board {
    to_lose: usize,
    lost: usize,
    /// Whether it forwards nothing, in either direction, while every connection stays open.
    is_held: bool,
    /// How much longer each answer takes.
    delay: Duration,
}

impl Proxy {
    /// Starts forwarding between its own port and `to`, a Postgres with unencrypted connections.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let port = Port::take()?;
        let listener = TcpListener::bind(port.address()).await.context("listening for a proxy")?;
        let shared = Arc::new(Shared { to, board: watch::Sender::new(Board::default()) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _tasks: tasks })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The next `count` statements that insert rows reach the server; once it has answered, the connection is cut instead of
    /// forwarding the answer. Waits for all of them, at most `wait_max`; returns how many happened.
    pub async fn lose_answers(&self, count: usize, wait_max: Duration) -> usize {
        let mut board = self.shared.board.subscribe();
        let before = board.borrow().lost;
        self.shared.board.send_modify(|board| board.to_lose = count);
        // A timeout is no error: the answers lost until then count.
        timeout(wait_max, board.wait_for(|board| board.lost >= before + count)).await.ok();
        self.shared.board.send_modify(|board| board.to_lose = 0);
        self.shared.board.borrow().lost - before
    }

    /// Stops forwarding without closing connections: they are half-open, as behind a firewall that dropped its state.
    pub fn hold(&self) {
        self.shared.board.send_modify(|board| board.is_held = true);
    }

    /// Delays each of the server's answers by this much from now on.
    pub fn answer_after(&self, delay: Duration) {
        self.shared.board.send_modify(|board| board.delay = delay);
    }

    /// Forwards what was held, and everything from now on.
    pub fn release(&self) {
        self.shared.board.send_modify(|board| board.is_held = false);
    }
}

impl Shared {
    /// Waits until nothing is held.
    async fn released(&self) {
        // It cannot fail: `self` holds the board.
        self.board.subscribe().wait_for(|board| !board.is_held).await.ok();
    }

    /// Whether to lose the answer to this write; decrements the number of answers to lose.
    fn dooms(&self) -> bool {
        self.board.send_if_modified(|board| {
            let dooms = board.to_lose > 0;
            board.to_lose -= usize::from(dooms);
            dooms
        })
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Forwards one connection until either side ends it or it is cut. An unreachable server looks like one that hangs up.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    shared.released().await;
    let Ok(server) = TcpStream::connect(shared.to).await else { return };
    // If this fails, the connection is only slower.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let doomed = AtomicBool::new(false);
    tokio::select! {
        _ = ask(from_client, to_server, &shared, &doomed) => {}
        _ = answer(from_server, to_client, &shared, &doomed) => {}
    }
}

async fn ask(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
    doomed: &AtomicBool,
) -> io::Result<()> {
    let mut statements = Statements::default();
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = client.read(&mut bytes).await?;
        shared.released().await;
        if read == 0 {
            return Ok(());
        }
        // Before the server can answer.
        if statements.hold_a_write(&bytes[..read]) && shared.dooms() {
            doomed.store(true, Ordering::Release);
        }
        server.write_all(&bytes[..read]).await?;
    }
}

async fn answer(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    shared: &Shared,
    doomed: &AtomicBool,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = server.read(&mut bytes).await?;
        shared.released().await;
        if read == 0 {
            return Ok(());
        }
        let delay = shared.board.borrow().delay;
        if !delay.is_zero() {
            pass(delay).await;
        }
        if doomed.load(Ordering::Acquire) {
            shared.board.send_modify(|board| board.lost += 1);
            return Ok(());
        }
        client.write_all(&bytes[..read]).await?;
    }
}

#[expect(clippy::disallowed_methods, reason = "a slow server takes time, and there is nothing to wait for")]
async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

#[cfg(test)]
mod tests {
    use super::statements::tests::{bind, parse, startup};
    use super::*;

    /// A server that answers each read with one byte; returns the bytes that it received.
    async fn answer_everything(listener: TcpListener) -> Vec<u8> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut all, mut bytes) = (Vec::new(), vec![0; 1024]);
        loop {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return all,
                Ok(read) => all.extend_from_slice(&bytes[..read]),
            }
            if stream.write_all(b"!").await.is_err() {
                return all;
            }
        }
    }

    #[tokio::test]
    async fn a_write_reaches_the_server_and_its_answer_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        let mut server = JoinSet::new();
        server.spawn(answer_everything(listener));
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let losing = proxy.lose_answers(1, Duration::from_secs(30));
        let talking = async {
            let mut sent = Vec::new();
            for message in [startup(), parse("w", "INSERT INTO runs"), parse("r", "SELECT 1"), bind("r")] {
                client.write_all(&message).await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'!', "a read is answered");
                sent.extend(message);
            }
            client.write_all(&bind("w")).await.unwrap();
            sent.extend(bind("w"));
            assert!(client.read_u8().await.is_err(), "the connection is cut");
            sent
        };
        let (lost, sent) = tokio::join!(losing, talking);
        assert_eq!(lost, 1);
        assert_eq!(server.join_next().await.unwrap().unwrap(), sent);
    }
}
