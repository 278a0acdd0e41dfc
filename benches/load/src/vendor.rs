//! A vendor that costs almost nothing: it waits as long as the prompt says, and then streams tokens at a model's pace as Chat
//! Completions. It is a separate process, so that its CPU time is not counted as that of another.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::work::{Durations, TOKENS_PER_SECOND, Work, end_of_output, run_in, work_in};

/// The model that plans.
pub(crate) const CONDUCTOR_MODEL: &str = "load-conductor";

/// Runs the vendor: `podium-load-vendor SHORTEST_MS LONGEST_MS TOKENS_MAX ADDRESS`.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podium-load-vendor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve() -> Result<()> {
    crate::raise_open_files()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shortest, longest, tokens_max, address] = arguments.as_slice() else {
        anyhow::bail!("there must be four arguments");
    };
    let durations =
        Durations { first_token_ms: (shortest.parse()?, longest.parse()?), tokens_max: tokens_max.parse()? };
    let address: SocketAddr = address.parse().with_context(|| format!("`{address}` is no address"))?;
    accept(TcpListener::bind(address).await?, durations).await
}

async fn accept(listener: TcpListener, durations: Durations) -> Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            Some(_) = connections.join_next() => continue,
        };
        stream.set_nodelay(true)?;
        let service = service_fn(move |request| answer(request, durations));
        connections.spawn(async move {
            // A caller may disconnect at any time.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

type Chunks = StreamBody<std::pin::Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

/// The paths of a collector. It discards what it gets.
const COLLECTED: [&str; 2] = ["/v1/metrics", "/v1/traces"];

async fn answer(request: Request<Incoming>, durations: Durations) -> Result<Response<Chunks>> {
    if request.uri().path() == "/readyz" {
        return reply(200, "text/plain", stream::once(async { Bytes::from_static(b"ok") }));
    }
    if COLLECTED.contains(&request.uri().path()) {
        request.into_body().collect().await?;
        return reply(200, "application/x-protobuf", stream::once(async { Bytes::new() }));
    }
    let arrived = Instant::now();
    let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let prompt = body["messages"].to_string();
    let is_plan = body["model"] == CONDUCTOR_MODEL;
    let (begins_after, pieces) = if is_plan {
        let number = run_in(&prompt).context("the question names no run")?;
        let work = Work::of(number, &durations);
        (Duration::from_millis(work.plan_ms), vec![work.plan()])
    } else {
        let [number, step, ms, tokens] = work_in(&prompt).context("the subtask names no work")?;
        let mut pieces = vec!["token ".to_owned(); usize::try_from(tokens)?];
        pieces.push(end_of_output(number, usize::try_from(step)?));
        (Duration::from_millis(ms), pieces)
    };
    let begins = arrived + begins_after;
    if body["stream"] != true {
        sleep_until(begins + pause(pieces.len().saturating_sub(1))).await;
        let message = json!({ "role": "assistant", "content": pieces.concat() });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let body = json!({ "id": "c", "object": "chat.completion", "choices": [choice], "usage": usage(pieces.len()) });
        return reply(200, "application/json", stream::once(async move { Bytes::from(body.to_string()) }));
    }
    let last = pieces.len().saturating_sub(1);
    let usage = usage(pieces.len());
    let chunks = stream::iter(pieces.into_iter().enumerate()).then(move |(index, piece)| {
        let usage = usage.clone();
        async move {
            sleep_until(begins + pause(index)).await;
            let mut text = event(&json!({ "id": "c", "object": "chat.completion.chunk",
                "choices": [{ "index": 0, "delta": { "content": piece } }] }));
            if index == last {
                text += &event(&json!({ "id": "c", "object": "chat.completion.chunk",
                    "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }], "usage": usage }));
                text += "data: [DONE]\n\n";
            }
            Bytes::from(text)
        }
    });
    reply(200, "text/event-stream", chunks)
}

/// The time from the first piece to the piece at `index`.
fn pause(index: usize) -> Duration {
    Duration::from_millis(u64::try_from(index).unwrap_or(u64::MAX).saturating_mul(1000) / TOKENS_PER_SECOND)
}

fn usage(tokens: usize) -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens })
}

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn reply(
    status: u16,
    kind: &str,
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response<Chunks>> {
    let frames = chunks.map(|chunk| Ok(Frame::data(chunk)));
    let body: Chunks = StreamBody::new(Box::pin(frames));
    Ok(Response::builder().status(status).header("content-type", kind).body(body)?)
}
