//! A cluster while NATS is unreachable: gateways accept runs at once, deadlines hold, and processes stop within the drain time.

use std::time::{Duration, Instant, SystemTime};

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds};
use tonic::transport::Channel;

use crate::client::connect;

/// So long that no call ends by itself.
const FOR_EVER_MS: u64 = 300_000;
/// Runs that are accepted without NATS.
const RUNS: usize = 20;
/// Their deadline, and that of the run whose call is under way.
const DEADLINE_MS: u64 = 8_000;
/// Longest time from a deadline to the end of its run.
const LATE_MAX: Duration = Duration::from_secs(2);
/// An acceptance that waits for NATS takes at least its timeout of some seconds; one that does not takes milliseconds.
const ACCEPT_MAX: Duration = Duration::from_secs(1);
const DRAIN_MS: u64 = 2_000;
/// The time to close connections, in addition to the drain time.
const MARGIN: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_mins(1);

async fn ask(gateway: &mut PodiumServiceClient<Channel>) -> String {
    let text = "Why is the sky blue?".to_owned();
    let messages = vec![v1::Message { role: v1::Role::User.into(), text, ..v1::Message::default() }];
    let policy = Some(v1::Policy { deadline_ms: Some(DEADLINE_MS), ..v1::Policy::default() });
    let request = v1::CreateRunRequest { messages, policy, ..v1::CreateRunRequest::default() };
    gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id
}

async fn read(gateway: &PodiumServiceClient<Channel>, run_id: &str) -> v1::Run {
    let request = v1::GetRunRequest { run_id: run_id.to_owned() };
    gateway.clone().get_run(request).await.unwrap().into_inner().run.unwrap()
}

/// Waits for the end of a run, and checks that it ended at its deadline.
async fn ends_at_its_deadline(gateway: &PodiumServiceClient<Channel>, run_id: &str) {
    let ended = async || Some(read(gateway, run_id).await).filter(|run| run.end_time.is_some());
    let run = crate::until("the run ends", PATIENCE, ended).await;
    let failure = run.failure.as_ref().map(|failure| failure.code.as_str());
    assert_eq!(failure, Some("deadline_exceeded"), "{run:#?}");
    let [deadline, end] =
        [run.deadline_time, run.end_time].map(|time| SystemTime::try_from(time.unwrap()).unwrap());
    let late = end.duration_since(deadline).unwrap_or_default();
    assert!(late <= LATE_MAX, "the run ended {late:?} after its deadline");
}

async fn stops_in_time(service: &mut Service) {
    let signalled_at = Instant::now();
    let code = service.terminate().await.unwrap();
    let took = signalled_at.elapsed();
    assert_eq!(code, 0, "{}", service.log_end());
    assert!(took < Duration::from_millis(DRAIN_MS) + MARGIN, "it took {took:?}");
}

async fn start() -> Cluster {
    let mut shape = Shape::new(1, 1, 1, "direct:sim-generalist");
    shape.settings = vec![("drain_ms", DRAIN_MS.to_string()), ("log", "warn".to_owned())];
    let cluster = crate::start(&shape).await;
    let behaviour = Behaviour { first_token_ms: Milliseconds::fixed(FOR_EVER_MS), ..Behaviour::default() };
    cluster.workers.set_behaviour("sim-generalist", behaviour).unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn without_nats_runs_are_accepted_end_in_time_and_processes_stop() {
    let mut cluster = start().await;
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let called = ask(&mut gateway).await;
    cluster.workers.wait_for(|calls| calls.len() == 1).await;
    cluster.nats.kill().await;

    let (mut accepted, mut took) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let asked_at = Instant::now();
        accepted.push(ask(&mut gateway).await);
        took.push(asked_at.elapsed());
    }
    took.sort_unstable();
    assert!(took[RUNS - 1] < ACCEPT_MAX, "{took:?}");
    for run_id in std::iter::once(&called).chain(&accepted) {
        ends_at_its_deadline(&gateway, run_id).await;
    }

    // An executor that stops now has a call under way, which it must release.
    cluster.nats.start_again().await.unwrap();
    let released = ask(&mut gateway).await;
    cluster.workers.wait_for(|calls| calls.len() == 2).await;
    cluster.nats.kill().await;
    assert!(read(&gateway, &released).await.end_time.is_none());
    drop(gateway);
    for service in cluster.services() {
        stops_in_time(service).await;
    }
}
