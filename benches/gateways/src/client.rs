//! Clients in a closed loop: each has its own connection, asks, reads the whole answer, and asks again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use podium_bench_measure::open;
use tokio::task::JoinSet;

use crate::vendor::{FIRST_WORD, LAST_WORD};

/// The server to ask, and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) is_streamed: bool,
}

/// The durations of the answered requests, each list sorted.
#[derive(Debug, Default)]
pub(crate) struct Took {
    /// Until the first word of the answer.
    pub(crate) first: Vec<Duration>,
    /// Until the end of the answer.
    pub(crate) whole: Vec<Duration>,
}

/// Asks with this number of clients for a time.
pub(crate) async fn ask(target: &Target, clients: usize, span: Duration) -> Result<Took> {
    let until = Instant::now() + span;
    let mut asking = JoinSet::new();
    for _ in 0..clients {
        asking.spawn(ask_until(target.clone(), until));
    }
    let mut took = Took::default();
    while let Some(ended) = asking.join_next().await {
        let Took { first, whole } = ended??;
        took.first.extend(first);
        took.whole.extend(whole);
    }
    took.first.sort();
    took.whole.sort();
    Ok(took)
}

async fn ask_until(target: Target, until: Instant) -> Result<Took> {
    let mut drivers = JoinSet::new();
    let mut connection = open(target.address, &mut drivers).await?;
    let body = serde_json::json!({
        "model": "podium-mini",
        "messages": [{ "role": "user", "content": "Say twenty words." }],
        "stream": target.is_streamed,
    });
    let body = body.to_string();
    let mut took = Took::default();
    while took.whole.is_empty() || Instant::now() < until {
        connection.ready().await?;
        let request = Request::post("/v1/chat/completions")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", target.key))
            .body(Full::from(body.clone()))?;
        let begun = Instant::now();
        let response = connection.send_request(request).await.context("asking")?;
        let status = response.status();
        let (mut body, mut text) = (response.into_body(), String::new());
        let mut first = None;
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.context("reading an answer")?.into_data() {
                text.push_str(&String::from_utf8_lossy(&data));
            }
            if first.is_none() && text.contains(FIRST_WORD) {
                first = Some(begun.elapsed());
            }
        }
        took.whole.push(begun.elapsed());
        took.first.push(first.unwrap_or_else(|| begun.elapsed()));
        let is_whole = text.contains(LAST_WORD) && (!target.is_streamed || text.contains("data: [DONE]"));
        ensure!(status.is_success() && is_whole, "the answer is {status}: {text}");
    }
    Ok(took)
}
