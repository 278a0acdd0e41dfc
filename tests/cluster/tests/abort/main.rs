//! A planner dies in the middle of plans, like after an abort inside llama.cpp. The other processes go on, and once a planner is
//! back, the runs continue from the steps that began before their plan was complete.

use std::path::Path;
use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_local_cluster::{Cluster, Shape};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Channel;

const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");
/// Enough runs that the planner is in the middle of some when it dies.
const RUNS: u32 = 40;
/// Longest time for the whole test.
const PATIENCE: Duration = Duration::from_mins(3);

type Gateway = PodiumServiceClient<Channel>;

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_during_planning_loses_no_run() {
    let settings = vec![("lease_ms", "3000".to_owned()), ("log", "warn".to_owned())];
    let shape = Shape { settings, ..Shape::new(1, 1, 1, format!("llama:{NANO}")) };
    let binary = Path::new(env!("CARGO_BIN_EXE_podium-local-cluster"));
    let mut cluster = Cluster::start(binary, &shape).await.unwrap();
    let gateway =
        PodiumServiceClient::connect(format!("http://{}", cluster.gateways[0].address(1))).await.unwrap();

    let (heard, mut somebody_hears) = mpsc::channel(1);
    let mut clients = JoinSet::new();
    for number in 1..=RUNS {
        let asking = answered(gateway.clone(), number, heard.clone());
        clients.spawn(async { tokio::time::timeout(PATIENCE, asking).await.unwrap() });
    }
    somebody_hears.recv().await.unwrap();
    cluster.planners[0].abort().await.unwrap();
    assert!(cluster.gateways[0].runs() && cluster.executors[0].runs());
    cluster.planners[0].start_again().await.unwrap();

    let ended = clients.join_all().await;
    let (mut interrupted, mut begun_early) = (0, 0);
    for (run, began_early) in &ended {
        begun_early += usize::from(*began_early);
        // At temperature 0, the next planner writes the same plan.
        assert_eq!(run.rounds[0].superseded_steps, 0, "{run:?}");
        assert_eq!(run.state(), v1::RunState::Succeeded, "{run:?}");
        assert!(!run.answer().is_empty(), "{run:?}");
        let attempts = &run.rounds[0].planning_attempts;
        interrupted += usize::from(attempts.iter().any(|it| it.outcome() == v1::AttemptOutcome::Lost));
        assert_eq!(attempts.last().unwrap().outcome(), v1::AttemptOutcome::Accepted, "{run:?}");
    }
    assert!(interrupted > 0, "no plan was interrupted");
    assert!(begun_early > 0, "no step began before its plan was complete");
    cluster.stop().await.unwrap();
}

/// Asks and watches to the end. Signals when the plan is being written. Returns whether steps began before it was complete.
#[cfg(test)]
async fn answered(mut gateway: Gateway, number: u32, heard: mpsc::Sender<()>) -> (v1::Run, bool) {
    let text = format!("Take 3 times {number}, add 7 to it, and write the result in words.");
    let request = v1::CreateRunRequest {
        messages: vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }],
        ..v1::CreateRunRequest::default()
    };
    let run_id = gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id;
    let request = v1::WatchRunRequest { run_id: run_id.clone(), ..v1::WatchRunRequest::default() };
    let mut updates = gateway.watch_run(request).await.unwrap().into_inner();
    let mut began_early = false;
    while let Some(update) = updates.message().await.unwrap() {
        match update.update {
            // Another task may have signalled already.
            Some(Update::PlanningText(_)) => drop(heard.try_send(())),
            Some(Update::Event(event)) => began_early |= matches!(event.kind, Some(Kind::StepsPlanned(_))),
            _ => {}
        }
    }
    (gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap(), began_early)
}
