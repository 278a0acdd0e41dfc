//! Each run has one line in the logs of a cluster, and no line has content or a secret.

use std::collections::BTreeSet;

use podium_api::v1;
use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::Request;

use crate::client::connect;

const RUNS: u64 = 60;
/// The beginning of each question and of each answer; no id or time is likely to have these digits.
const CONTENT: &str = "9182736450123";
/// A client's key. The gateway requires no key, and takes any.
const SECRET: &str = "sk-canary-5f1c2e";

/// The log lines of all processes.
fn lines(cluster: &Cluster) -> Vec<String> {
    let services = [&cluster.gateways, &cluster.planners, &cluster.executors].into_iter().flatten();
    services
        .flat_map(|service: &Service| service.log().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn a_request(number: u64) -> v1::CreateRunRequest {
    v1::CreateRunRequest {
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: format!("{CONTENT}{} + 1", number + 100),
            ..Default::default()
        }],
        ..v1::CreateRunRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_has_one_log_line_and_no_line_has_content_or_a_secret() {
    let settings = vec![("log_format", "json".to_owned())];
    let cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct:sim-arithmetic") }).await;
    let gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let mut asking = JoinSet::new();
    for number in 0..RUNS {
        let mut gateway = gateway.clone();
        asking.spawn(async move {
            let made = gateway.create_run(a_request(number)).await.unwrap().into_inner().run.unwrap();
            let request = v1::WatchRunRequest { run_id: made.run_id.clone(), after_sequence: 0 };
            let mut updates = gateway.watch_run(request).await.unwrap().into_inner();
            while updates.message().await.unwrap().is_some() {}
            let run = gateway.get_run(v1::GetRunRequest { run_id: made.run_id }).await.unwrap().into_inner();
            let run = run.run.unwrap();
            assert!(run.answer.as_deref().unwrap().contains(CONTENT), "{run:?}");
            run.run_id
        });
    }
    let runs: BTreeSet<_> = asking.join_all().await.into_iter().collect();
    let run_id = runs.first().unwrap().clone();
    let mut with_key = Request::new(v1::GetRunRequest { run_id });
    with_key.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().unwrap());
    gateway.clone().get_run(with_key).await.unwrap();

    let lines = lines(&cluster);
    let told: Vec<_> = lines.iter().filter(|line| line.contains(CONTENT) || line.contains(SECRET)).collect();
    assert!(told.is_empty(), "{told:#?}");
    let of = |target: &str| -> Vec<Value> {
        let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.filter(|line| line["target"] == target).map(|mut line| line["fields"].take()).collect()
    };
    let ended = of("podium::run");
    let logged: BTreeSet<_> = ended.iter().map(|line| line["run"].as_str().unwrap().to_owned()).collect();
    assert_eq!((ended.len() as u64, logged), (RUNS, runs));
    for line in &ended {
        assert_eq!(line["trace_id"].as_str().unwrap(), line["run"].as_str().unwrap().replace('-', ""));
        assert_eq!((&line["outcome"], &line["workers"]), (&"succeeded".into(), &"sim-arithmetic".into()));
    }
    let steps = of("podium::attempt").into_iter().filter(|line| line["task"] == "step.0.0").count();
    assert!(steps as u64 >= RUNS, "{steps} lines of attempts");
    cluster.stop().await.unwrap();
}
