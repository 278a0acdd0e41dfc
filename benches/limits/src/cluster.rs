//! The same with whole processes: clients ask a gateway, a planner plans, and so many executors call the vendor. Each is a process
//! of its own, on Postgres, NATS and Redis.
//!
//! The vendor counts, not those who call it. A run that does not succeed ends the measurement.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use podium_local_cluster::{Cluster, Shape};
use podium_ports::clock::Clock;
use podium_setup::SystemClock;
use podium_vendors::{Route, http_client};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::prompt::prompt;
use crate::{Arguments, Counted, pool, sim_options};

/// Longest wait for a connection to the gateway.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for an answer. While runs of the mini tier wait as well, one of the ultra tier waits for minutes.
const ANSWER_MAX: Duration = Duration::from_mins(15);
/// Connections to Postgres of each process: together no more than it has.
const POSTGRES_CONNECTIONS: &str = "2";

pub(crate) async fn run(arguments: &Arguments, executors: usize) -> Result<Counted> {
    let mut shape = Shape::new(1, 1, executors, "direct:worker");
    shape.pool = pool(arguments, "http://127.0.0.1:1/v1");
    shape.workers = sim_options(arguments);
    shape.settings = vec![
        ("postgres_connections", POSTGRES_CONNECTIONS.to_owned()),
        ("plan_at_once", "false".to_owned()),
        ("log", "warn".to_owned()),
    ];
    let cluster = Cluster::start(&std::env::current_exe()?, &shape).await?;
    let client = Client {
        http: http_client(Route::Loopback, CONNECT_MAX, None)?,
        url: format!("http://{}/v1/chat/completions", cluster.gateways[0].address(0)),
        arguments: Arc::new(arguments.clone()),
        stop: CancellationToken::new(),
    };
    let callers = u64::try_from(executors)? * u64::from(arguments.callers);
    let before = cluster.workers.account_use();
    let mut clients = JoinSet::new();
    for number in 0..callers {
        clients.spawn(client.clone().ask_until_stopped(number));
    }
    tokio::select! {
        () = SystemClock.sleep(Duration::from_secs(arguments.seconds)) => {}
        Some(ended) = clients.join_next() => {
            ended??;
            bail!("a client ended before it was told to");
        }
    }
    let after = cluster.workers.account_use();
    client.stop.cancel();
    for ended in clients.join_all().await {
        ended?;
    }
    Ok(Counted {
        callers,
        used: after.requests - before.requests,
        tokens: after.tokens - before.tokens,
        limited: after.refused - before.refused,
        ..Counted::default()
    })
}

/// Asks one question after the other.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
    arguments: Arc<Arguments>,
    stop: CancellationToken,
}

impl Client {
    async fn ask_until_stopped(self, number: u64) -> Result<()> {
        for call in 1.. {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                asked = self.ask(number, call) => asked.with_context(|| format!("client {number}, run {call}"))?,
            }
        }
        Ok(())
    }

    async fn ask(&self, number: u64, call: u64) -> Result<()> {
        let body = json!({
            "model": if number.is_multiple_of(4) { "podium-mini" } else { "podium-ultra" },
            "messages": [{ "role": "user", "content": prompt(number, call, self.arguments.prompt_words) }],
            "max_tokens": self.arguments.output_tokens_max,
        });
        let request =
            self.http.post(&self.url).timeout(ANSWER_MAX).header("content-type", "application/json");
        let response = request.body(body.to_string()).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status.is_success(), "the gateway answered {status}: {text}");
        Ok(())
    }
}
