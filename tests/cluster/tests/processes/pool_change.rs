//! Running processes follow their pool file: runs go to a new worker without a restart.

use std::time::Duration;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_local_cluster::Shape;
use tonic::transport::Channel;

use crate::client::connect;

/// Longest time for all processes to notice. They look every five seconds.
const NOTICE_MAX: Duration = Duration::from_mins(1);

type Gateway = PodiumServiceClient<Channel>;

fn for_the_new_worker() -> v1::CreateRunRequest {
    let text = "2 + 3".to_owned();
    v1::CreateRunRequest {
        messages: vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }],
        policy: Some(v1::Policy { workers_allowed: vec!["extra".to_owned()], ..Default::default() }),
        ..v1::CreateRunRequest::default()
    }
}

/// The run at its end.
async fn ended(gateway: &mut Gateway, run_id: String) -> v1::Run {
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
    let end = async { while updates.message().await.unwrap().is_some() {} };
    tokio::time::timeout(NOTICE_MAX, end).await.unwrap();
    gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_of_a_cluster_follow_the_pool_file() {
    // The planner plans, too, so that each kind of process must have followed.
    let settings = vec![("plan_at_once", "false".to_owned())];
    let mut cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct") }).await;
    let before: Vec<_> = cluster.services().map(|service| service.pid()).collect();
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let unknown = gateway.create_run(for_the_new_worker()).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::InvalidArgument, "{unknown}");

    cluster.add_worker("extra").unwrap();
    let create = async || gateway.create_run(for_the_new_worker()).await.ok();
    let run =
        crate::until("the gateway knows the worker", NOTICE_MAX, create).await.into_inner().run.unwrap();
    let run = ended(&mut gateway, run.run_id).await;
    assert_eq!((run.state(), run.pool.as_str()), (v1::RunState::Succeeded, "demo-extra"), "{run:?}");
    assert_eq!(run.rounds[0].steps[0].planned.as_ref().unwrap().worker, "extra", "{run:?}");
    assert_eq!(
        cluster.services().map(|service| service.pid()).collect::<Vec<_>>(),
        before,
        "nothing restarted"
    );
    cluster.stop().await.unwrap();
}

/// Runs of `podium-ultra` under load while the prices change: none fails, each has the price of one of both pools, and the planner's
/// model stays loaded.
#[cfg(feature = "llama")]
#[tokio::test(flavor = "multi_thread")]
async fn prices_change_under_load_while_a_local_model_plans() {
    use std::sync::atomic::{AtomicBool, Ordering};

    const NANO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano");
    const CLIENTS: usize = 4;
    // The demonstration's prices are below 100 nano-dollars a token, except the generalist's.
    const USD: f64 = 1_000_000.0;

    let mut cluster = crate::start(&Shape::new(1, 1, 1, format!("llama:{NANO}"))).await;
    let before: Vec<_> = cluster.services().map(|service| service.pid()).collect();
    let address = cluster.gateways[0].address(1);
    let is_over = AtomicBool::new(false);
    let client = async || {
        let mut gateway = connect(address).await.unwrap();
        let mut pools = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let text = "What is 12 times 11, in words?".to_owned();
            let message = v1::Message { role: v1::Role::User.into(), text, ..Default::default() };
            let request = v1::CreateRunRequest { messages: vec![message], ..Default::default() };
            let run = gateway.create_run(request).await.unwrap().into_inner().run.unwrap();
            let run = ended(&mut gateway, run.run_id).await;
            assert_eq!(run.state(), v1::RunState::Succeeded, "{run:?}");
            pools.push((run.pool.clone(), run.cost_nano_usd));
            // The last runs are those of the new pool.
            if run.pool == "demo-expensive" && run.cost_nano_usd > 1_000_000_000 {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        pools
    };
    let change = async {
        crate::until("the load has begun", NOTICE_MAX, async || {
            (cluster.workers.calls().len() > 2 * CLIENTS).then_some(())
        })
        .await;
        cluster.set_price("expensive", USD).unwrap();
    };
    let clients = futures::future::join_all((0..CLIENTS).map(|_| client()));
    let all = tokio::time::timeout(4 * NOTICE_MAX, async { tokio::join!(clients, change).0 }).await.unwrap();
    let runs: Vec<_> = all.into_iter().flatten().collect();
    assert!(runs.iter().any(|(pool, cost)| pool == "demo-1" && *cost < 1_000_000), "{runs:?}");
    assert_eq!(
        cluster.services().map(|service| service.pid()).collect::<Vec<_>>(),
        before,
        "nothing restarted"
    );
    cluster.stop().await.unwrap();
}
