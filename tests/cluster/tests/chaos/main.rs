//! The real processes of a cluster under load, while everything that may die does: no accepted run is lost, no answer is
//! wrong, and what is called twice is counted.

mod client;
mod report;
mod troubles;

use std::path::Path;
use std::sync::Arc;

use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use client::{Client, Ended};
use report::Report;
use troubles::Troubles;

/// A diamond: two steps on the question's number, one on both results. The answer to `n` is `4n + 5`.
const WORKFLOW: &str = r#"
name: diamond
version: "1"
steps:
  - worker: sim-arithmetic
    subtask: "multiply {{ question }} by 3"
  - worker: sim-arithmetic
    subtask: "add 5 to {{ question }}"
  - worker: sim-arithmetic
    subtask: "add result 1 and result 2"
    sees: [1, 2]
"#;
const STEPS: usize = 3;
/// How long a worker takes, so that there is something to kill.
const LATENCY: Milliseconds = Milliseconds { min: 200, max: 900 };
/// Runs at the same time.
const CLIENTS: usize = 64;
/// Decides which trouble comes when.
const SEED: u64 = 7;

/// Lets time pass: real processes are broken here, and no value says how far they are.
#[expect(clippy::disallowed_methods, reason = "the moment of a trouble is a time, not a value to wait for")]
async fn pause(span: std::time::Duration) {
    tokio::time::sleep(span).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_lost_and_no_answer_is_wrong_while_everything_dies() {
    let runs = std::env::var("CHAOS_RUNS").map_or(300, |text| text.parse().expect("CHAOS_RUNS is a number"));
    let folder = tempfile::tempdir().unwrap();
    let workflow = folder.path().join("diamond.yaml");
    std::fs::write(&workflow, WORKFLOW).unwrap();
    let shape = Shape {
        gateways: 2,
        planners: 2,
        executors: 3,
        conductor: format!("fixed:{}", workflow.display()),
        settings: vec![("lease_ms", "3000".to_owned()), ("log", "warn".to_owned())],
    };
    let binary = Path::new(env!("CARGO_BIN_EXE_podium-local-cluster"));
    let cluster = Cluster::start(binary, &shape).await.unwrap();
    let behaviour = Behaviour { first_token_ms: LATENCY, ..Behaviour::default() };
    cluster.workers.set_behaviour("sim-arithmetic", behaviour).unwrap();
    let doors: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(1)).collect();

    let slots = Arc::new(Semaphore::new(CLIENTS));
    let mut clients = JoinSet::new();
    for number in 1..=runs {
        let (slots, doors) = (Arc::clone(&slots), doors.clone());
        clients.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            Client::new(doors, number).ask().await
        });
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let load = async {
        let mut ended: Vec<Ended> = Vec::new();
        while let Some(one) = clients.join_next().await {
            ended.push(one.unwrap());
        }
        // The troubles end with the load.
        let _ = stop.send(());
        ended
    };
    let (ended, made) = tokio::join!(load, Troubles::new(cluster, SEED).run(stopped));
    let (cluster, troubles) = made.unwrap();
    let report = Report::new(&ended, &cluster.workers.calls(), STEPS, &troubles);
    eprintln!("{report}");
    report.check();
    cluster.stop().await.unwrap();
}
