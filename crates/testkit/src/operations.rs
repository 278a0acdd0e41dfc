//! The conformance suite of stores that operators look into. [`operations_suite!`](crate::operations_suite) makes a test of each
//! requirement.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_ports::accounts::Accounts;
use podium_ports::clock::Ids as _;
use podium_ports::operations::{OpenRunFilter, OpenState, Operations, OperatorAction, Stuck, StuckTask};
use podium_ports::store::{LaneLoad, PublishBy, RunStore};

use crate::builders::{Driven, a_spec, a_spec_with_tools, a_tenant, plan_of};
use crate::clock::TestClock;
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const MINUTE: Duration = Duration::from_mins(1);

/// An empty store under test.
pub struct OperationsFixture {
    /// Its runs.
    pub runs: Arc<dyn RunStore>,
    /// Its budgets.
    pub accounts: Arc<dyn Accounts>,
    /// The operators' view of it.
    pub operations: Arc<dyn Operations>,
    /// Objects that must live as long as the test.
    pub keep: Box<dyn std::any::Any + Send>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`OperationsFixture`].
#[macro_export]
macro_rules! operations_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::operations_suite! { @each [#[$attribute] $fixture]
            lanes_show_what_waits_and_what_runs
            a_task_that_waits_too_long_is_stuck
            a_claim_of_a_process_without_a_lease_is_abandoned
            open_runs_are_found_by_state_tenant_and_age
            reserved_sums_of_all_tenants_are_listed
            actions_are_recorded_in_their_order
        }
    };
    (@each [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::operations::$name($fixture.await).await;
        })+
    };
}

impl OperationsFixture {
    async fn write(&self, run: &mut Driven) {
        let written = self.runs.append(&[run.commit()]).await.unwrap();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }

    async fn loads(&self) -> Vec<LaneLoad> {
        self.runs.lane_loads().await.unwrap()
    }
}

/// An accepted run of `tenant`, whose tasks are published by `publish_by`.
fn a_run(ids: &SeededIds, tenant: &str, late: Duration, publish_by: PublishBy) -> Driven {
    let spec = a_spec();
    let accepted_at = spec.accepted_at.after(late);
    let spec = RunSpec { tenant: TenantId::new(tenant).unwrap(), accepted_at, ..spec };
    Driven { publish_by, ..Driven::accept(ids.run_id(accepted_at), spec) }
}

/// Every lane with open tasks is listed, with the age of its oldest ready one; lanes without work are not.
pub async fn lanes_show_what_waits_and_what_runs(f: OperationsFixture) {
    let ids = SeededIds::new(1);
    assert_eq!(f.loads().await, []);
    let mut waiting = a_run(&ids, "acme", MINUTE, PublishBy::Dispatcher);
    let mut published = a_run(&ids, "zeta", MINUTE * 2, PublishBy::Writer);
    let mut claimed = a_run(&ids, "acme", Duration::ZERO, PublishBy::Writer);
    for run in [&mut waiting, &mut published, &mut claimed] {
        f.write(run).await;
    }
    claimed.claim(PLAN, &ids);
    f.write(&mut claimed).await;
    let oldest = Some(TestClock::START.after(MINUTE));
    let expected = LaneLoad { lane: "ultra.plan".to_owned(), backlog: 1, published: 1, running: 1, oldest };
    assert_eq!(f.loads().await, [expected]);
    for run in [&mut waiting, &mut published, &mut claimed] {
        run.drive(&Command::Cancel);
        f.write(run).await;
    }
    assert_eq!(f.loads().await, []);
}

/// Its age counts from the time at which it could be claimed.
pub async fn a_task_that_waits_too_long_is_stuck(f: OperationsFixture) {
    let ids = SeededIds::new(1);
    let mut waiting = a_run(&ids, "acme", Duration::ZERO, PublishBy::Dispatcher);
    let mut published = a_run(&ids, "zeta", MINUTE, PublishBy::Writer);
    let mut later = a_run(&ids, "zeta", MINUTE * 3, PublishBy::Writer);
    for run in [&mut waiting, &mut published, &mut later] {
        f.write(run).await;
    }
    let before = TestClock::START.after(MINUTE * 2);
    let stuck = f.operations.stuck_tasks(before, 10).await.unwrap();
    let task = |run: &Driven, tenant: &str, state, since| StuckTask {
        run: run.id(),
        task: PLAN.to_string(),
        tenant: TenantId::new(tenant).unwrap(),
        lane: "ultra.plan".to_owned(),
        state,
        since,
    };
    let first = task(&waiting, "acme", Stuck::InBacklog, TestClock::START);
    let second = task(&published, "zeta", Stuck::Published, TestClock::START.after(MINUTE));
    assert_eq!(stuck, [first.clone(), second]);
    assert_eq!(f.operations.stuck_tasks(before, 1).await.unwrap(), [first], "the oldest first");
}

/// A task whose process has a lease is not stuck, however long it runs.
pub async fn a_claim_of_a_process_without_a_lease_is_abandoned(f: OperationsFixture) {
    let ids = SeededIds::new(1);
    let process = ids.process_id();
    let mut run = a_run(&ids, "acme", Duration::ZERO, PublishBy::Writer);
    run.process = Some(process);
    f.write(&mut run).await;
    run.claim(PLAN, &ids);
    f.write(&mut run).await;
    let stuck = f.operations.stuck_tasks(TestClock::START.after(MINUTE), 10).await.unwrap();
    assert_eq!(stuck.iter().map(|task| task.state).collect::<Vec<_>>(), [Stuck::Abandoned]);
    // Stores with a clock of their own count from their time.
    let now = TestClock::START.after(MINUTE);
    f.runs.extend_lease(process, now, Duration::from_hours(1)).await.unwrap();
    assert_eq!(f.operations.stuck_tasks(now, 10).await.unwrap(), []);
}

/// Ended runs are not listed; the id of the last run continues a list.
pub async fn open_runs_are_found_by_state_tenant_and_age(f: OperationsFixture) {
    let ids = SeededIds::new(1);
    let mut active = a_run(&ids, "acme", Duration::ZERO, PublishBy::Writer);
    let mut young = a_run(&ids, "zeta", MINUTE * 5, PublishBy::Writer);
    let mut ended = a_run(&ids, "acme", Duration::ZERO, PublishBy::Writer);
    ended.drive(&Command::Cancel);
    let spec = a_spec_with_tools();
    let mut suspended = Driven::accept(ids.run_id(spec.accepted_at), spec);
    suspended.plan(plan_of(&[("quick", "look", &[])]), &ids);
    suspended.claim(TaskRef::Step { round: 0, step: podium_domain::ids::StepIndex::new(0) }, &ids);
    suspended.call(0, "look");
    for run in [&mut active, &mut young, &mut ended, &mut suspended] {
        f.write(run).await;
    }
    let find = async |filter: OpenRunFilter| {
        let found = f.operations.open_runs(&filter, None, 10).await.unwrap();
        found.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let sorted = |runs: &[&Driven]| {
        let mut ids: Vec<_> = runs.iter().map(|run| run.id()).collect();
        ids.sort_unstable();
        ids
    };
    let all = OpenRunFilter::default();
    assert_eq!(find(all.clone()).await, sorted(&[&active, &young, &suspended]));
    let state = |state| OpenRunFilter { state: Some(state), ..all.clone() };
    assert_eq!(find(state(OpenState::Suspended)).await, [suspended.id()]);
    assert_eq!(find(state(OpenState::Active)).await, sorted(&[&active, &young]));
    let zeta = OpenRunFilter { tenant: TenantId::new("zeta").ok(), ..all.clone() };
    assert_eq!(find(zeta).await, [young.id()]);
    let old = OpenRunFilter { accepted_before: Some(TestClock::START.after(MINUTE)), ..all.clone() };
    assert_eq!(find(old).await, sorted(&[&active, &suspended]));
    let first = f.operations.open_runs(&all, None, 1).await.unwrap();
    let rest = f.operations.open_runs(&all, Some(first[0].id), 10).await.unwrap();
    assert_eq!(rest.len(), 2);
    assert_eq!((first[0].accepted_at, first[0].model.as_str()), (TestClock::START, a_spec().model.as_str()));
}

/// With the sums of the period.
pub async fn reserved_sums_of_all_tenants_are_listed(f: OperationsFixture) {
    let budget = |name: &str| Budget {
        payer: Payer::Tenant(TenantId::new(name).unwrap()),
        tenant: TenantId::new(name).unwrap(),
        period: Period::Total,
        cap: None,
    };
    for (name, reserved) in [("acme", 3), ("free", 0), ("zeta", 5)] {
        let budget = budget(name);
        f.accounts.set_budget(&budget).await.unwrap();
        let of = budget.at(TestClock::START);
        f.accounts.correct_sum(&of, 7, reserved).await.unwrap();
    }
    let listed = f.operations.reservations(10).await.unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|held| (held.payer.as_str(), held.charge.spent.nano_usd(), held.charge.reserved.nano_usd()))
        .collect();
    assert_eq!(seen, [("tenant:acme", 7, 3), ("tenant:zeta", 7, 5)]);
    assert_eq!(f.operations.reservations(1).await.unwrap().len(), 1);
}

/// The newest is listed first, also if several have the same time.
pub async fn actions_are_recorded_in_their_order(f: OperationsFixture) {
    assert_eq!(f.operations.actions(10).await.unwrap(), []);
    let action = |action: &str| OperatorAction {
        at: TestClock::START,
        operator: "ann@desk".to_owned(),
        action: action.to_owned(),
        subject: a_tenant().to_string(),
        details: "\"quoted\" 'details'".to_owned(),
    };
    for name in ["cancel", "expire", "requeue"] {
        f.operations.record_action(&action(name)).await.unwrap();
    }
    assert_eq!(f.operations.actions(2).await.unwrap(), [action("requeue"), action("expire")]);
}
