//! Executors while Redis is unreachable: they follow their settings, and never call without a limit.

use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Call, Outcome};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::client::connect;
use crate::http::get;

const EXECUTORS: usize = 2;
const RUNS: usize = 40;
/// The limit of the worker; each executor has half of it.
const REQUESTS_PER_MINUTE: u64 = 300;
/// Longest time for any step of the test.
const PATIENCE: Duration = Duration::from_mins(2);

fn pool() -> String {
    format!(
        r#"
schema = 1
name = "redis-away"
version = "1"

[[vendors]]
id = "vendor"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"

[[workers]]
id = "worker"
vendor = "vendor"
model = "sim-echo"
description = "repeats what it is asked"
context_tokens = 8192
usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
limits = {{ in_flight_max = 1000, requests_per_minute = {REQUESTS_PER_MINUTE} }}
"#
    )
}

async fn start(away: &str) -> (Cluster, PodiumServiceClient<Channel>) {
    let mut shape = Shape::new(1, 1, EXECUTORS, "direct:worker");
    shape.pool = pool();
    shape.settings.push(("redis_away", away.to_owned()));
    let mut cluster = crate::start(&shape).await;
    cluster.redis.kill().await;
    // A process that continues with its own share is ready.
    let (status, says) = match away {
        "hold" => (503, "Redis is unreachable, and no worker is called"),
        _ => (200, "this process keeps to its own share of each limit"),
    };
    for executor in &cluster.executors {
        let said = async || {
            get(executor.address(0), "/readyz?verbose")
                .await
                .filter(|(got, body)| *got == status && body.contains(says))
        };
        crate::until(says, PATIENCE, said).await;
        assert!(limiter_is(executor, if away == "hold" { "holding" } else { "local" }).await);
    }
    let gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    (cluster, gateway)
}

/// Whether the executor's metrics show this state of its limiter.
async fn limiter_is(executor: &Service, state: &str) -> bool {
    let (status, page) = get(executor.address(0), "/metrics").await.unwrap();
    let is_state = |line: &str| {
        line.starts_with(&format!("podium_limiter_state{{podium_state=\"{state}\",")) && line.ends_with(" 1")
    };
    status == 200 && page.lines().any(is_state)
}

/// Submits all runs at once.
async fn ask(gateway: &PodiumServiceClient<Channel>) -> JoinSet<v1::Run> {
    let mut asking = JoinSet::new();
    for number in 0..RUNS {
        let mut gateway = gateway.clone();
        let messages =
            vec![v1::Message { role: v1::Role::User.into(), text: number.to_string(), ..Default::default() }];
        let request = v1::CreateRunRequest { messages, ..v1::CreateRunRequest::default() };
        let run_id = gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id;
        asking.spawn(async move {
            let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
            let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
            while updates.message().await.unwrap().is_some() {}
            gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap()
        });
    }
    asking
}

async fn all_succeed(asking: JoinSet<v1::Run>, cluster: &Cluster) {
    let runs = tokio::time::timeout(PATIENCE, asking.join_all()).await.unwrap();
    assert!(runs.iter().all(|run| run.state() == v1::RunState::Succeeded), "{runs:#?}");
    let calls = cluster.workers.calls();
    assert!(calls.iter().all(|call| call.outcome == Outcome::Answered), "{calls:#?}");
    assert_eq!(calls.len(), RUNS);
}

/// The most calls that began within `span_ms`.
fn most_within(span_ms: u64, calls: &[Call]) -> usize {
    let from =
        |begin: u64| calls.iter().filter(move |call| (begin..begin + span_ms).contains(&call.at_ms)).count();
    calls.iter().map(|call| from(call.at_ms)).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_executors_keep_to_their_shares() {
    let (cluster, gateway) = start("local:0.5").await;
    all_succeed(ask(&gateway).await, &cluster).await;
    let calls = cluster.workers.calls();
    // All shares together make the limit. The bound adds one second's worth for a burst, and one for calls that were permitted
    // earlier and began late.
    let (most, bound) = (most_within(4_000, &calls), REQUESTS_PER_MINUTE / 60 * 6);
    assert!(most as u64 <= bound, "{most} calls within four seconds, {bound} are allowed");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_executors_hold_all_calls_if_set_so() {
    let (mut cluster, gateway) = start("hold").await;
    let asking = ask(&gateway).await;
    // The steps that would have been called wait.
    crate::pause(Duration::from_secs(3)).await;
    assert_eq!(cluster.workers.calls().len(), 0);
    cluster.redis.start_again().await.unwrap();
    let is_shared = async || limiter_is(&cluster.executors[0], "shared").await.then_some(());
    crate::until("the limits are shared again", PATIENCE, is_shared).await;
    all_succeed(asking, &cluster).await;
    cluster.stop().await.unwrap();
}
