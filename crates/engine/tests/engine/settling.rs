//! Reservations of lost attempts are released some time after the end of their run.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::budget::{Budget, Charge, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_engine::{Options, Submit};
use podium_ports::accounts::Accounts as _;
use podium_store_sqlite::{Options as StoreOptions, Store};
use podium_testkit::{Answer, TestClock, a_pool, plan_of};
use tokio::time::interval;

use crate::house::{House, a_queue, quick, request, within};

fn a_pool_of_short_calls() -> Pool {
    let mut workers = a_pool().workers().to_vec();
    for worker in &mut workers {
        worker.limits.call_ms_max = 200;
    }
    a_pool().with_workers(workers)
}

#[tokio::test]
async fn a_dead_executors_reservation_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        settle_every: Duration::from_millis(20),
        report_margin: Duration::from_millis(100),
        ..quick()
    };
    let store_options = StoreOptions { dispatch_grace: options.dispatch_grace, ..StoreOptions::default() };
    let store = Store::open(&folder.path().join("podium.db"), store_options).await.unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let cap = Some(Cost::from_nano_usd(1_000_000_000));
    let budget = Budget { payer: Payer::Tenant(tenant.clone()), tenant, period: Period::Total, cap };
    store.set_budget(&budget).await.unwrap();
    let charge = || async { store.charges(&[budget.at(TestClock::START)]).await.unwrap()[0] };

    let mut first = House::idle(options.clone(), |_| Arc::new(store.clone())).await.at_work();
    first.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    first.vendor.otherwise(Answer::text("fine")).script("quick", [Answer::hang()]);
    let request =
        Submit { budgets: vec![budget.clone()], ..request(Policy::new(Tier::Ultra, Effort::Medium)) };
    let id = first.engine.submit(request).await.unwrap().run_id();
    within(first.vendor.until_called(1)).await;
    first.kill().await;
    let second = first.beside(options, 9, |parts| {
        // A dead process loses its queue.
        parts.queue = a_queue();
        parts.pool = Arc::new(a_pool_of_short_calls());
    });
    let second = second.at_work();
    let run = second.ended(id).await;
    assert_eq!(run.answer(), Some("fine"), "{run:#?}");
    assert!(run.booked().reserved > Cost::ZERO, "the vendor may bill the first call: {run:#?}");

    let mut looking = interval(Duration::from_millis(20));
    within(async {
        while charge().await.reserved > Cost::ZERO {
            looking.tick().await;
        }
    })
    .await;
    assert_eq!(charge().await, Charge { spent: run.cost(), reserved: Cost::ZERO });
    let run = second.engine.run(id).await.unwrap().unwrap();
    let since = run.tasks().flat_map(|(_, task)| &task.attempts).filter_map(|attempt| attempt.ended_at).max();
    let waited = since.unwrap().since(run.ended_at().unwrap());
    assert!(waited >= Duration::from_millis(300), "the call might still have been in flight: {waited:?}");
}
