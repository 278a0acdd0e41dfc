//! Clients: each has its own connection to the OpenAI-compatible API. It asks, waits for the whole answer, and asks again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use podium_bench_measure::{Connection, open};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Longest time for one answer: far more than a cluster that works needs.
const ANSWER_MAX: Duration = Duration::from_mins(1);
const QUESTION: &str =
    r#"{"model":"podium-ultra","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

/// As many clients as workflows shall be in flight.
pub(crate) struct Clients {
    connections: Vec<Arc<Mutex<Connection>>>,
    /// The tasks that drive the connections.
    drivers: JoinSet<()>,
}

impl Clients {
    /// Connects them all.
    pub(crate) async fn connect(gateway: SocketAddr, count: usize) -> Result<Self> {
        let (mut connections, mut drivers) = (Vec::with_capacity(count), JoinSet::new());
        for _ in 0..count {
            connections.push(Arc::new(Mutex::new(open(gateway, &mut drivers).await?)));
        }
        Ok(Self { connections, drivers })
    }

    /// Has `runs` workflows run, as many at a time as there are clients. Gives how long each took.
    pub(crate) async fn ask(&self, runs: usize) -> Result<Vec<Duration>> {
        ensure!(!self.drivers.is_empty(), "there are no clients");
        let left = Arc::new(AtomicUsize::new(runs));
        let mut asking = JoinSet::new();
        for connection in &self.connections {
            let (connection, left) = (Arc::clone(connection), Arc::clone(&left));
            asking.spawn(async move {
                let mut connection = connection.lock().await;
                let mut latencies = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let begun = Instant::now();
                    tokio::time::timeout(ANSWER_MAX, ask(&mut connection))
                        .await
                        .context("an answer is late")??;
                    latencies.push(begun.elapsed());
                }
                anyhow::Ok(latencies)
            });
        }
        let mut latencies = Vec::with_capacity(runs);
        while let Some(asked) = asking.join_next().await {
            latencies.extend(asked??);
        }
        Ok(latencies)
    }
}

async fn ask(connection: &mut Connection) -> Result<()> {
    connection.ready().await?;
    let request = Request::post("/v1/chat/completions")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::from(QUESTION))?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "the gateway answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(())
}
