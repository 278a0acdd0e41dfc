//! Budgets: a run reserves its cost, releases the rest at its end, and makes no call that does not fit.

use std::sync::Arc;

use futures::future::join_all;
use podium_domain::budget::{Budget, Charge, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_domain::plan::Plan;
use podium_domain::policy::{BrokenAnswer, Effort, Policy, Tier};
use podium_domain::run::{FailReason, Run, RunState};
use podium_engine::{Submit, SubmitError};
use podium_ports::accounts::Accounts as _;
use podium_ports::store::RunFilter;
use podium_store_sqlite::{Options as StoreOptions, Store};
use podium_testkit::{Answer, Fault, TestClock, a_plan, plan_of};

use crate::house::{House, quick, request, with};

/// The reservation for one step by `quick`: 1,050 bytes at two bytes per token, and 4,096 tokens of output.
const ONE_STEP: u64 = 525_000 + 4_096 * 2_000;
/// The cost of that step by [`Answer::USAGE`].
const PAID: u64 = 120_000;

struct Bank {
    house: House,
    store: Store,
    budget: Budget,
    _folder: tempfile::TempDir,
}

impl Bank {
    async fn open(plan: Plan, cap: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { dispatch_grace: quick().dispatch_grace, ..StoreOptions::default() };
        let store = Store::open(&folder.path().join("podium.db"), options).await.unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let payer = Payer::Tenant(tenant.clone());
        let budget = Budget { payer, tenant, period: Period::Day, cap: Some(Cost::from_nano_usd(cap)) };
        store.set_budget(&budget).await.unwrap();
        let house = House::idle(quick(), |_| Arc::new(store.clone())).await;
        house.conductor.otherwise(plan);
        Self { house: house.at_work(), store, budget, _folder: folder }
    }

    fn request(&self) -> Submit {
        let budgets = vec![self.budget.clone()];
        Submit { budgets, ..request(Policy::new(Tier::Ultra, Effort::Medium)) }
    }

    async fn ended(&self) -> Run {
        let id = self.house.engine.submit(self.request()).await.unwrap().run_id();
        self.house.ended(id).await
    }

    async fn charge(&self) -> Charge {
        self.store.charges(&[self.budget.at(TestClock::START)]).await.unwrap()[0]
    }

    async fn assert_charged(&self, spent: u64, reserved: u64) {
        let (spent, reserved) = (Cost::from_nano_usd(spent), Cost::from_nano_usd(reserved));
        assert_eq!(self.charge().await, Charge { spent, reserved });
    }
}

fn one_step() -> Plan {
    plan_of(&[("quick", "Do it.", &[])])
}

#[tokio::test]
async fn the_unused_reservation_is_released_at_the_runs_end() {
    let bank = Bank::open(one_step(), ONE_STEP).await;
    bank.house.vendor.otherwise(Answer::text("done"));
    for number in 1..=3 {
        let run = bank.ended().await;
        assert_eq!(run.answer(), Some("done"), "{run:#?}");
        assert_eq!(run.booked().total(), run.cost());
        bank.assert_charged(number * PAID, 0).await;
        // Only the actual cost is still booked.
        let cap = Some(Cost::from_nano_usd(number * PAID + ONE_STEP));
        bank.store.set_budget(&Budget { cap, ..bank.budget.clone() }).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_does_not_fit_its_budget_leaves_nothing() {
    let bank = Bank::open(one_step(), 1_000_000).await;
    let error = bank.house.engine.submit(bank.request()).await.unwrap_err();
    let SubmitError::OverBudget(shortage) = error else { panic!("{error:?}") };
    assert_eq!((&shortage.payer, shortage.cap.nano_usd()), (&bank.budget.payer, 1_000_000));
    assert_eq!(
        bank.house.engine.list(&bank.budget.tenant, &RunFilter::default(), None, 10).await.unwrap(),
        []
    );
    assert!(bank.house.conductor.requests().is_empty() && bank.house.vendor.calls().is_empty());
    bank.assert_charged(0, 0).await;
}

#[tokio::test]
async fn a_plan_that_does_not_fit_its_budget_ends_the_run_uncalled() {
    // The budget fits one step by the cheapest worker, but not three steps by all workers.
    let bank = Bank::open(a_plan(), 2 * ONE_STEP).await;
    let run = bank.ended().await;
    let RunState::Failed { reason: FailReason::BudgetExhausted { shortage } } = run.state() else {
        panic!("{run:#?}")
    };
    assert_eq!(shortage.payer, bank.budget.payer);
    assert!(shortage.asked > Cost::from_nano_usd(ONE_STEP), "{shortage}");
    assert!(bank.house.vendor.calls().is_empty());
    bank.assert_charged(run.cost().nano_usd(), 0).await;
}

#[tokio::test]
async fn another_attempt_is_made_only_if_it_fits_the_budget() {
    for (cap, calls) in [(ONE_STEP + 1_000, 1), (2 * ONE_STEP, 2)] {
        let bank = Bank::open(one_step(), cap).await;
        // The attempt costs two million before it fails. That is more than the unused part of the plan's reservation.
        let half = Answer::text("half".repeat(1_000)).fail(Fault::Garbled);
        bank.house.vendor.script("quick", [half, Answer::text("whole")]);
        let policy = Policy { broken_answer: BrokenAnswer::Again, ..bank.request().request.policy };
        let submit = with(bank.request(), |request| request.policy = policy);
        let run = bank.house.ended(bank.house.engine.submit(submit).await.unwrap().run_id()).await;
        assert_eq!(bank.house.vendor.calls().len(), calls, "{run:#?}");
        assert_eq!(run.answer().is_some(), calls == 2);
        if calls == 1 {
            assert!(matches!(run.state(), RunState::Failed { reason: FailReason::BudgetExhausted { .. } }));
        }
        bank.assert_charged(run.cost().nano_usd(), 0).await;
    }
}

#[tokio::test]
async fn two_engines_under_a_burst_never_exceed_the_cap() {
    const CAP: u64 = 20 * ONE_STEP;
    let bank = Bank::open(one_step(), CAP).await;
    bank.house.vendor.otherwise(Answer::text("done"));
    let other = bank.house.beside(quick(), 9, |_| {}).at_work();
    let runs = join_all((0..100).map(|number: usize| {
        let (bank, other) = (&bank, &other);
        async move {
            let house = if number.is_multiple_of(2) { &bank.house } else { other };
            let submitted = house.engine.submit(bank.request()).await;
            assert!(bank.charge().await.total() <= Cost::from_nano_usd(CAP));
            match submitted {
                Ok(submitted) => Some(house.ended(submitted.run_id()).await),
                Err(SubmitError::OverBudget(_)) => None,
                Err(error) => panic!("{error:?}"),
            }
        }
    }))
    .await;
    let answered = runs.iter().flatten().filter(|run| run.answer().is_some()).count();
    assert!((20..100).contains(&answered), "{answered} of 100");
    assert_eq!(bank.house.vendor.calls().len(), answered, "a rejected run calls no worker");
    bank.assert_charged(runs.iter().flatten().map(|run| run.cost().nano_usd()).sum(), 0).await;
}
