//! Requirements of the sums of budgets: runs that reserve nothing, periods, released reservations, retention, corrections.

use std::time::Duration;

use podium_domain::budget::{Budget, BudgetRef, Charge, Period, Shortage};
use podium_domain::ids::ClaimId;
use podium_domain::run::{Command, RunSpec};
use podium_domain::time::Timestamp;
use podium_ports::accounts::SUMS_KEPT;
use podium_ports::clock::Ids as _;
use podium_ports::store::{Appended, Unwritten};

use super::{AccountsFixture, NANO, STEP, a_budget, a_run, keys, plan, tenants};
use crate::builders::{Driven, a_spec};
use crate::clock::TestClock;
use crate::ids::SeededIds;

/// Creates a run as the engine does without a booking.
async fn create_uncharged(store: &AccountsFixture, run: &mut Driven) {
    let commit = run.commit();
    assert_eq!(commit.booking(), None);
    assert_eq!(store.runs.append(&[commit]).await.unwrap(), [Ok(Appended::New)]);
}

/// A free worker could do the run, or its planner is free, so it reserves nothing; its plan uses a paid worker.
pub async fn a_run_that_reserved_nothing_gets_its_paid_plan(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000)), (keys(), None)]).await, SeededIds::new(1));
    for number in 1..=2 {
        let mut run = a_run(&ids, &[tenants(), keys()], 0);
        create_uncharged(&store, &mut run).await;
        plan(&mut run, 300_000, &ids);
        assert_eq!(store.commit(&mut run).await, Ok(()));
        assert_eq!(store.sum(&tenants()).await, (0, number * 300_000));
        assert_eq!(store.sum(&keys()).await, (0, number * 300_000));
    }
    // The charged path accepts such a run too.
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], 0)).await, Ok(Appended::New));
}

/// The plan must fit, although the run did not reserve anything.
pub async fn a_run_that_reserved_nothing_is_refused_a_plan_beyond_the_cap(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 0);
    create_uncharged(&store, &mut run).await;
    plan(&mut run, 101, &ids);
    let refused = store.commit(&mut run).await;
    let expected =
        Shortage { payer: tenants(), cap: NANO(100), spent: NANO(0), reserved: NANO(0), asked: NANO(101) };
    assert_eq!(refused, Err(Unwritten::OverBudget(expected)));
    assert_eq!(store.sum(&tenants()).await, (0, 0));
}

/// Nothing was reserved, so the first booking of the period is one that needs no capacity.
pub async fn the_cost_of_a_run_without_reservation_is_booked(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1))]).await, SeededIds::new(1));
    let mut run = a_run(&ids, &[tenants()], 0);
    create_uncharged(&store, &mut run).await;
    plan(&mut run, 0, &ids);
    let claim = run.claim(STEP, &ids);
    store.runs.append(&[run.commit()]).await.unwrap().remove(0).unwrap();
    run.step_under(0, "it cost 120,000", claim);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (120_000, 0));
}

/// The first batch of a period creates the sums and omits no run.
pub async fn runs_with_and_without_reservation_share_a_batch(store: AccountsFixture) {
    let store = store.with(&[(tenants(), Some(1_000_000)), (keys(), Some(100))]).await;
    let ids = SeededIds::new(1);
    let mut runs = [vec![], vec![tenants()], vec![keys(), tenants()], vec![keys()]]
        .map(|payers| a_run(&ids, &payers, 0));
    for run in &mut runs {
        create_uncharged(&store, run).await;
    }
    for run in &mut runs {
        plan(run, 101, &ids);
    }
    let commits: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    let written = store.runs.append(&commits).await.unwrap();
    let is_written: Vec<_> = written.iter().map(Result::is_ok).collect();
    assert_eq!(is_written, [true, true, false, false], "{written:?}");
    assert!(matches!(written[3], Err(Unwritten::OverBudget(_))), "{written:?}");
    assert_eq!((store.sum(&tenants()).await, store.sum(&keys()).await), ((0, 101), (0, 0)));
}

/// A budget's period changes from month to day and back while runs are charged to it.
pub async fn a_cap_bounds_only_runs_of_its_period(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000))]).await, SeededIds::new(1));
    // Not the first of a month, when the day and the month begin together and share a sum.
    let at = TestClock::START.after(std::time::Duration::from_hours(10 * 24));
    let monthly = a_budget(tenants(), Some(1_000_000));
    let daily = Budget { period: Period::Day, cap: Some(NANO(100)), ..monthly.clone() };
    let run_of = |budget: &Budget, hold| {
        let spec = RunSpec { budgets: vec![budget.at(at)], hold: NANO(hold), ..a_spec() };
        Driven::accept(ids.run_id(at), spec)
    };
    let mut of_month = run_of(&monthly, 10);
    assert_eq!(store.create(&mut of_month).await, Ok(Appended::New));
    store.accounts.set_budget(&daily).await.unwrap();
    // The cap of a day does not apply to the run of the month.
    plan(&mut of_month, 300_000, &ids);
    assert_eq!(store.commit(&mut of_month).await, Ok(()));
    let mut of_day = run_of(&daily, 60);
    assert_eq!(store.create(&mut of_day).await, Ok(Appended::New));
    assert_eq!(store.create(&mut run_of(&daily, 41)).await.unwrap_err().cap, NANO(100));
    store.accounts.set_budget(&monthly).await.unwrap();
    // The run of the day neither uses up the month's remainder, nor is it bounded by it.
    plan(&mut of_day, 500_000, &ids);
    assert_eq!(store.commit(&mut of_day).await, Ok(()));
    assert_eq!(store.create(&mut run_of(&monthly, 700_001)).await.unwrap_err().cap, NANO(1_000_000));
    assert_eq!(store.create(&mut run_of(&monthly, 700_000)).await, Ok(Appended::New));
    let sums = store.accounts.charges(&[monthly.at(at), daily.at(at)]).await.unwrap();
    assert_eq!(totals(&sums), [1_000_000, 500_000]);
}

/// Runs of older versions do not name the period of their budgets.
pub async fn a_run_that_names_no_period_is_bounded_by_any_cap(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let budget = BudgetRef { period: None, ..a_budget(tenants(), None).at(TestClock::START) };
    let of = |hold| RunSpec { budgets: vec![budget.clone()], hold: NANO(hold), ..a_spec() };
    let mut first = Driven::accept(ids.run_id(TestClock::START), of(60));
    assert_eq!(store.create(&mut first).await, Ok(Appended::New));
    let mut second = Driven::accept(ids.run_id(TestClock::START), of(41));
    assert_eq!(store.create(&mut second).await.unwrap_err().payer, tenants());
    assert_eq!(store.sum(&tenants()).await, (0, 60));
}

/// A run that was cancelled while its only step was being called, and whose executor never reports.
async fn a_lost_run(store: &AccountsFixture, ids: &SeededIds) -> (Driven, ClaimId) {
    let mut run = a_run(ids, &[tenants()], 10);
    store.create(&mut run).await.unwrap();
    plan(&mut run, 300_000, ids);
    let claim = run.claim(STEP, ids);
    run.drive(&Command::Cancel);
    store.commit(&mut run).await.unwrap();
    (run, claim)
}

/// Ended runs with lost attempts are found in pages, and releasing them returns their reservations.
pub async fn lost_attempts_are_released_after_the_end_of_their_run(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000))]).await, SeededIds::new(1));
    let mut lost = [a_lost_run(&store, &ids).await.0, a_lost_run(&store, &ids).await.0];
    lost.sort_by_key(Driven::id);
    let mut active = a_run(&ids, &[tenants()], 10);
    store.create(&mut active).await.unwrap();
    let mut settled = a_run(&ids, &[tenants()], 10);
    store.create(&mut settled).await.unwrap();
    settled.drive(&Command::Cancel);
    store.commit(&mut settled).await.unwrap();
    assert_eq!(store.sum(&tenants()).await, (0, 600_010));

    let ended = lost[0].now;
    let earlier = Timestamp::from_unix_ms(ended.unix_ms() - 1);
    assert_eq!(store.runs.unsettled(earlier, None, 10).await.unwrap(), []);
    assert_eq!(store.runs.unsettled(ended, None, 10).await.unwrap(), [lost[0].id(), lost[1].id()]);
    assert_eq!(store.runs.unsettled(ended, None, 1).await.unwrap(), [lost[0].id()]);
    assert_eq!(store.runs.unsettled(ended, Some(lost[0].id()), 10).await.unwrap(), [lost[1].id()]);
    for run in &mut lost {
        run.drive(&Command::ReleaseLost);
        assert_eq!(store.commit(run).await, Ok(()));
    }
    assert_eq!(store.runs.unsettled(ended, None, 10).await.unwrap(), []);
    assert_eq!(store.sum(&tenants()).await, (0, 10));
}

/// Once, with its real cost.
pub async fn a_late_report_is_booked_after_the_release(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(1_000_000))]).await, SeededIds::new(1));
    let (mut run, claim) = a_lost_run(&store, &ids).await;
    run.drive(&Command::ReleaseLost);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    run.step_under(0, "it cost 120,000", claim);
    assert_eq!(store.commit(&mut run).await, Ok(()));
    assert_eq!(store.sum(&tenants()).await, (120_000, 0));
}

/// One budget is monthly, the other one for all time.
pub async fn sums_of_old_periods_are_removed_except_all_time(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), None), (keys(), None)]).await, SeededIds::new(1));
    // Early enough that a store with its own clock has reached the time of removal.
    let at = TestClock::START.before(SUMS_KEPT + Duration::from_hours(40 * 24));
    let monthly = a_budget(tenants(), None).at(at);
    let total = Budget { period: Period::Total, ..a_budget(keys(), None) }.at(at);
    let budgets = vec![monthly.clone(), total.clone()];
    let spec = RunSpec { budgets: budgets.clone(), hold: NANO(10), ..a_spec() };
    store.create(&mut Driven::accept(ids.run_id(at), spec)).await.unwrap();
    let kept = monthly.from.after(SUMS_KEPT);
    store.runs.remove_ended(kept, Duration::ZERO, 10).await.unwrap();
    assert_eq!(totals(&store.accounts.charges(&budgets).await.unwrap()), [10, 10]);
    store.runs.remove_ended(Timestamp::from_unix_ms(kept.unix_ms() + 1), Duration::ZERO, 10).await.unwrap();
    assert_eq!(totals(&store.accounts.charges(&budgets).await.unwrap()), [0, 10]);
}

/// Neither sum becomes negative.
pub async fn an_operator_corrects_a_sum(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), Some(100))]).await, SeededIds::new(1));
    let budget = a_budget(tenants(), None).at(TestClock::START);
    store.create(&mut a_run(&ids, &[tenants()], 60)).await.unwrap();
    let charge = |spent, reserved| Charge { spent: NANO(spent), reserved: NANO(reserved) };
    assert_eq!(store.accounts.correct_sum(&budget, 50, -20).await.unwrap(), charge(50, 40));
    store.create(&mut a_run(&ids, &[tenants()], 11)).await.unwrap_err();
    assert_eq!(store.accounts.correct_sum(&budget, -70, -20).await.unwrap(), charge(0, 20));
    assert_eq!(store.create(&mut a_run(&ids, &[tenants()], 80)).await, Ok(Appended::New));
    // Also of a budget without charges.
    let unused = a_budget(keys(), None).at(TestClock::START);
    assert_eq!(store.accounts.correct_sum(&unused, 5, -5).await.unwrap(), charge(5, 0));
}

/// A run's booking must neither overflow a sum nor refuse the bookings of other runs.
pub async fn absurd_amounts_never_refuse_a_commit(store: AccountsFixture) {
    let (store, ids) = (store.with(&[(tenants(), None), (keys(), Some(u64::MAX))]).await, SeededIds::new(1));
    let most = i64::MAX.unsigned_abs();
    for hold in [u64::MAX, u64::MAX, 5] {
        assert_eq!(store.create(&mut a_run(&ids, &[tenants()], hold)).await, Ok(Appended::New));
        assert_eq!(store.sum(&tenants()).await, (0, most));
    }
    let mut bounded = a_run(&ids, &[keys()], u64::MAX);
    assert_eq!(store.create(&mut bounded).await, Ok(Appended::New));
    assert_eq!(store.create(&mut a_run(&ids, &[keys()], 5)).await.unwrap_err().payer, keys());
    bounded.drive(&Command::Cancel);
    assert_eq!(store.commit(&mut bounded).await, Ok(()));
    assert_eq!(store.sum(&keys()).await, (0, 0));
}

/// Spent and reserved together, in billionths of a dollar.
fn totals(charges: &[Charge]) -> Vec<u64> {
    charges.iter().map(|charge| charge.total().nano_usd()).collect()
}
