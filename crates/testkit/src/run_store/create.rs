//! Creating runs.

use podium_domain::ids::{RequestId, RunId, TenantId};
use podium_domain::run::RunSpec;
use podium_ports::clock::Ids;
use podium_ports::store::{Appended, RunFilter};

use super::StoreFixture;
use crate::builders::{Driven, a_spec, a_tenant};
use crate::clock::TestClock;
use crate::ids::SeededIds;

fn with_request_id(request_id: &str) -> RunSpec {
    RunSpec { request_id: Some(RequestId::new(request_id).expect("it is a request id")), ..a_spec() }
}

fn new_id(ids: &SeededIds) -> RunId {
    ids.run_id(TestClock::START)
}

pub(crate) async fn created_runs_are_loaded_unchanged(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = [Driven::accepted(&ids), Driven::accept(new_id(&ids), with_request_id("once"))];
    let commits: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    assert_eq!(store.first.append(&commits).await.unwrap(), [Ok(Appended::New), Ok(Appended::New)]);
    let loaded = store.first.load(&[runs[1].id(), runs[0].id()]).await.unwrap();
    assert_eq!(loaded, [Some(runs[1].run.clone()), Some(runs[0].run.clone())]);
    assert_eq!(store.events(runs[0].id()).await, commits[0].events);
}

pub(crate) async fn a_used_request_id_gives_the_existing_run_and_leaves_nothing(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let [mut there, mut late] = [(); 2].map(|()| Driven::accept(new_id(&ids), with_request_id("once")));
    store.must_create(there.commit()).await;
    assert_eq!(store.create(late.commit()).await, Appended::Existing(there.id()));
    assert_eq!(store.load(late.id()).await, None);
    assert_eq!(store.events(late.id()).await, []);
    assert_eq!(store.first.list(&a_tenant(), &RunFilter::default(), None, 10).await.unwrap().len(), 1);
    let due =
        store.first.due(there.run.spec().deadline_at, there.run.spec().deadline_at, 10, &[]).await.unwrap();
    assert_eq!(due.overdue, [there.id()]);
    assert!(due.ready.iter().all(|ready| ready.run == there.id()), "{due:?}");
}

pub(crate) async fn tenants_do_not_share_request_ids(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let other = RunSpec { tenant: TenantId::new("other").expect("it is a name"), ..with_request_id("once") };
    store.must_create(Driven::accept(new_id(&ids), with_request_id("once")).commit()).await;
    store.must_create(Driven::accept(new_id(&ids), other).commit()).await;
    // Without a request id, runs are independent.
    store.must_create(Driven::accepted(&ids).commit()).await;
    store.must_create(Driven::accepted(&ids).commit()).await;
}

/// A caller that lost the reply repeats the call, perhaps after others have continued the run.
pub(crate) async fn repeating_a_create_changes_nothing(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    for spec in [a_spec(), with_request_id("once")] {
        let mut run = Driven::accept(new_id(&ids), spec);
        let create = run.commit();
        store.must_create(create.clone()).await;
        run.claim(podium_domain::run::TaskRef::Plan { round: 0 }, &ids);
        store.must_commit(run.commit()).await;
        assert_eq!(store.create(create).await, Appended::Already);
        assert_eq!(store.load(run.id()).await, Some(run.run));
    }
}

pub(crate) async fn creates_of_one_batch_share_a_request_id(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = [(); 2].map(|()| Driven::accept(new_id(&ids), with_request_id("once")));
    let commits: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    let created = store.first.append(&commits).await.unwrap();
    assert_eq!(created, [Ok(Appended::New), Ok(Appended::Existing(runs[0].id()))]);
    assert_eq!(store.load(runs[1].id()).await, None);
}
