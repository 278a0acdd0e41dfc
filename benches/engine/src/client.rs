//! Clients: each has its own connection to the OpenAI-compatible API. It asks, reads the whole answer, and asks again.
//! Every second answer of all clients is streamed, so a half of the runs is watched.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use podium_bench_measure::{Connection, open};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Longest time for one answer: far more than a cluster that works needs.
const ANSWER_MAX: Duration = Duration::from_mins(1);
const QUESTION: &str =
    r#"{"model":"podium-ultra","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
const QUESTION_STREAMED: &str =
    r#"{"model":"podium-ultra","messages":[{"role":"user","content":"Why is the sky blue?"}],"stream":true}"#;
/// The last event of a stream that was not cut.
const STREAM_END: &[u8] = b"data: [DONE]\n\n";

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
                while let Ok(left) =
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                {
                    let begun = Instant::now();
                    let asked = async {
                        if left % 2 == 0 { ask(&mut connection).await } else { watch(&mut connection).await }
                    };
                    tokio::time::timeout(ANSWER_MAX, asked).await.context("an answer is late")??;
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
    send(connection, QUESTION).await.map(drop)
}

async fn watch(connection: &mut Connection) -> Result<()> {
    let events = send(connection, QUESTION_STREAMED).await?;
    ensure!(events.ends_with(STREAM_END), "a stream was cut: {}", String::from_utf8_lossy(&events));
    Ok(())
}

/// The whole body of the answer.
async fn send(connection: &mut Connection, question: &'static str) -> Result<Bytes> {
    connection.ready().await?;
    let request = Request::post("/v1/chat/completions")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::from(question))?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "the gateway answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
