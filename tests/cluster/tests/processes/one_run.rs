//! A request creates one run, even if several gateways get it.

use podium_api::v1;
use podium_local_cluster::Shape;
use tokio::task::JoinSet;

use crate::client::connect;

const REQUESTS: u64 = 120;
/// Calls of each of the two gateways.
const CALLS_EACH: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_two_gateways_at_once_creates_one_run() {
    let cluster = crate::start(&Shape::new(2, 1, 1, "direct:sim-arithmetic")).await;
    let mut gateways = Vec::new();
    for gateway in &cluster.gateways {
        gateways.push(connect(gateway.address(1)).await.unwrap());
    }
    let mut runs = Vec::new();
    for number in 0..REQUESTS {
        let mut calls = JoinSet::new();
        for mut gateway in gateways.iter().cloned().cycle().take(gateways.len() * CALLS_EACH) {
            let request = v1::CreateRunRequest {
                request_id: format!("request-{number}"),
                messages: vec![v1::Message {
                    role: v1::Role::User.into(),
                    text: format!("{number} + 1"),
                    ..Default::default()
                }],
                ..v1::CreateRunRequest::default()
            };
            calls.spawn(async move { gateway.create_run(request).await.unwrap().into_inner() });
        }
        let mut made = calls.join_all().await;
        let new = made.iter().filter(|answer| !answer.existing).count();
        assert_eq!(new, 1, "of request {number}: {made:#?}");
        let mut ids: Vec<_> = made.drain(..).map(|answer| answer.run.unwrap().run_id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1, "of request {number}: {ids:?}");
        runs.extend(ids);
    }
    for run_id in runs {
        let request = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
        let mut updates = gateways[0].watch_run(request).await.unwrap().into_inner();
        while updates.message().await.unwrap().is_some() {}
        let run = gateways[1].get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap();
        assert_eq!(run.state(), v1::RunState::Succeeded, "{run:#?}");
    }
    let list = v1::ListRunsRequest { page_size: 200, ..v1::ListRunsRequest::default() };
    let listed = gateways[0].list_runs(list).await.unwrap().into_inner().runs.len();
    let calls = cluster.workers.calls().len();
    assert_eq!((listed as u64, calls as u64), (REQUESTS, REQUESTS));
    cluster.stop().await.unwrap();
}
