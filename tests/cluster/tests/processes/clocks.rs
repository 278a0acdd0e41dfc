//! Processes with a wrong machine clock: they work correctly, or not at all.

use std::time::Duration;

use podium_api::v1;
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::Options;

use crate::client::{Client, connect};
use crate::http::get;
use crate::load::{Load, Tools};
use crate::workflow::{diamond, wrong};

const DAYS_40: i64 = 40 * 24 * 3600;
/// Longest time for a process to start.
const NOTICE_MAX: Duration = Duration::from_mins(1);
/// How long clients ask while clocks are wrong.
const WINDOW: Duration = Duration::from_secs(8);
/// An undisturbed run takes a second here. One that waited for a wrong clock would take minutes.
const RUN_MAX: Duration = Duration::from_secs(20);
const CLIENTS: usize = 12;

fn shape(conductor: String, executors: usize, others: usize) -> Shape {
    let settings = vec![
        // Otherwise planners would have nothing to do.
        ("plan_at_once", "false".to_owned()),
        ("postgres_connections", "6".to_owned()),
    ];
    // Otherwise some answers are wrong.
    let workers = Options { generalist_accuracy: 1.0, ..Options::loopback(7) };
    Shape { settings, workers, ..Shape::new(others, others, executors, conductor) }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_40_days_ahead_deletes_nothing_and_works_once_it_is_right() {
    let (conductor, _workflow) = diamond();
    let mut cluster = crate::start(&shape(conductor, 1, 1)).await;
    let gateways = vec![cluster.gateways[0].address(1)];
    let ended = Client::new(gateways.clone(), 7).ask().await;
    let run_id = ended.run_id.unwrap();

    let executor = &mut cluster.executors[0];
    executor.set_clock_off(DAYS_40).unwrap();
    executor.start_unready().await.unwrap();
    let address = executor.address(0);
    let says_why = async || {
        let (status, body) = get(address, "/readyz?verbose").await?;
        // 3,456,000,000 ms, or a little less.
        (status == 503 && body.contains("\nclock: down, the wall clock is 345")).then_some(())
    };
    crate::until("it is not ready for its clock", NOTICE_MAX, says_why).await;
    crate::pause(Duration::from_secs(3)).await;
    let mut gateway = connect(gateways[0]).await.unwrap();
    let run = gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap();
    assert_eq!(run.state(), v1::RunState::Succeeded);
    let (_, metrics) = get(address, "/metrics").await.unwrap();
    let skew = metrics.lines().find_map(|line| line.strip_prefix("podium_clock_skew_milliseconds "));
    let skew_ms: i64 = skew.and_then(|skew| skew.parse().ok()).unwrap();
    assert!((skew_ms - DAYS_40 * 1_000).abs() < 5_000, "{metrics}");

    let executor = &mut cluster.executors[0];
    executor.set_clock_off(0).unwrap();
    executor.start_again().await.unwrap();
    let ended = Client::new(gateways, 8).ask().await;
    assert_eq!(wrong(8, &ended.answer.unwrap()), None);
    cluster.stop().await.unwrap();
}

/// Starts one process of each kind with a wrong clock.
async fn set_off(cluster: &mut Cluster, [gateway, planner, executor]: [i64; 3]) {
    let kinds = [
        (&mut cluster.gateways[1], gateway),
        (&mut cluster.planners[1], planner),
        (&mut cluster.executors[1], executor),
    ];
    for (service, seconds) in kinds {
        service.set_clock_off(seconds).unwrap();
        service.start_unready().await.unwrap();
        let address = service.address(0);
        // A process whose clock is far off never becomes ready.
        let path = if seconds.abs() > 30 { "/healthz" } else { "/readyz" };
        let answers = async || get(address, path).await.filter(|(status, _)| *status == 200);
        crate::until("it answers", NOTICE_MAX, answers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_fail_no_run_and_delay_none() {
    let (conductor, _workflow) = diamond();
    let mut cluster = crate::start(&shape(conductor, 2, 2)).await;
    let gateways: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(1)).collect();
    let mut number_of_runs = 0;
    for off in [[600, 600, -600], [-600, -600, 600], [5, -5, 5], [-5, 5, -5]] {
        set_off(&mut cluster, off).await;
        let load = Load::start(&gateways, CLIENTS, Tools::None);
        crate::pause(WINDOW).await;
        for ended in load.stop().await {
            let answer = ended.answer.expect("it has an answer");
            assert_eq!(wrong(ended.number, &answer), None, "{off:?}");
            assert_eq!(ended.faults, Vec::<String>::new(), "{off:?}");
            let took = ended.answered_at - ended.asked_at;
            assert!(took < RUN_MAX, "{off:?}: a run took {took:?}");
            number_of_runs += 1;
        }
    }
    assert!(number_of_runs > 4 * CLIENTS, "{number_of_runs}");
    cluster.stop().await.unwrap();
}
