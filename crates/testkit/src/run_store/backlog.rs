//! Tasks that wait in the store until a lane has capacity, and their order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::ids::{RunId, StepIndex, TenantId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{Command, RunSpec, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::clock::Ids;
use podium_ports::queue::Lane;
use podium_ports::store::{Due, PublishBy, ReadyTask};

use super::StoreFixture;
use crate::builders::{Driven, a_plan, a_spec};
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const LANE: Lane = Lane::Plan(Tier::Ultra);
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_mins(1);
/// The length of the backlog that another tenant must not wait behind.
const FLOOD: usize = 1_000;

const fn step(step: u16) -> TaskRef {
    TaskRef::Step { round: 0, step: StepIndex::new(step) }
}

/// A run whose tasks go to the backlog, accepted `late` after the others.
fn left(ids: &SeededIds, tenant: &str, late: Duration) -> Driven {
    let spec = a_spec();
    let accepted_at = spec.accepted_at.after(late);
    let spec = RunSpec { tenant: TenantId::new(tenant).expect("it is a name"), accepted_at, ..spec };
    Driven { publish_by: PublishBy::Dispatcher, ..Driven::accept(ids.run_id(accepted_at), spec) }
}

impl StoreFixture {
    async fn must_create_all(&self, runs: &mut [Driven]) -> Vec<RunId> {
        let commits: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
        self.first.append(&commits).await.expect("the store creates");
        runs.iter().map(Driven::id).collect()
    }

    async fn take(&self, lane: &Lane, now: Timestamp, limit: u32) -> Vec<(RunId, TaskRef)> {
        self.first.take(lane, now, now.after(MINUTE), limit).await.expect("the store gives")
    }

    /// Takes plan tasks and returns their runs.
    async fn take_plans(&self, now: Timestamp, limit: u32) -> Vec<RunId> {
        let taken = self.take(&LANE, now, limit).await;
        assert!(taken.iter().all(|(_, task)| *task == PLAN), "{taken:?}");
        taken.into_iter().map(|(run, _)| run).collect()
    }

    async fn backlogs(&self, now: Timestamp) -> Vec<Lane> {
        let Due { ready, backlogs, .. } = self.first.due(now, now, 100, &[]).await.expect("the store looks");
        assert_eq!(ready, [], "nothing was published");
        backlogs
    }
}

pub(crate) async fn a_task_of_the_backlog_is_taken_once(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = left(&ids, "acme", Duration::ZERO);
    let (id, now) = (run.id(), run.now);
    assert_eq!(store.backlogs(now).await, []);
    store.must_create(run.commit()).await;
    assert_eq!(store.backlogs(now).await, [LANE], "at once, without any grace");
    assert_eq!(store.take(&LANE, now, 0).await, []);
    assert_eq!(store.take(&LANE, now, 10).await, [(id, PLAN)]);
    assert_eq!(store.second.take(&LANE, now, now.after(MINUTE), 10).await.unwrap(), []);
    assert_eq!(store.backlogs(now).await, []);

    run.plan(a_plan(), &ids);
    store.must_commit(run.commit()).await;
    let [quick, careful] =
        [Lane::of(&run.run, step(0), &crate::a_pool()), Lane::of(&run.run, step(1), &crate::a_pool())];
    assert_eq!(store.backlogs(now).await, [quick.clone(), careful.clone()]);
    assert_eq!(store.take(&careful, now, 10).await, [(id, step(1))]);
    // A commit to another task of the run changes neither.
    run.step(0, "done", &ids);
    store.must_commit(run.commit()).await;
    assert_eq!(store.take(&careful, now, 10).await, []);
    assert_eq!(store.backlogs(now).await, []);
}

pub(crate) async fn a_taken_task_is_due_when_it_was_not_claimed_in_time(store: &StoreFixture) {
    let mut run = left(&SeededIds::new(1), "acme", Duration::ZERO);
    let (id, now) = (run.id(), run.now);
    store.must_create(run.commit()).await;
    let until = now.after(MINUTE);
    assert_eq!(store.take(&LANE, now, 1).await, [(id, PLAN)]);
    let just_before = Timestamp::from_unix_ms(until.unix_ms() - 1);
    assert_eq!(store.first.due(just_before, until, 10, &[]).await.unwrap(), Due::default());
    let again = store.first.due(until, until.after(MINUTE), 10, &[]).await.unwrap();
    assert_eq!(again.ready, [ReadyTask { run: id, task: PLAN, lane: LANE }]);
    assert_eq!(store.first.due(until, until, 10, &[]).await.unwrap(), Due::default());
}

pub(crate) async fn returned_tasks_can_be_taken_again(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = [(); 3].map(|()| left(&ids, "acme", Duration::ZERO));
    let now = runs[0].now;
    let mut given = store.must_create_all(&mut runs).await;
    let mut taken = store.take_plans(now, 10).await;
    taken.sort_unstable();
    given.sort_unstable();
    assert_eq!(taken, given);
    // One was claimed meanwhile, one is unknown, one is returned twice.
    let claimed = runs.iter_mut().find(|run| run.id() == given[1]).expect("it is one of them");
    claimed.claim(PLAN, &ids);
    store.must_commit(claimed.commit()).await;
    let unknown = (ids.run_id(now), PLAN);
    let back = [(given[2], PLAN), (given[0], PLAN), unknown, (given[1], PLAN), (given[2], PLAN)];
    store.second.put_back(&back).await.unwrap();
    store.first.put_back(&[]).await.unwrap();
    let mut again = store.take_plans(now, 10).await;
    again.sort_unstable();
    assert_eq!(again, [given[0], given[2]]);

    // The same holds for a task that its writer should have published.
    let mut run = Driven::accepted(&ids);
    store.must_create(run.commit()).await;
    assert_eq!(store.take_plans(now, 10).await, []);
    store.first.put_back(&[(run.id(), PLAN)]).await.unwrap();
    assert_eq!(store.take_plans(now, 10).await, [run.id()]);
}

pub(crate) async fn a_retry_in_the_backlog_is_taken_after_its_time(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut run = left(&ids, "acme", Duration::ZERO);
    store.must_create(run.commit()).await;
    let claim = run.claim(PLAN, &ids);
    store.must_commit(run.commit()).await;
    let retry_at = run.now.after(MINUTE);
    run.fail(PLAN, claim, Some(retry_at));
    store.must_commit(run.commit()).await;
    let just_before = Timestamp::from_unix_ms(retry_at.unix_ms() - 1);
    assert_eq!(store.take_plans(just_before, 10).await, []);
    assert_eq!(store.take_plans(retry_at, 10).await, [run.id()]);
}

pub(crate) async fn only_tasks_of_the_backlog_are_taken(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = [(); 4].map(|()| left(&ids, "acme", Duration::ZERO));
    let now = runs[0].now;
    runs[3].publish_by = PublishBy::Writer;
    store.must_create_all(&mut runs).await;
    let [waiting, claimed, cancelled, _told] = &mut runs;
    claimed.claim(PLAN, &ids);
    cancelled.drive(&Command::Cancel);
    for run in [claimed, cancelled] {
        store.must_commit(run.commit()).await;
    }
    assert_eq!(store.take_plans(now, 10).await, [waiting.id()]);
}

pub(crate) async fn lanes_have_backlogs_of_their_own(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let ultra: Vec<_> = (0..20).map(|_| left(&ids, "acme", Duration::ZERO)).collect();
    let mini: Vec<_> = (0..3)
        .map(|_| {
            let mut spec = a_spec();
            spec.request.policy = Policy::new(Tier::Mini, Effort::Medium);
            let run = Driven::accept(ids.run_id(spec.accepted_at), spec);
            Driven { publish_by: PublishBy::Dispatcher, ..run }
        })
        .collect();
    let now = ultra[0].now;
    let (mut ultra, mut mini) = (ultra, mini);
    store.must_create_all(&mut ultra).await;
    let minis: BTreeSet<_> = store.must_create_all(&mut mini).await.into_iter().collect();
    let mut backlogs = store.backlogs(now).await;
    backlogs.sort();
    assert_eq!(backlogs, Lane::plans());
    let taken = store.take(&Lane::Plan(Tier::Mini), now, 10).await;
    assert_eq!(taken.into_iter().map(|(run, _)| run).collect::<BTreeSet<_>>(), minis);
    assert_eq!(store.take(&Lane::Plan(Tier::Mini), now, 10).await, []);
    assert_eq!(store.take_plans(now, 100).await.len(), 20);
}

pub(crate) async fn the_oldest_task_of_a_tenant_comes_first(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs: Vec<_> = [3, 1, 4, 0, 2].map(|late| left(&ids, "acme", late * MILLISECOND)).into();
    store.must_create_all(&mut runs).await;
    runs.sort_by_key(|run| run.now);
    let oldest: Vec<_> = runs.iter().map(Driven::id).collect();
    let now = runs[4].now;
    assert_eq!(store.take_plans(now, 3).await, oldest[..3]);
    assert_eq!(store.take_plans(now, 3).await, oldest[3..]);
}

pub(crate) async fn a_quiet_tenant_goes_before_a_thousand_tasks_of_another(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut flood: Vec<_> = (0..FLOOD).map(|_| left(&ids, "flood", Duration::ZERO)).collect();
    store.must_create_all(&mut flood).await;
    let mut quiet = left(&ids, "quiet", MINUTE);
    store.must_create(quiet.commit()).await;
    // Neither tenant has outstanding tasks: the older task goes first, then each in turn.
    let first = store.take_plans(quiet.now, 2).await;
    assert_eq!(first[1], quiet.id());

    // Now the flood has many outstanding tasks, so the next one of the quiet tenant is first.
    assert_eq!(store.take_plans(quiet.now, 50).await.len(), 50);
    let mut late = left(&ids, "quiet", 2 * MINUTE);
    store.must_create(late.commit()).await;
    assert_eq!(store.take_plans(late.now, 1).await, [late.id()]);
}

/// A tenant without outstanding tasks catches up with one that has many, published or running.
pub(crate) async fn tenants_get_equal_shares_of_outstanding_tasks(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .flat_map(|tenant| (0..20).map(move |_| tenant))
        .map(|tenant| left(&ids, tenant, Duration::ZERO))
        .collect();
    let now = runs[0].now;
    store.must_create_all(&mut runs).await;
    // Tenant a has four running, b one published: each further task goes to the tenant with the fewest.
    for run in &mut runs[..4] {
        run.claim(PLAN, &ids);
        store.must_commit(run.commit()).await;
    }
    let mut told = left(&ids, "b", Duration::ZERO);
    told.publish_by = PublishBy::Writer;
    store.must_create(told.commit()).await;
    let tenant_of = |id: &RunId| {
        let run = runs.iter().find(|run| run.id() == *id).expect("it is one of them");
        run.run.spec().tenant.as_str().to_owned()
    };
    let counts = |taken: &[RunId]| {
        ["a", "b", "c"].map(|tenant| taken.iter().filter(|id| tenant_of(id) == tenant).count())
    };
    let taken = store.take_plans(now, 7).await;
    assert_eq!(counts(&taken), [0, 3, 4], "all have four now");
    assert_eq!(tenant_of(&taken[0]), "c", "the emptiest comes first");
    assert_eq!(counts(&store.take_plans(now, 30).await), [10, 10, 10]);
    // Tasks without competitors are not held back.
    assert_eq!(counts(&store.take_plans(now, 100).await), [6, 7, 6]);
}

pub(crate) async fn dispatchers_never_take_the_same_task(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let tenants = ["a", "b", "c", "d"];
    let mut runs: Vec<_> = (0..80).map(|index| left(&ids, tenants[index % 4], Duration::ZERO)).collect();
    let now = runs[0].now;
    let all: BTreeSet<_> = store.must_create_all(&mut runs).await.into_iter().collect();
    let mut taken = Vec::new();
    // Concurrent dispatchers may each get fewer tasks, but not all of them none.
    while taken.len() < all.len() {
        let takers = (0..8).map(|index| {
            let handle = Arc::clone(if index % 2 == 0 { &store.first } else { &store.second });
            async move { handle.take(&LANE, now, now.after(MINUTE), 10).await.unwrap() }
        });
        let round: Vec<_> = join_all(takers).await.into_iter().flatten().collect();
        assert!(!round.is_empty(), "{} are left", all.len() - taken.len());
        taken.extend(round.into_iter().map(|(run, _)| run));
    }
    assert_eq!(taken.len(), all.len(), "each is taken once");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), all);
}
