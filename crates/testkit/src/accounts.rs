//! The conformance suite of stores that keep keys and budgets. [`accounts_suite!`](crate::accounts_suite) makes a test of each
//! requirement.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer, Period, Shortage};
use podium_domain::ids::{KeyId, RequestId, StepIndex, TenantId};
use podium_domain::money::Cost;
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::accounts::{Accounts, KEYS_MAX, KeyAdded, KeyHash, KeyRecord};
use podium_ports::clock::Ids as _;
use podium_ports::store::{Appended, RunStore, Unwritten};

use crate::builders::{Driven, a_spec, a_tenant, plan_of};
use crate::clock::TestClock;
use crate::ids::SeededIds;

mod sums;

pub use sums::{
    a_cap_bounds_only_runs_of_its_period, a_late_report_is_booked_after_the_release,
    a_run_that_names_no_period_is_bounded_by_any_cap, a_run_that_reserved_nothing_gets_its_paid_plan,
    a_run_that_reserved_nothing_is_refused_a_plan_beyond_the_cap, absurd_amounts_never_refuse_a_commit,
    an_operator_corrects_a_sum, lost_attempts_are_released_after_the_end_of_their_run,
    runs_with_and_without_reservation_share_a_batch, sums_of_old_periods_are_removed_except_all_time,
    the_cost_of_a_run_without_reservation_is_booked,
};

/// An empty store under test.
pub struct AccountsFixture {
    /// A handle on its runs.
    pub runs: Arc<dyn RunStore>,
    /// A second handle, as another process would have it.
    pub other_runs: Arc<dyn RunStore>,
    /// Its keys and budgets.
    pub accounts: Arc<dyn Accounts>,
    /// Objects that must live as long as the test.
    pub keep: Box<dyn std::any::Any + Send>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`AccountsFixture`].
///
/// ```ignore
/// podium_testkit::accounts_suite! { #[tokio::test] fixture() }
/// ```
#[macro_export]
macro_rules! accounts_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::accounts_suite! { @each [#[$attribute] $fixture]
            a_key_is_found_by_its_hash_only
            a_revoked_key_stays_revoked
            the_keys_of_a_tenant_are_bounded
            a_budget_is_replaced_and_removed
            a_run_is_charged_from_its_acceptance_to_its_end
            a_run_that_exceeds_a_budget_is_not_created
            a_repeated_request_id_returns_its_run_despite_the_budget
            repeating_a_charged_create_books_once
            a_plan_that_does_not_fit_leaves_no_trace
            a_stale_charged_commit_books_nothing
            spent_money_is_booked_beyond_the_cap
            each_budget_of_a_run_must_have_capacity
            a_run_that_does_not_fit_blocks_no_other
            a_budget_without_a_cap_only_counts
            sums_outlive_their_runs
            no_burst_exceeds_the_cap
            a_run_that_reserved_nothing_gets_its_paid_plan
            a_run_that_reserved_nothing_is_refused_a_plan_beyond_the_cap
            the_cost_of_a_run_without_reservation_is_booked
            runs_with_and_without_reservation_share_a_batch
            a_cap_bounds_only_runs_of_its_period
            a_run_that_names_no_period_is_bounded_by_any_cap
            lost_attempts_are_released_after_the_end_of_their_run
            a_late_report_is_booked_after_the_release
            sums_of_old_periods_are_removed_except_all_time
            an_operator_corrects_a_sum
            absurd_amounts_never_refuse_a_commit
        }
    };
    (@each [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::accounts::$name($fixture.await).await;
        })+
    };
}

const NANO: fn(u64) -> Cost = Cost::from_nano_usd;
const STEP: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };

fn a_budget(payer: Payer, cap: Option<u64>) -> Budget {
    Budget { payer, tenant: a_tenant(), period: Period::Month, cap: cap.map(NANO) }
}

fn tenants() -> Payer {
    Payer::Tenant(a_tenant())
}

fn keys() -> Payer {
    Payer::Key(KeyId::new("key_1").unwrap())
}

/// A run that is charged to these payers and reserves `hold` at first.
fn a_run(ids: &SeededIds, payers: &[Payer], hold: u64) -> Driven {
    let at = TestClock::START;
    let budgets = payers.iter().map(|payer| a_budget(payer.clone(), None).at(at)).collect();
    Driven::accept(ids.run_id(at), RunSpec { budgets, hold: NANO(hold), ..a_spec() })
}

fn plan(run: &mut Driven, reserve: u64, ids: &SeededIds) {
    run.reserve = NANO(0);
    let claim = run.claim(TaskRef::Plan { round: 0 }, ids);
    run.reserve = NANO(reserve);
    run.planned(plan_of(&[("quick", "Do it.", &[])]), claim);
}

impl AccountsFixture {
    async fn with(self, budgets: &[(Payer, Option<u64>)]) -> Self {
        for (payer, cap) in budgets {
            self.accounts.set_budget(&a_budget(payer.clone(), *cap)).await.unwrap();
        }
        self
    }

    async fn create(&self, run: &mut Driven) -> Result<Appended, Shortage> {
        self.runs.append(&[run.commit()]).await.unwrap().remove(0).map_err(|unwritten| match unwritten {
            Unwritten::OverBudget(shortage) => shortage,
            Unwritten::Conflict => unreachable!("first events never conflict"),
        })
    }

    async fn commit(&self, run: &mut Driven) -> Result<(), Unwritten> {
        let appended = self.runs.append(&[run.commit()]).await.unwrap().remove(0)?;
        assert_eq!(appended, Appended::New);
        Ok(())
    }

    /// The spent and reserved sums, in billionths of a dollar.
    async fn sum(&self, payer: &Payer) -> (u64, u64) {
        let budget = a_budget(payer.clone(), None).at(TestClock::START);
        let Charge { spent, reserved } = self.accounts.charges(&[budget]).await.unwrap()[0];
        (spent.nano_usd(), reserved.nano_usd())
    }
}

fn a_key(number: u8, tenant: &TenantId) -> (KeyRecord, KeyHash) {
    let id = KeyId::new(format!("key_{number}")).unwrap();
    let created_at = Timestamp::from_unix_ms(number.into());
    (KeyRecord { id, tenant: tenant.clone(), created_at, revoked_at: None }, KeyHash([number; 32]))
}

/// Adding a key twice changes nothing, and a tenant's list has its own keys only.
pub async fn a_key_is_found_by_its_hash_only(store: AccountsFixture) {
    let other = TenantId::new("other").unwrap();
    for (number, tenant) in [(1, &a_tenant()), (2, &a_tenant()), (3, &other)] {
        let (key, hash) = a_key(number, tenant);
        for _repeated in 0..2 {
            assert_eq!(store.accounts.add_key(&key, &hash).await.unwrap(), KeyAdded::Added);
        }
        assert_eq!(store.accounts.find_key(&hash).await.unwrap(), Some(key));
    }
    assert_eq!(store.accounts.find_key(&KeyHash([9; 32])).await.unwrap(), None);
    let listed = store.accounts.keys(&a_tenant()).await.unwrap();
    assert_eq!(listed, [1, 2].map(|number| a_key(number, &a_tenant()).0));
}

/// A second revocation keeps the first time, and no other tenant can revoke it.
pub async fn a_revoked_key_stays_revoked(store: AccountsFixture) {
    let (key, hash) = a_key(1, &a_tenant());
    store.accounts.add_key(&key, &hash).await.unwrap();
    let (first, second) = (Timestamp::from_unix_ms(50), Timestamp::from_unix_ms(60));
    let other = TenantId::new("other").unwrap();
    assert!(!store.accounts.revoke_key(&other, &key.id, first).await.unwrap(), "it is not the other's");
    for at in [first, second] {
        assert!(store.accounts.revoke_key(&a_tenant(), &key.id, at).await.unwrap());
    }
    let found = store.accounts.find_key(&hash).await.unwrap().unwrap();
    assert_eq!(found.revoked_at, Some(first));
}

/// The bound is [`KEYS_MAX`].
pub async fn the_keys_of_a_tenant_are_bounded(store: AccountsFixture) {
    let hash = |number: u32| {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        KeyHash(hash)
    };
    let key = |number: u32| {
        let (key, _) = a_key(0, &a_tenant());
        KeyRecord { id: KeyId::new(format!("key_{number}")).unwrap(), ..key }
    };
    for number in 0..KEYS_MAX {
        let added = store.accounts.add_key(&key(number), &hash(number)).await.unwrap();
        assert_eq!(added, KeyAdded::Added);
    }
    let added = store.accounts.add_key(&key(KEYS_MAX), &hash(KEYS_MAX)).await.unwrap();
    assert_eq!(added, KeyAdded::TooMany);
    assert_eq!(store.accounts.find_key(&hash(KEYS_MAX)).await.unwrap(), None);
}

/// Budgets are listed per tenant, and removing one returns whether it existed.
pub async fn a_budget_is_replaced_and_removed(store: AccountsFixture) {
    let store = store.with(&[(tenants(), Some(5)), (keys(), None), (tenants(), Some(7))]).await;
    let budgets = store.accounts.budgets(&a_tenant()).await.unwrap();
    assert_eq!(budgets, [a_budget(keys(), None), a_budget(tenants(), Some(7))]);
    assert!(store.accounts.remove_budget(&keys()).await.unwrap());
    assert!(!store.accounts.remove_budget(&keys()).await.unwrap());
    assert_eq!(store.accounts.budgets(&a_tenant()).await.unwrap().len(), 1);
    assert_eq!(store.accounts.budgets(&TenantId::new("other").unwrap()).await.unwrap(), []);
}

/// It reserves its hold, then its plan's worst case, then more for a second attempt; a lost attempt until its report.
pub async fn a_run_is_charged_from_its_acceptance_to_its_end(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 10);
    assert_eq!(store.create(&mut run).await, Ok(Appended::New));
    assert_eq!(store.sum(&tenants()).await, (0, 10));
    plan(&mut run, 300_000, &ids);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (0, 300_000));
    let claim = run.claim(STEP, &ids);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    // A second attempt needs more than the plan reserved.
    run.now = run.now.after(std::time::Duration::from_mins(1));
    run.drive(&Command::ExpireLease { task: STEP, claim });
    run.claim(STEP, &ids);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (0, 600_000));
    run.step_under(0, "done", run.last_claim);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    // The cost of the lost attempt is unknown: it stays reserved until its executor reports.
    assert_eq!(store.sum(&tenants()).await, (120_000, 300_000));
    run.fail(STEP, claim, None);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (120_000, 0));
}

/// Nothing of it is stored.
pub async fn a_run_that_exceeds_a_budget_is_not_created(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut first = a_run(&ids, &[tenants()], 60);
    assert_eq!(store.create(&mut first).await, Ok(Appended::New));
    let mut second = a_run(&ids, &[tenants()], 41);
    let shortage = store.create(&mut second).await.unwrap_err();
    let expected =
        Shortage { payer: tenants(), cap: NANO(100), spent: NANO(0), reserved: NANO(60), asked: NANO(41) };
    assert_eq!(shortage, expected);
    assert_eq!(store.runs.load(&[second.id()]).await.unwrap(), [None]);
    assert_eq!(store.runs.events(second.id(), 0, 10).await.unwrap(), []);
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], 40)).await, Ok(Appended::New));
    assert_eq!(store.sum(&tenants()).await, (0, 100));
}

/// The repeated request needs no capacity.
pub async fn a_repeated_request_id_returns_its_run_despite_the_budget(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let [mut first, mut again] = [(); 2].map(|()| {
        let run = a_run(&ids, &[tenants()], 60);
        let request_id = Some(RequestId::new("once").unwrap());
        Driven::accept(run.id(), RunSpec { request_id, ..run.run.spec().clone() })
    });
    assert_eq!(store.create(&mut first).await, Ok(Appended::New));
    assert_eq!(store.create(&mut again).await, Ok(Appended::Existing(first.id())));
    assert_eq!(store.sum(&tenants()).await, (0, 60));
}

/// A caller may repeat it after a lost reply.
pub async fn repeating_a_charged_create_books_once(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let create = a_run(&ids, &[tenants()], 60).commit();
    for expected in [Appended::New, Appended::Already] {
        let created = store.runs.append(std::slice::from_ref(&create)).await.unwrap();
        assert_eq!(created, [Ok(expected)]);
    }
    assert_eq!(store.sum(&tenants()).await, (0, 60));
}

/// Neither the events nor the booking.
pub async fn a_plan_that_does_not_fit_leaves_no_trace(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 10);
    store.create(&mut run).await.unwrap();
    let before = run.clone();
    plan(&mut run, 101, &ids);
    let Err(Unwritten::OverBudget(shortage)) = store.commit(&mut run).await else {
        unreachable!("it must not fit")
    };
    assert_eq!((shortage.payer, shortage.asked), (tenants(), NANO(91)));
    assert_eq!(store.runs.load(&[run.id()]).await.unwrap(), [Some(before.run)]);
    assert_eq!(store.sum(&tenants()).await, (0, 10));
}

/// The conflict is reported even if the booking would exceed the cap.
pub async fn a_stale_charged_commit_books_nothing(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 10);
    store.create(&mut run).await.unwrap();
    let mut stale = run.clone();
    run.claim(TaskRef::Plan { round: 0 }, &ids);
    store.commit(&mut run).await.unwrap();
    for reserve in [50, 500] {
        let mut stale = stale.clone();
        plan(&mut stale, reserve, &ids);
        assert_eq!(store.commit(&mut stale).await, Err(Unwritten::Conflict), "{reserve}");
    }
    stale.drive(&Command::Cancel);
    assert_eq!(store.commit(&mut stale).await, Err(Unwritten::Conflict));
    assert_eq!(store.sum(&tenants()).await, (0, 10));
}

/// Spent money is booked even if it exceeds the expectation.
pub async fn spent_money_is_booked_beyond_the_cap(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 10);
    store.create(&mut run).await.unwrap();
    plan(&mut run, 100, &ids);
    store.commit(&mut run).await.unwrap();
    let claim = run.claim(STEP, &ids);
    store.commit(&mut run).await.unwrap();
    run.step_under(0, "it cost 120,000", claim);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (120_000, 0));
    store.create(&mut a_run(&ids, &[tenants()], 1)).await.unwrap_err();
}

/// Those of the tenant and of the key.
pub async fn each_budget_of_a_run_must_have_capacity(store: AccountsFixture) {
    let store = store.with(&[(tenants(), Some(100)), (keys(), Some(50))]).await;
    let ids = SeededIds::new(1);
    let both = [tenants(), keys()];
    assert_eq!(store.create(&mut a_run(&ids, &both, 40)).await, Ok(Appended::New));
    assert_eq!(store.create(&mut a_run(&ids, &both, 20)).await.unwrap_err().payer, keys());
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], 60)).await, Ok(Appended::New));
    assert_eq!(store.create(&mut a_run(&ids, &both, 10)).await.unwrap_err().payer, tenants());
    assert_eq!((store.sum(&tenants()).await, store.sum(&keys()).await), ((0, 100), (0, 40)));
}

/// The other runs of the batch are created.
pub async fn a_run_that_does_not_fit_blocks_no_other(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut runs = [60, 90, 30, 20, 10].map(|hold| a_run(&ids, &[tenants()], hold));
    let commits: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    let created = store.runs.append(&commits).await.unwrap();
    let is_created: Vec<_> = created.iter().map(Result::is_ok).collect();
    assert_eq!(is_created, [true, false, true, false, true], "{created:?}");
    assert_eq!(store.sum(&tenants()).await, (0, 100));
}

/// Its sums are still kept.
pub async fn a_budget_without_a_cap_only_counts(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), None)]).await, SeededIds::new(1));
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], u64::MAX >> 8)).await, Ok(Appended::New));
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], 5)).await, Ok(Appended::New));
    // The same holds after the budget was removed while runs are charged to it.
    store.accounts.remove_budget(&tenants()).await.unwrap();
    let mut run = a_run(&ids, &[tenants()], 5);
    assert_eq!(store.create(&mut run).await, Ok(Appended::New));
    plan(&mut run, 7, &ids);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (0, (u64::MAX >> 8) + 5 + 7));
}

/// Removing a run does not change the sums.
pub async fn sums_outlive_their_runs(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 10);
    store.create(&mut run).await.unwrap();
    plan(&mut run, 200_000, &ids);
    run.step(0, "done", &ids);
    store.commit(&mut run).await.unwrap();
    assert_eq!(store.runs.remove_ended(run.now, Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(store.runs.load(&[run.id()]).await.unwrap(), [None]);
    assert_eq!(store.sum(&tenants()).await, (120_000, 0));
}

/// Two processes accept, plan and end runs concurrently, more than the budget can hold.
pub async fn no_burst_exceeds_the_cap(store: AccountsFixture) {
    const CAP: u64 = 3_000_000;
    let (store, ids) = (store.with(&[(tenants(), Some(CAP)), (keys(), Some(CAP))]).await, SeededIds::new(1));
    let budget: BudgetRef = a_budget(tenants(), None).at(TestClock::START);
    let lives = (0..64).map(|number: usize| {
        let (store, ids) = (&store, &ids);
        let handle = if number.is_multiple_of(2) { &store.runs } else { &store.other_runs };
        // In either order: writers of the same two budgets must not deadlock.
        let payers = if number.is_multiple_of(3) { [tenants(), keys()] } else { [keys(), tenants()] };
        async move {
            let mut run = a_run(ids, &payers, 10_000);
            if handle.append(&[run.commit()]).await.unwrap()[0].is_err() {
                return 0;
            }
            let before = run.clone();
            plan(&mut run, 150_000, ids);
            if handle.append(&[run.commit()]).await.unwrap()[0].is_err() {
                run = before;
                run.drive(&Command::Cancel);
                handle.append(&[run.commit()]).await.unwrap()[0].as_ref().unwrap();
                return 0;
            }
            run.step(0, "done", ids);
            handle.append(&[run.commit()]).await.unwrap()[0].as_ref().unwrap();
            run.run.cost().nano_usd()
        }
    });
    let watched = async {
        for _ in 0..50 {
            let charge = store.accounts.charges(std::slice::from_ref(&budget)).await.unwrap()[0];
            assert!(charge.total() <= NANO(CAP), "{charge:?}");
        }
    };
    let (costs, ()) = futures::join!(join_all(lives), watched);
    let spent: u64 = costs.iter().sum();
    assert!(costs.contains(&0), "all of them fitted");
    assert!(spent <= CAP && spent > CAP / 2, "{spent}");
    assert_eq!((store.sum(&tenants()).await, store.sum(&keys()).await), ((spent, 0), (spent, 0)));
}
