//! Readiness follows the servers of a process and names the missing one; liveness does not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::http::get;

/// Longest time for a process to notice.
const NOTICE_MAX: Duration = Duration::from_mins(1);

/// The addresses of all processes' health pages, and whether each process calls workers.
fn addresses(cluster: &Cluster) -> Vec<(SocketAddr, bool)> {
    let addresses = |services: &[Service], calls| -> Vec<_> {
        services.iter().map(|service| (service.address(0), calls)).collect()
    };
    [
        addresses(&cluster.gateways, false),
        addresses(&cluster.planners, false),
        addresses(&cluster.executors, true),
    ]
    .concat()
}

async fn is_ready(address: SocketAddr) {
    let ready = async || get(address, "/readyz").await.filter(|(status, _)| *status == 200);
    crate::until("it is ready", NOTICE_MAX, ready).await;
}

/// Waits until a process is not ready because of `part`, but alive.
async fn misses(address: SocketAddr, part: &str) {
    let not_ready = async || {
        get(address, "/readyz").await.filter(|(status, body)| *status != 200 && body != "starting\n")
    };
    let (status, body) = crate::until(part, NOTICE_MAX, not_ready).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.starts_with(&format!("the {part} does not answer")), "{body}");
    assert_eq!(get(address, "/healthz").await.map(|(status, _)| status), Some(200), "without the {part}");
}

/// Whether the health check of containers succeeds.
fn script_says_ready(address: SocketAddr) -> bool {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ready");
    let mut command = std::process::Command::new(script);
    command.arg(address.port().to_string()).status().unwrap().success()
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_names_the_missing_server_and_liveness_ignores_it() {
    // The share is fixed, because the number of processes is known only after some seconds of Redis.
    let settings = vec![("redis_away", "local:1".to_owned())];
    let mut cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct") }).await;
    let addresses = addresses(&cluster);
    assert!(addresses.iter().all(|(address, _)| script_says_ready(*address)));

    cluster.nats.kill().await;
    let gateway = addresses[0].0;
    for (address, _) in &addresses[1..] {
        misses(*address, "queue").await;
        assert!(!script_says_ready(*address));
    }
    // A gateway accepts runs, which wait in Postgres.
    let names_it = async || {
        let (status, body) = get(gateway, "/readyz?verbose").await?;
        (status == 200 && body.contains("queue: down")).then_some(())
    };
    crate::until("it is ready and says what is down", NOTICE_MAX, names_it).await;
    assert!(script_says_ready(gateway));
    // A process that starts meanwhile waits for the server.
    cluster.executors[0].start_unready().await.unwrap();
    let executor = cluster.executors[0].address(0);
    let alive = async || get(executor, "/healthz").await.filter(|(status, _)| *status == 200);
    crate::until("it is alive", NOTICE_MAX, alive).await;
    misses(executor, "queue").await;
    cluster.nats.start_again().await.unwrap();
    for (address, _) in &addresses {
        is_ready(*address).await;
    }

    cluster.postgres.crash().await.unwrap();
    for (address, _) in &addresses {
        misses(*address, "store").await;
        let asked = Instant::now();
        get(*address, "/readyz").await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "a probe waits for a second");
    }
    grpc_health_becomes(ServingStatus::NotServing, cluster.gateways[0].address(1)).await;
    cluster.postgres.start_again().await.unwrap();
    for (address, _) in &addresses {
        is_ready(*address).await;
    }

    // With a share of the limits, executors work without Redis and report it.
    cluster.redis.kill().await;
    for (address, calls) in &addresses {
        let says = async || {
            let (status, body) = get(*address, "/readyz?verbose").await?;
            (status == 200 && body.contains("limiter: down") == *calls).then_some(())
        };
        crate::until("it is ready without Redis", NOTICE_MAX, says).await;
    }
    cluster.redis.start_again().await.unwrap();
    for (address, _) in &addresses {
        is_ready(*address).await;
    }
    grpc_health_becomes(ServingStatus::Serving, cluster.gateways[0].address(1)).await;
    // Without a share they do not work.
    let executor = &mut cluster.executors[0];
    executor.add_arguments(["--set".to_owned(), "redis_away=hold".to_owned()]);
    executor.start_again().await.unwrap();
    cluster.redis.kill().await;
    misses(cluster.executors[0].address(0), "limiter").await;
    cluster.redis.start_again().await.unwrap();
    is_ready(cluster.executors[0].address(0)).await;
    cluster.stop().await.unwrap();
}

/// Waits until gRPC's health service has the same status as `/readyz`.
async fn grpc_health_becomes(wanted: ServingStatus, address: SocketAddr) {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let health = HealthClient::new(channel);
    let status = async || {
        let mut health = health.clone();
        let answer = health.check(HealthCheckRequest { service: String::new() }).await.ok()?;
        (answer.into_inner().status() == wanted).then_some(())
    };
    crate::until("gRPC's health service agrees", NOTICE_MAX, status).await;
}
