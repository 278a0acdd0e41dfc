//! Runs that are offered before they are stored, while those who take them die: each request is one run and has its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use podium_api::v1;
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::door;
use crate::http;

const WORKER: &str = "sim-arithmetic";
const CLIENTS: u64 = 8;
/// How many runs have to end between two things that happen.
const BETWEEN: u64 = 4 * CLIENTS;
const PATIENCE: Duration = Duration::from_mins(1);

/// Clients without request ids, which wait for the whole answer and then ask the next question.
struct Askers {
    clients: JoinSet<Vec<String>>,
    answered: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Askers {
    fn start(doors: &[SocketAddr]) -> Self {
        let (stop, answered) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let mut clients = JoinSet::new();
        for (client, door) in (0..CLIENTS).zip(doors.iter().copied().cycle()) {
            let (stop, answered) = (stop.clone(), Arc::clone(&answered));
            clients.spawn(async move {
                let mut wrong = Vec::new();
                for number in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    wrong.extend(ask(door, 1_000 * client + number).await.err());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                wrong
            });
        }
        Self { clients, answered, stop }
    }

    fn count(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// Waits until some more have their answers.
    async fn go_on(&self) {
        let wanted = self.count() + BETWEEN;
        crate::until("runs end", PATIENCE, async || (self.count() >= wanted).then_some(())).await;
    }

    /// How many were asked, once all have their answers, and which were wrong.
    async fn stop(self) -> (u64, Vec<String>) {
        self.stop.cancel();
        let wrong = self.clients.join_all().await.concat();
        (self.answered.load(Ordering::SeqCst), wrong)
    }
}

/// Fails where the answer is not the right one.
async fn ask(door: SocketAddr, number: u64) -> Result<(), String> {
    let messages = json!([{ "role": "user", "content": format!("{number} + 1") }]);
    let body = json!({ "model": "podium-ultra", "messages": messages }).to_string();
    let (status, body) =
        http::post(door, "/v1/chat/completions", &body).await.ok_or(format!("{number}: no answer"))?;
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    let right = (number + 1).to_string();
    let is_right = answer["choices"][0]["message"]["content"].as_str() == Some(right.as_str());
    if status == 200 && is_right { Ok(()) } else { Err(format!("{number}: {status} {body}")) }
}

/// Offers that executors took so far, as those say who live.
async fn taken(cluster: &Cluster) -> u64 {
    let mut taken = 0;
    for executor in &cluster.executors {
        let (_, page) = http::get(executor.address(0), "/metrics").await.unwrap();
        let lines = page.lines().filter(|line| {
            line.starts_with("podium_lane_offered_total{") && line.contains("podium_outcome=\"taken\"")
        });
        taken += lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>();
    }
    taken
}

/// Runs that the gateways know.
async fn stored(cluster: &Cluster) -> u64 {
    let mut door = door(cluster.gateways[0].address(1)).await.unwrap();
    let (mut count, mut page_token) = (0, String::new());
    loop {
        let request = v1::ListRunsRequest { page_size: 200, page_token };
        let page = door.list_runs(request).await.unwrap().into_inner();
        count += page.runs.len() as u64;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return count;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offered_runs_are_answered_once_while_executors_and_nats_die() {
    let mut shape = Shape::new(2, 1, 2, format!("direct:{WORKER}"));
    shape.settings = vec![("lease_ms", "1500".to_owned()), ("log", "warn".to_owned())];
    let mut cluster = crate::start(&shape).await;
    // Some end before who asked stores them himself, and some do not.
    let behaviour = Behaviour { first_token_ms: Milliseconds { min: 10, max: 200 }, ..Behaviour::default() };
    cluster.workers.set_behaviour(WORKER, behaviour).unwrap();
    let doors: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(0)).collect();
    let askers = Askers::start(&doors);
    askers.go_on().await;
    assert!(taken(&cluster).await > 0, "nothing was offered");

    for executor in &mut cluster.executors {
        executor.kill().await.unwrap();
        askers.go_on().await;
        executor.start_again().await.unwrap();
        askers.go_on().await;
    }
    for executor in &mut cluster.executors {
        assert_eq!(executor.terminate().await.unwrap(), 0);
        askers.go_on().await;
        executor.start_again().await.unwrap();
    }
    cluster.executors[0].freeze().unwrap();
    askers.go_on().await;
    cluster.executors[0].thaw().unwrap();
    cluster.nats.kill().await;
    cluster.nats.start_again().await.unwrap();
    askers.go_on().await;
    let before = taken(&cluster).await;
    askers.go_on().await;
    assert!(taken(&cluster).await > before, "nothing is offered any more");

    let (asked, wrong) = askers.stop().await;
    assert!(wrong.is_empty(), "of {asked}: {wrong:#?}");
    assert_eq!(stored(&cluster).await, asked, "each request is one run");
    let repeated = cluster.workers.calls().len() as u64 - asked;
    assert!(repeated <= 3 * CLIENTS, "{repeated} calls were repeated, of {asked}");
    cluster.stop().await.unwrap();
}
