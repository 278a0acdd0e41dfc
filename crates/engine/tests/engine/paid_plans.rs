//! Paid plans of runs without a reservation, on Postgres: a free worker could do the run, so accepting it books nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::money::{Cost, Price, Prices};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::prices::{PriceList, PriceLists};
use podium_domain::run::RunState;
use podium_domain::time::Timestamp;
use podium_engine::Submit;
use podium_harness::{Fsync, Postgres};
use podium_ports::accounts::Accounts as _;
use podium_store_postgres::{Options as StoreOptions, Store};
use podium_testkit::{Answer, TestClock, a_pool, plan_of};

use crate::house::{House, quick, request, within};

/// More than the plan slots of a process for a tier.
const RUNS: usize = 6;

/// The test pool, with a free worker.
fn a_pool_with_a_free_worker() -> podium_domain::pool::Pool {
    let mut workers = a_pool().workers().to_vec();
    let free = Price::from_usd_per_million_tokens(0.0).unwrap();
    let list = PriceList::new(Timestamp::default(), Prices::plain(free, free));
    workers.last_mut().unwrap().prices = PriceLists::new(vec![list]).unwrap();
    a_pool().with_workers(workers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgeted_runs_next_to_a_free_worker_delay_no_other_run() {
    let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
    let address = postgres.database().await.unwrap();
    let options = StoreOptions { dispatch_grace: quick().dispatch_grace, ..StoreOptions::default() };
    let store = Store::open(&address, options).await.unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let cap = Some(Cost::from_nano_usd(1_000_000_000_000));
    let budget = Budget { payer: Payer::Tenant(tenant.clone()), tenant, period: Period::Day, cap };
    store.set_budget(&budget).await.unwrap();
    let house = House::idle(quick(), |_| Arc::new(store.clone())).await;
    let house =
        house.beside(quick(), 8, |parts| parts.pool = Arc::new(a_pool_with_a_free_worker())).at_work();
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house.vendor.otherwise(Answer::text("fine"));

    let policy = || Policy { deadline_ms: 20_000, ..Policy::new(Tier::Ultra, Effort::Medium) };
    let budgeted = (0..RUNS).map(|_| Submit { budgets: vec![budget.clone()], ..request(policy()) });
    let other = Submit { tenant: TenantId::new("other").unwrap(), ..request(policy()) };
    let ask = budgeted.chain([other]).map(|request| house.engine.submit(request));
    let ids = join_all(ask).await.into_iter().map(|submitted| submitted.unwrap().run_id());
    let runs = within(join_all(ids.map(|id| house.ended(id)))).await;
    for run in &runs {
        assert!(matches!(run.state(), RunState::Succeeded { .. }), "{:?}", run.state());
    }
    let spent = runs[..RUNS].iter().map(podium_domain::run::Run::cost).sum::<Cost>();
    let charge = store.charges(&[budget.at(TestClock::START)]).await.unwrap()[0];
    assert!(!spent.is_zero());
    assert_eq!((charge.spent, charge.reserved), (spent, Cost::ZERO));
    // No run came near its deadline.
    let took = runs.iter().map(|run| run.ended_at().unwrap().since(run.spec().accepted_at)).max().unwrap();
    assert!(took < Duration::from_secs(15), "{took:?}");
}
