//! Clients in a closed loop: each has its own connection, asks, reads the whole answer, and asks again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use podium_bench_measure::open;
use tokio::task::JoinSet;

use crate::vendor::LAST_WORD;

/// The server to ask, and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) is_streamed: bool,
}

/// How long each answered request took, in order.
pub(crate) async fn ask(target: &Target, clients: usize, span: Duration) -> Result<Vec<Duration>> {
    let until = Instant::now() + span;
    let mut asking = JoinSet::new();
    for _ in 0..clients {
        asking.spawn(ask_until(target.clone(), until));
    }
    let mut took = Vec::new();
    while let Some(ended) = asking.join_next().await {
        took.extend(ended??);
    }
    took.sort();
    Ok(took)
}

async fn ask_until(target: Target, until: Instant) -> Result<Vec<Duration>> {
    let mut drivers = JoinSet::new();
    let mut connection = open(target.address, &mut drivers).await?;
    let body = serde_json::json!({
        "model": "podium-mini",
        "messages": [{ "role": "user", "content": "Say twenty words." }],
        "stream": target.is_streamed,
    });
    let body = body.to_string();
    let mut took = Vec::new();
    while took.is_empty() || Instant::now() < until {
        connection.ready().await?;
        let request = Request::post("/v1/chat/completions")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", target.key))
            .body(Full::from(body.clone()))?;
        let begun = Instant::now();
        let response = connection.send_request(request).await.context("asking")?;
        let status = response.status();
        let answer = response.into_body().collect().await.context("reading an answer")?.to_bytes();
        took.push(begun.elapsed());
        let text = String::from_utf8_lossy(&answer);
        let is_whole = text.contains(LAST_WORD) && (!target.is_streamed || text.contains("data: [DONE]"));
        ensure!(status.is_success() && is_whole, "the answer is {status}: {text}");
    }
    Ok(took)
}
