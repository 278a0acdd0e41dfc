//! A stopping process finishes its work or hands it back within the drain time. A second signal ends it at once.

use std::time::{Duration, Instant};

use podium_api::v1;
use podium_harness::{Service, Wire};
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Call, Milliseconds, Options, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Client, Ended, connect};
use crate::http::get;
use crate::load::{Load, Tools};
use crate::workflow::{BRANCHES, JOIN, STEPS, diamond, wrong};

/// The time to close connections, in addition to the drain time.
const MARGIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The exit code after a second signal.
const INTERRUPTED: i32 = 130;
/// So long that no call ends by itself.
const FOR_EVER_MS: u64 = 300_000;

fn diamonds(gateways: usize, executors: usize, drain_ms: u64) -> (Shape, tempfile::NamedTempFile) {
    let (conductor, workflow) = diamond();
    let shape = Shape {
        settings: vec![("drain_ms", drain_ms.to_string()), ("log", "warn".to_owned())],
        workers: Options { generalist_accuracy: 1.0, ..Options::loopback(7) },
        ..Shape::new(gateways, gateways, executors, conductor)
    };
    (shape, workflow)
}

fn take(cluster: &Cluster, models: &[&str], first_token_ms: Milliseconds) {
    for model in models {
        let behaviour = Behaviour { first_token_ms, ..Behaviour::default() };
        cluster.workers.set_behaviour(model, behaviour).unwrap();
    }
}

fn gateways(cluster: &Cluster) -> Vec<std::net::SocketAddr> {
    cluster.gateways.iter().map(|gateway| gateway.address(1)).collect()
}

fn all_are_right(ended: &[Ended]) {
    for run in ended {
        let answer = run.answer.as_ref().unwrap_or_else(|| panic!("run {} has no answer", run.number));
        assert_eq!(wrong(run.number, answer), None);
        assert_eq!(run.faults, Vec::<String>::new());
    }
}

fn count(calls: &[Call], outcome: Outcome) -> usize {
    calls.iter().filter(|call| call.outcome == outcome).count()
}

/// Stops a process. It must exit with 0 within `drain` and a margin.
async fn stops_within(service: &mut Service, drain: Duration) {
    let signalled_at = Instant::now();
    let code = service.terminate().await.unwrap();
    let took = signalled_at.elapsed();
    assert_eq!(code, 0, "{}", service.log_end());
    assert!(took < drain + MARGIN, "it took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_under_load_repeats_no_call() {
    const DRAIN: Duration = Duration::from_secs(10);
    const CLIENTS: usize = 40;
    let (shape, _workflow) = diamonds(2, 2, 10_000);
    let mut cluster = crate::start(&shape).await;
    take(&cluster, &[BRANCHES, JOIN], Milliseconds { min: 300, max: 900 });
    let load = Load::start(&gateways(&cluster), CLIENTS, Tools::None);
    let lives = load.lives().clone();
    for at in 0..cluster.services().count() {
        // The process is under load before and after.
        let ends = lives.so_far().len();
        let more = async || (lives.so_far().len() >= ends + CLIENTS / 2).then_some(());
        crate::until("runs end", WAIT_MAX, more).await;
        let service = cluster.services().nth(at).unwrap();
        stops_within(service, DRAIN).await;
        service.start_again().await.unwrap();
    }
    let ended = load.stop().await;
    all_are_right(&ended);
    let calls = cluster.workers.calls();
    assert_eq!((calls.len(), count(&calls, Outcome::Answered)), (ended.len() * STEPS, calls.len()));
    let lost: Vec<_> = ended.iter().flat_map(|run| &run.lost_attempts).collect();
    assert!(lost.is_empty(), "{lost:?}");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_hands_back_what_it_cannot_finish_in_time() {
    const DRAIN_MS: u64 = 500;
    const RUNS: u64 = 12;
    let (shape, _workflow) = diamonds(1, 2, DRAIN_MS);
    let mut cluster = crate::start(&shape).await;
    take(&cluster, &[BRANCHES], Milliseconds::fixed(4_000));
    let mut clients = JoinSet::new();
    for number in 1..=RUNS {
        clients.spawn(Client::new(gateways(&cluster), number).ask());
    }
    let branches = usize::try_from(2 * RUNS).unwrap();
    cluster.workers.wait_for(|calls| calls.len() == branches).await;
    stops_within(&mut cluster.executors[0], Duration::from_millis(DRAIN_MS)).await;
    let handed_back = count(&cluster.workers.calls(), Outcome::Abandoned);
    assert!(handed_back > 0, "the other executor had everything");
    all_are_right(&clients.join_all().await);
    let calls = cluster.workers.calls();
    let needed = usize::try_from(RUNS).unwrap() * STEPS;
    assert_eq!((count(&calls, Outcome::Answered), calls.len()), (needed, needed + handed_back), "{calls:#?}");
    cluster.executors[0].start_again().await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planner_finishes_its_plans_before_it_stops() {
    const RUNS: usize = 4;
    let shape = Shape {
        settings: vec![("drain_ms", "10000".to_owned())],
        ..Shape::new(1, 1, 1, "remote:{workers}#sim-conductor")
    };
    let mut cluster = crate::start(&shape).await;
    take(&cluster, &["sim-conductor"], Milliseconds::fixed(2_000));
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(create(&mut gateway, &format!("{number} plus 40, and multiply the result by 3")).await);
    }
    let plans = |calls: &[Call]| calls.iter().filter(|call| call.model == "sim-conductor").count();
    cluster.workers.wait_for(|calls| plans(calls) == RUNS).await;
    stops_within(&mut cluster.planners[0], Duration::from_secs(10)).await;
    for run_id in runs {
        let ended = async || {
            let read = v1::GetRunRequest { run_id: run_id.clone() };
            let run = gateway.get_run(read).await.unwrap().into_inner().run.unwrap();
            (run.state() != v1::RunState::Active).then_some(run)
        };
        let run = crate::until("a run ends without a planner", WAIT_MAX, ended).await;
        assert_eq!((run.state(), &run.rounds[0].fallback), (v1::RunState::Succeeded, &None), "{run:#?}");
    }
    assert_eq!(plans(&cluster.workers.calls()), RUNS, "no plan was asked for twice");
    cluster.planners[0].start_again().await.unwrap();
    cluster.stop().await.unwrap();
}

async fn create(
    gateway: &mut v1::podium_service_client::PodiumServiceClient<tonic::transport::Channel>,
    text: &str,
) -> String {
    let request = v1::CreateRunRequest {
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: text.to_owned(),
            ..Default::default()
        }],
        policy: Some(v1::Policy { rounds_max: Some(1), ..v1::Policy::default() }),
        ..v1::CreateRunRequest::default()
    };
    gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id
}

/// A streamed HTTP request whose answer has begun. A draining gateway waits for it.
async fn a_stream_under_way(gateway: &Service) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address(0)).await.unwrap();
    let body = r#"{"model":"podium-ultra","stream":true,"messages":[{"role":"user","content":"1"}]}"#;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    stream
}

/// The first signal does not end the process, the second one ends it at once.
async fn ends_at_the_second_signal(service: &mut Service, is_draining: impl AsyncFnMut() -> Option<()>) {
    service.ask_to_end().unwrap();
    crate::until("it drains", WAIT_MAX, is_draining).await;
    assert!(service.runs(), "it has nothing to wait for");
    let signalled_at = Instant::now();
    service.ask_to_end().unwrap();
    assert_eq!(service.ended().await.unwrap(), INTERRUPTED);
    assert!(signalled_at.elapsed() < MARGIN, "{:?}", signalled_at.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_every_process_at_once() {
    let drain = ("drain_ms", FOR_EVER_MS.to_string());
    let shape = Shape { settings: vec![drain], ..Shape::new(1, 1, 1, "remote:{workers}#sim-conductor") };
    let mut cluster = crate::start(&shape).await;
    let http = cluster.gateways[0].address(0);
    // The step of one run never ends, and neither does the planning of another run.
    take(&cluster, &["sim-arithmetic", "sim-generalist"], Milliseconds::fixed(FOR_EVER_MS));
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    create(&mut gateway, "1 plus 2").await;
    cluster.workers.wait_for(|calls| calls.iter().any(|call| call.model != "sim-conductor")).await;
    take(&cluster, &["sim-conductor"], Milliseconds::fixed(FOR_EVER_MS));
    create(&mut gateway, "3 plus 4").await;
    cluster
        .workers
        .wait_for(|calls| calls.iter().filter(|call| call.model == "sim-conductor").count() == 2)
        .await;
    drop(gateway);
    for service in cluster.planners.iter_mut().chain(&mut cluster.executors) {
        let health = service.address(0);
        let stopping = async || {
            let (status, body) = get(health, "/readyz").await?;
            ((status, body.as_str()) == (503, "stopping\n")).then_some(())
        };
        ends_at_the_second_signal(service, stopping).await;
    }
    let stream = a_stream_under_way(&cluster.gateways[0]).await;
    // It accepts no new connections.
    let refuses = async || TcpStream::connect(http).await.is_err().then_some(());
    ends_at_the_second_signal(&mut cluster.gateways[0], refuses).await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_still_starts_stops_at_once() {
    let mut cluster = crate::start(&Shape::new(1, 1, 1, "direct:sim-arithmetic")).await;
    let silent = Wire::start(cluster.postgres.address()).await.unwrap();
    silent.hold();
    let (here, there) = (cluster.postgres.address().to_string(), silent.address().to_string());
    let unreachable = format!("postgres={}", cluster.database.replace(&here, &there));
    for service in cluster.planners.iter_mut().chain(&mut cluster.executors) {
        service.add_arguments(["--set".to_owned(), unreachable.clone()]);
        service.start_unready().await.unwrap();
        let health = service.address(0);
        let lives = async || get(health, "/healthz").await.filter(|(status, _)| *status == 200);
        crate::until("it lives, and is not ready", WAIT_MAX, lives).await;
        assert_eq!(get(health, "/readyz").await.unwrap().0, 503);
        let signalled_at = Instant::now();
        assert_eq!(service.terminate().await.unwrap(), 0);
        assert!(signalled_at.elapsed() < MARGIN, "it took {:?}", signalled_at.elapsed());
    }
}
