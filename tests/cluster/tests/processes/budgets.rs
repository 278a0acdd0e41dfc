//! A budget holds for two gateways at once: requests that do not fit are rejected, and no worker is called for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_domain::budget::{Budget, Charge, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_local_cluster::{Cluster, Shape};
use podium_ports::accounts::Accounts as _;
use podium_store_postgres::{Options, Store};
use podium_vendor_sim::{Behaviour, Milliseconds};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::client::connect;

const REQUESTS: usize = 500;
/// Concurrent runs that fit the budget.
const ROOM: u64 = 150;
/// The duration of a call: long enough that most requests arrive before the first run ends.
const CALL_MS: u64 = 3_000;

type Gateway = PodiumServiceClient<Channel>;

fn request(number: usize) -> v1::CreateRunRequest {
    let text = format!("{number} + 1");
    let messages = vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }];
    v1::CreateRunRequest { messages, ..v1::CreateRunRequest::default() }
}

fn budget(cap: u64) -> Budget {
    let tenant = TenantId::new("local").unwrap();
    let payer = Payer::Tenant(tenant.clone());
    Budget { payer, tenant, period: Period::Total, cap: Some(Cost::from_nano_usd(cap)) }
}

async fn start() -> (Cluster, Vec<Gateway>, Store) {
    let mut shape = Shape::new(2, 1, 1, "direct:sim-arithmetic");
    let first_token_ms = Milliseconds { min: CALL_MS, max: CALL_MS };
    shape.workers.behaviour = Behaviour { first_token_ms, ..Behaviour::default() };
    shape.calls_max = Some(1_000);
    shape.settings.push(("step_slots", "1000".to_owned()));
    let cluster = crate::start(&shape).await;
    let mut gateways = Vec::new();
    for gateway in &cluster.gateways {
        gateways.push(connect(gateway.address(1)).await.unwrap());
    }
    let store = Store::open(&cluster.database, Options::default()).await.unwrap();
    (cluster, gateways, store)
}

/// The ended run, or the reason of its rejection.
async fn ask(mut gateway: Gateway, number: usize) -> Result<v1::Run, Status> {
    let run_id = gateway.create_run(request(number)).await?.into_inner().run.unwrap().run_id;
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await?.into_inner();
    while updates.message().await?.is_some() {}
    Ok(gateway.get_run(v1::GetRunRequest { run_id }).await?.into_inner().run.unwrap())
}

async fn charge(store: &Store) -> Charge {
    store.charges(&[budget(0).at(podium_domain::time::Timestamp::default())]).await.unwrap()[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_never_exceed_a_budget_under_a_burst() {
    let (cluster, mut gateways, store) = start().await;
    let estimate = v1::EstimateRunRequest { run: Some(request(0)) };
    let worst = gateways[0].estimate_run(estimate).await.unwrap().into_inner().cost_max_nano_usd;
    // The budget is set before the first run, because gateways cache for a while that a tenant has no budget.
    let cap = ROOM * worst + worst / 2;
    store.set_budget(&budget(cap)).await.unwrap();
    heed(&mut gateways, cap).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let watching = tokio::task::JoinSet::from_iter([{
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        async move {
            let mut most = Cost::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(charge(&store).await.total());
                crate::pause(std::time::Duration::from_millis(10)).await;
            }
            most
        }
    }]);
    let mut asking = JoinSet::new();
    for number in 0..REQUESTS {
        asking.spawn(ask(gateways[number % gateways.len()].clone(), number));
    }
    let (ended, refused): (Vec<_>, Vec<_>) = asking.join_all().await.into_iter().partition(Result::is_ok);
    is_over.store(true, Ordering::Relaxed);
    let most = watching.join_all().await[0];

    assert!(most <= Cost::from_nano_usd(cap), "{most} of {cap}");
    let ended: Vec<_> = ended.into_iter().flatten().collect();
    assert!(ended.iter().all(|run| run.state() == v1::RunState::Succeeded), "{ended:#?}");
    assert!(ended.len() >= 100 && !refused.is_empty(), "{} of {REQUESTS} were answered", ended.len());
    for status in refused.into_iter().filter_map(Result::err) {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(status.message().starts_with("budget `tenant:local` of $"), "{status:?}");
    }
    assert_eq!(cluster.workers.calls().len(), ended.len(), "who was refused called nobody");
    let spent: u64 = ended.iter().map(|run| run.cost_nano_usd).sum();
    let charge = charge(&store).await;
    assert_eq!((charge.spent.nano_usd(), charge.reserved.nano_usd()), (spent, 0));
    eprintln!("{} of {REQUESTS} answered, at most {most} of {cap} nano-dollars committed", ended.len());
    store.close().await;
    cluster.stop().await.unwrap();
}

/// Waits until every gateway knows the budget.
async fn heed(gateways: &mut [Gateway], cap: u64) {
    for gateway in gateways {
        crate::until("a gateway knows of the budget", std::time::Duration::from_secs(30), async || {
            let budgets = gateway.list_budgets(v1::ListBudgetsRequest {}).await.ok()?.into_inner().budgets;
            budgets.iter().any(|budget| budget.cap_nano_usd == Some(cap)).then_some(())
        })
        .await;
    }
}
