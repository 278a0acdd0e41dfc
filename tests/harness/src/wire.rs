//! A network link between our processes and a server: it can be switched to another server, and it can hold all bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::port::Port;

/// Bytes read at a time, in each direction of a connection.
const CHUNK_BYTES: usize = 16 << 10;

/// A link between an address and a server. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Wire {
    port: Port,
    state: Arc<watch::Sender<State>>,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    to: SocketAddr,
    is_held: bool,
}

impl Wire {
    /// Starts forwarding everything between its own port and `to`.
    pub async fn start(to: SocketAddr) -> Result<Self> {
        let port = Port::take()?;
        let listener = TcpListener::bind(port.address()).await.context("listening for a wire")?;
        let state = Arc::new(watch::Sender::new(State { to, is_held: false }));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { port, state, _tasks: tasks })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Directs new connections to another server, as when an address moves. Existing connections stay.
    pub fn lead_to(&self, to: SocketAddr) {
        self.state.send_modify(|state| state.to = to);
    }

    /// Stops forwarding in both directions without closing connections, like a network that drops everything. New connections are
    /// accepted and get no answer.
    pub fn hold(&self) {
        self.state.send_modify(|state| state.is_held = true);
    }

    /// Forwards what was held, and everything from now on.
    pub fn release(&self) {
        self.state.send_modify(|state| state.is_held = false);
    }
}

async fn accept(listener: TcpListener, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, state.subscribe()));
                }
            }
        }
    }
}

/// Forwards one connection until either side ends it. An unreachable server looks like one that hangs up.
async fn serve(client: TcpStream, mut state: watch::Receiver<State>) {
    let Some(to) = released(&mut state).await else { return };
    let Ok(server) = TcpStream::connect(to).await else { return };
    // If this fails, the connection is only slower.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = pass(from_client, to_server, state.clone()) => {}
        _ = pass(from_server, to_client, state) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut bytes).await?;
        // Even the end of the stream is held.
        if released(&mut state).await.is_none() || read == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..read]).await?;
    }
}

/// The server's address, once nothing is held; `None` after the link was dropped.
async fn released(state: &mut watch::Receiver<State>) -> Option<SocketAddr> {
    state.wait_for(|state| !state.is_held).await.ok().map(|state| state.to)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn greeter(word: u8) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(&[word]).await.ok();
            }
        });
        (address, tasks)
    }

    #[tokio::test]
    async fn a_wire_can_be_redirected_and_held() {
        let ((first, _first), (second, _second)) = (greeter(b'1').await, greeter(b'2').await);
        let wire = Wire::start(first).await.unwrap();
        let greeted = async || TcpStream::connect(wire.address()).await.unwrap().read_u8().await.unwrap();
        assert_eq!(greeted().await, b'1');
        wire.lead_to(second);
        assert_eq!(greeted().await, b'2');
        wire.hold();
        let mut waiting = TcpStream::connect(wire.address()).await.unwrap();
        let none = timeout(Duration::from_millis(50), waiting.read_u8()).await;
        assert!(none.is_err(), "a held wire forwards nothing and closes no connection");
        wire.release();
        assert_eq!(waiting.read_u8().await.unwrap(), b'2');
    }
}
