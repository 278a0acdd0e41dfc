//! Clients in a closed loop. Each has its own connection, asks, reads the whole answer, and asks again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use podium_bench_measure::{Connection, open};
use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::tenants::Tenants;
use crate::work::{Durations, Work};

/// Longest time for an answer: the deadline of runs.
const ANSWER_MAX: Duration = Duration::from_mins(10);
/// One run in this many has an idempotency key.
const IDEMPOTENT_EVERY: u64 = 5;
/// Most errors that are kept.
const ERRORS_MAX: usize = 8;

/// The outcomes of the runs so far.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// Runs that clients wait for.
    pub(crate) under_way: AtomicU64,
    next: AtomicU64,
    ended: Mutex<Ended>,
}

/// Runs that ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// Runs with the right answer.
    pub(crate) runs: u64,
    /// The steps of these runs.
    pub(crate) steps: u64,
    /// Rejected, failed or wrong runs.
    pub(crate) failed: u64,
    /// The first few reasons.
    pub(crate) errors: Vec<String>,
    /// The overhead of each run: milliseconds beyond the time of its models, divided by the steps on its longest path and its plan.
    pub(crate) added_ms: Vec<f64>,
}

impl Outcomes {
    /// The runs that ended since the last call.
    pub(crate) fn take(&self) -> Ended {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self, work: &Work, took: Duration, outcome: Result<()>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => {
                ended.runs += 1;
                ended.steps += u64::try_from(work.steps.len()).unwrap_or_default();
                let added_ms = (took.as_secs_f64() - work.takes().as_secs_f64()) * 1e3;
                ended.added_ms.push(added_ms / f64::from(work.depth() + 1));
            }
            Err(error) => {
                ended.failed += 1;
                if ended.errors.len() < ERRORS_MAX {
                    ended.errors.push(format!("{error:#}"));
                }
            }
        }
    }
}

/// The state that all clients share.
pub(crate) struct Load {
    pub(crate) gateways: Vec<SocketAddr>,
    pub(crate) tenants: Tenants,
    pub(crate) durations: Durations,
    pub(crate) outcomes: Outcomes,
    pub(crate) stop: CancellationToken,
}

impl Load {
    /// Starts a client after `delay`.
    pub(crate) async fn client(self: Arc<Self>, number: u64, delay: Duration) {
        tokio::select! {
            () = SystemClock.sleep(delay) => {}
            () = self.stop.cancelled() => return,
        }
        let gateway = self.gateways[usize::try_from(number).unwrap_or_default() % self.gateways.len()];
        let mut dice = StdRng::seed_from_u64(number);
        let (mut drivers, mut connection) = (JoinSet::new(), None);
        while !self.stop.is_cancelled() {
            let work = Work::of(self.outcomes.next.fetch_add(1, Ordering::Relaxed), &self.durations);
            let mut connected = match connection.take() {
                Some(connected) => connected,
                None => match open(gateway, &mut drivers).await {
                    Ok(connected) => connected,
                    Err(error) => {
                        self.outcomes.ended(&work, Duration::ZERO, Err(error));
                        SystemClock.sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                },
            };
            self.outcomes.under_way.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let asked = tokio::select! {
                asked = timeout(ANSWER_MAX, self.ask(&mut connected, &work, &mut dice)) => asked,
                () = self.stop.cancelled() => return,
            };
            self.outcomes.under_way.fetch_sub(1, Ordering::Relaxed);
            let outcome = asked.context("the answer is late").flatten();
            if outcome.is_ok() {
                connection = Some(connected);
            }
            self.outcomes.ended(&work, begun.elapsed(), outcome);
        }
    }

    async fn ask(&self, connection: &mut Connection, work: &Work, dice: &mut StdRng) -> Result<()> {
        connection.ready().await?;
        let body = json!({
            "model": "podium-ultra",
            "messages": [{ "role": "user", "content": work.question() }],
            "stream": dice.random_bool(0.5),
        });
        let key = self.tenants.next_key(dice)?;
        let mut request = Request::post("/v1/chat/completions")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {key}"));
        if dice.random_range(0..IDEMPOTENT_EVERY) == 0 {
            request = request.header("idempotency-key", format!("key-{}", dice.random::<u64>()));
        }
        let response = connection.send_request(request.body(Full::from(body.to_string()))?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        ensure!(status.is_success(), "the gateway answered {status}: {text}");
        let end = work.end_of_answer();
        ensure!(text.contains(&end), "the answer lacks `{end}`: {text}");
        Ok(())
    }
}
