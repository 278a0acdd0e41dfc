//! Readiness follows what a process stands on, and says what is missing; liveness does not.

use std::net::SocketAddr;
use std::time::Duration;

use podium_harness::Service;
use podium_local_cluster::{Cluster, Shape};

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
    let mut cluster = crate::start(&Shape::new(1, 1, 1, "direct")).await;
    let doors = doors(&cluster);
    assert!(doors.iter().all(|(door, _)| script_says_ready(*door)));

    cluster.nats.kill().await;
    for (door, _) in &doors {
        misses(*door, "queue").await;
        assert!(!script_says_ready(*door));
    }
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
    }
    cluster.postgres.start_again().await.unwrap();
    for (door, _) in &doors {
        is_ready(*door).await;
    }

    // Only those who call workers need Redis.
    cluster.redis.kill().await;
    for (door, calls) in &doors {
        if *calls {
            misses(*door, "limiter").await;
        } else {
            is_ready(*door).await;
        }
    }
    cluster.redis.start_again().await.unwrap();
    for (door, _) in &doors {
        is_ready(*door).await;
    }
    cluster.stop().await.unwrap();
}
