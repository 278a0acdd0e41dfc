//! A process whose loop panics.

use std::path::Path;
use std::time::Duration;

use podium_local_cluster::Shape;
use podium_vendor_sim::Options;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::workflow::{diamond, wrong};

const RUNS: u64 = 12;
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_loop_panics_ends_and_loses_no_run() {
    let (conductor, _workflow) = diamond();
    let workers = Options { generalist_accuracy: 1.0, ..Options::loopback(7) };
    let mut cluster = crate::start(&Shape { workers, ..Shape::new(1, 1, 2, conductor) }).await;
    let binary = Path::new(env!("CARGO_BIN_EXE_podium-local-cluster"));
    cluster.replace_by_panicking(1, binary).await.unwrap();
    let mut asked = JoinSet::new();
    for number in 1..=RUNS {
        asked.spawn(Client::new(vec![cluster.gateways[0].address(1)], number).ask());
    }
    let panicked = &mut cluster.executors[1];
    let code = tokio::time::timeout(PATIENCE, panicked.ended()).await.unwrap().unwrap();
    let log = panicked.log();
    assert_eq!(code, 1, "{log}");
    let line = log
        .lines()
        .find(|line| line.contains("ERROR") && line.contains("a part of this process failed"))
        .unwrap();
    assert!(line.contains("step lane loop panicked: injected by the test"), "{line}");
    // The other executor takes over its steps.
    for ended in asked.join_all().await {
        assert_eq!(wrong(ended.number, &ended.answer.unwrap()), None);
    }
    // No other process ends.
    cluster.executors.remove(1);
    assert!(cluster.services().all(podium_harness::Service::runs));
    cluster.stop().await.unwrap();
}
