//! Readiness follows what a process stands on, and says what is missing; liveness does not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::http::get;

/// Longer than any process needs to notice.
const NOTICE_MAX: Duration = Duration::from_mins(1);

/// The health doors of all processes, and whether each calls workers.
fn doors(cluster: &Cluster) -> Vec<(SocketAddr, bool)> {
    let doors = |services: &[Service], calls| -> Vec<_> {
        services.iter().map(|service| (service.address(0), calls)).collect()
    };
    [doors(&cluster.gateways, false), doors(&cluster.planners, false), doors(&cluster.executors, true)]
        .concat()
}

async fn is_ready(door: SocketAddr) {
    let ready = async || get(door, "/readyz").await.filter(|(status, _)| *status == 200);
    crate::until("it is ready", NOTICE_MAX, ready).await;
}

/// Not ready, for the lack of `part`; alive all the same.
async fn misses(door: SocketAddr, part: &str) {
    let not_ready =
        async || get(door, "/readyz").await.filter(|(status, body)| *status != 200 && body != "starting\n");
    let (status, body) = crate::until(part, NOTICE_MAX, not_ready).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.starts_with(&format!("the {part} does not answer")), "{body}");
    assert_eq!(get(door, "/healthz").await.map(|(status, _)| status), Some(200), "without the {part}");
}

/// What the health checks of containers ask with.
fn script_says_ready(door: SocketAddr) -> bool {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ready");
    let mut command = std::process::Command::new(script);
    command.arg(door.port().to_string()).status().unwrap().success()
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_says_what_is_missing_and_liveness_does_not_care() {
    // A fixed share: the number of processes is known only after some seconds of Redis.
    let settings = vec![("redis_away", "local:1".to_owned())];
    let mut cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct") }).await;
    let doors = doors(&cluster);
    assert!(doors.iter().all(|(door, _)| script_says_ready(*door)));

    cluster.nats.kill().await;
    let gateway = doors[0].0;
    for (door, _) in &doors[1..] {
        misses(*door, "queue").await;
        assert!(!script_says_ready(*door));
    }
    // A gateway accepts runs, which wait in Postgres.
    let names_it = async || {
        let (status, body) = get(gateway, "/readyz?verbose").await?;
        (status == 200 && body.contains("queue: down")).then_some(())
    };
    crate::until("it is ready and says what is down", NOTICE_MAX, names_it).await;
    assert!(script_says_ready(gateway));
    // One that is started meanwhile waits for it.
    cluster.executors[0].start_unready().await.unwrap();
    let executor = cluster.executors[0].address(0);
    let alive = async || get(executor, "/healthz").await.filter(|(status, _)| *status == 200);
    crate::until("it turns", NOTICE_MAX, alive).await;
    misses(executor, "queue").await;
    cluster.nats.start_again().await.unwrap();
    for (door, _) in &doors {
        is_ready(*door).await;
    }

    cluster.postgres.crash().await.unwrap();
    for (door, _) in &doors {
        misses(*door, "store").await;
        let asked = Instant::now();
        get(*door, "/readyz").await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "a probe waits for a second");
    }
    assert_eq!(grpc_health(cluster.gateways[0].address(1)).await, ServingStatus::NotServing);
    cluster.postgres.start_again().await.unwrap();
    for (door, _) in &doors {
        is_ready(*door).await;
    }

    // With a share of the limits, executors work without Redis, and say so.
    cluster.redis.kill().await;
    for (door, calls) in &doors {
        let says = async || {
            let (status, body) = get(*door, "/readyz?verbose").await?;
            (status == 200 && body.contains("limiter: down") == *calls).then_some(())
        };
        crate::until("it is ready without Redis", NOTICE_MAX, says).await;
    }
    cluster.redis.start_again().await.unwrap();
    for (door, _) in &doors {
        is_ready(*door).await;
    }
    assert_eq!(grpc_health(cluster.gateways[0].address(1)).await, ServingStatus::Serving);
    // Without one they do not.
    let executor = &mut cluster.executors[0];
    executor.add_arguments(["--set".to_owned(), "redis_away=hold".to_owned()]);
    executor.start_again().await.unwrap();
    cluster.redis.kill().await;
    misses(cluster.executors[0].address(0), "limiter").await;
    cluster.redis.start_again().await.unwrap();
    is_ready(cluster.executors[0].address(0)).await;
    cluster.stop().await.unwrap();
}

/// What the health service of gRPC says, as soon as it is what `/readyz` says.
async fn grpc_health(door: SocketAddr) -> ServingStatus {
    let channel = Endpoint::from_shared(format!("http://{door}")).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    crate::pause(Duration::from_secs(3)).await;
    let answer = health.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    answer.into_inner().status()
}
