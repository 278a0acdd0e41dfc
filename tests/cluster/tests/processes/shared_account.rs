//! A planner and executors share one vendor account and keep its limit together, through Redis. When one uses up the limit, the
//! others wait, and the vendor rejects no call.

use std::collections::BTreeMap;
use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_harness::Service;
use podium_local_cluster::Shape;
use podium_vendor_sim::{AccountLimit, Call, Outcome};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::client::connect;
use crate::http::get;

/// The limit of the account.
const REQUESTS_PER_MINUTE: u64 = 120;
/// The window of the check: the vendor's own minute is longer than this test.
const WINDOW_S: u64 = 10;
/// Calls that a busy machine may delay behind later permitted ones.
const LATE: u64 = 3;
/// Runs in each half of the test: those that use up the account, and those that wait.
const DIRECT_THEN_PLANNED: [usize; 2] = [24, 8];
const PLANNED_THEN_DIRECT: [usize; 2] = [12, 4];
const PATIENCE: Duration = Duration::from_mins(5);
/// A model whose requests go to the worker unplanned.
const DIRECT: &str = "podium-ultra@direct-worker";
/// A model whose requests are planned by the model of the same account, as one step of the worker.
const PLANNED: &str = "podium-ultra@remote-planner";

fn pool() -> String {
    format!(
        r#"
schema = 1
name = "one-account"
version = "1"

[[vendors]]
id = "vendor"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"
limits = {{ requests_per_minute = {REQUESTS_PER_MINUTE} }}

[[workers]]
id = "worker"
vendor = "vendor"
model = "sim-arithmetic"
description = "Does exact arithmetic and nothing else."
strengths = ["arithmetic"]
context_tokens = 8192
usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
limits = {{ in_flight_max = 1000 }}

[[workers]]
id = "planner"
vendor = "vendor"
model = "sim-conductor"
description = "Plans."
context_tokens = 65536
usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
limits = {{ in_flight_max = 1000 }}
"#
    )
}

type Gateway = PodiumServiceClient<Channel>;

/// Submits `runs` runs of a model at once.
async fn ask(gateway: &Gateway, model: &str, runs: usize) -> JoinSet<v1::Run> {
    let mut asking = JoinSet::new();
    for number in 0..runs {
        let mut gateway = gateway.clone();
        let text = format!("{number} + 1");
        let messages = vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }];
        let request =
            v1::CreateRunRequest { model: model.to_owned(), messages, ..v1::CreateRunRequest::default() };
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

/// The number of outcomes of the limiter in the process's metrics, by `labels`.
async fn outcomes(service: &Service, metric: &str, labels: &str, outcome: &str) -> u64 {
    let (status, page) = get(service.address(0), "/metrics").await.unwrap();
    assert_eq!(status, 200);
    let outcome = format!("podium_outcome=\"{outcome}\"");
    let lines = page.lines().filter(|line| {
        line.starts_with(&format!("{metric}_total{{")) && line.contains(labels) && line.contains(&outcome)
    });
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The most calls that began within the window.
fn most_within_window(calls: &[Call]) -> usize {
    let window =
        |begin: u64| calls.iter().filter(move |call| (begin..begin + WINDOW_S * 1000).contains(&call.at_ms));
    calls.iter().map(|call| window(call.at_ms).count()).max().unwrap_or_default()
}

/// The calls in their order, by model.
fn by_model(calls: &[Call]) -> BTreeMap<&str, Vec<u64>> {
    let mut times: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for call in calls {
        times.entry(call.model.as_str()).or_default().push(call.at_ms);
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn planner_and_executors_share_the_limit_of_an_account() {
    let mut shape = Shape::new(1, 1, 1, "direct:worker");
    shape.pool = pool();
    shape.settings = vec![
        ("conductor_next", "worker:planner".to_owned()),
        ("conductor_next_share", "0".to_owned()),
        ("plan_slots", "64".to_owned()),
    ];
    shape.workers.limit =
        AccountLimit { requests_per_minute: REQUESTS_PER_MINUTE + LATE, tokens_per_minute: 0 };
    let cluster = crate::start(&shape).await;
    let gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let of_planner = async |outcome| {
        outcomes(&cluster.planners[0], "podium_conductor_remote_permits", "remote-planner", outcome).await
    };
    let of_executor =
        async |outcome| outcomes(&cluster.executors[0], "podium_permit_asked", "\"worker\"", outcome).await;

    // The executor uses up the account, and the planner waits.
    let [direct, planned] = DIRECT_THEN_PLANNED;
    let first = ask(&gateway, DIRECT, direct).await;
    let is_used = async || (cluster.workers.calls().len() > 3).then_some(());
    crate::until("workers are called", PATIENCE, is_used).await;
    assert_eq!(of_planner("rate").await, 0);
    let second = ask(&gateway, PLANNED, planned).await;
    let waits = async || (of_planner("rate").await > 0).then_some(());
    crate::until("the planner is told to wait", PATIENCE, waits).await;
    let mut runs = tokio::time::timeout(PATIENCE, first.join_all()).await.unwrap();
    runs.extend(tokio::time::timeout(PATIENCE, second.join_all()).await.unwrap());
    let calls = cluster.workers.calls();
    let times = by_model(&calls);
    let (plans, steps) = (&times["sim-conductor"], &times["sim-arithmetic"]);
    assert_eq!((plans.len(), steps.len()), (planned, direct + planned));
    // Older runs go first, although each worker has the vendor's limit. A busy executor may miss its turn, so single plans may come
    // early.
    let before = steps.iter().filter(|at| **at < plans[planned / 2]).count();
    assert!(before > direct / 2, "{before} steps were called before half of the plans: {plans:?}, {steps:?}");

    // The planner uses up the account, and the executor waits.
    let told_before = of_executor("rate").await;
    let [more_planned, more_direct] = PLANNED_THEN_DIRECT;
    let first = ask(&gateway, PLANNED, more_planned).await;
    let begun = async || (by_model(&cluster.workers.calls())["sim-conductor"].len() > planned).then_some(());
    crate::until("a plan is written", PATIENCE, begun).await;
    let second = ask(&gateway, DIRECT, more_direct).await;
    runs.extend(tokio::time::timeout(PATIENCE, first.join_all()).await.unwrap());
    runs.extend(tokio::time::timeout(PATIENCE, second.join_all()).await.unwrap());
    assert!(of_executor("rate").await > told_before, "the executor never waited");

    assert!(runs.iter().all(|run| run.state() == v1::RunState::Succeeded), "{runs:#?}");
    assert!(runs.iter().all(|run| run.rounds[0].fallback.is_none()), "{runs:#?}");
    let calls = cluster.workers.calls();
    assert_eq!(calls.len(), direct + more_direct + 2 * (planned + more_planned));
    assert!(calls.iter().all(|call| call.outcome == Outcome::Answered), "{calls:#?}");
    assert_eq!(cluster.workers.account_use().refused, 0, "the vendor said 429");
    // A burst of one second's worth is permitted.
    let (most, bound) = (most_within_window(&calls), REQUESTS_PER_MINUTE * (WINDOW_S + 1) / 60 + LATE);
    assert!(most as u64 <= bound, "{most} calls within {WINDOW_S} s, {bound} are allowed");
    assert_eq!(of_planner("granted").await, (planned + more_planned) as u64);
    cluster.stop().await.unwrap();
}
