//! The conformance suite of stores that keep ratings. [`ratings_suite!`](crate::ratings_suite) makes a test of each requirement.

use std::time::Duration;

use podium_domain::ids::{RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::run::{Command, RunSpec};
use podium_domain::time::Timestamp;
use podium_ports::clock::Ids as _;
use podium_ports::store::RatedRun;

use crate::builders::{Driven, a_spec, a_tenant};
use crate::clock::TestClock;
use crate::ids::SeededIds;
use crate::run_store::StoreFixture;

/// Makes a test of each requirement. The expression is a future of a fresh [`StoreFixture`].
///
/// ```ignore
/// podium_testkit::ratings_suite! { #[tokio::test] fixture() }
/// ```
#[macro_export]
macro_rules! ratings_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::ratings_suite! { @each [#[$attribute] $fixture]
            a_rating_replaces_the_previous_one
            only_an_ended_run_of_the_tenant_is_rated
            rated_runs_are_ordered_bounded_and_paged
            removing_a_run_removes_its_rating
        }
    };
    (@each [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::ratings::$name($fixture.await).await;
        })+
    };
}

const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(u64::MAX);
const LATER: Timestamp = Timestamp::from_unix_ms(9_000_000_000_000);

fn rating(score: f64, comment: Option<&str>) -> Rating {
    Rating::new(score, comment.map(ToOwned::to_owned)).unwrap()
}

/// A run of a tenant that was cancelled.
async fn an_ended(store: &StoreFixture, tenant: &TenantId, ids: &SeededIds) -> Driven {
    let spec = RunSpec { tenant: tenant.clone(), ..a_spec() };
    let mut run = Driven::accept(ids.run_id(spec.accepted_at), spec);
    store.first.append(&[run.commit()]).await.unwrap();
    run.drive(&Command::Cancel);
    store.first.append(&[run.commit()]).await.unwrap().remove(0).unwrap();
    run
}

async fn rated(store: &StoreFixture) -> Vec<RatedRun> {
    store.second.rated(&a_tenant(), None, RunId::least_at(END_OF_TIME), 100).await.unwrap()
}

/// The latest rating counts, and it can be repeated.
pub async fn a_rating_replaces_the_previous_one(store: StoreFixture) {
    let run = an_ended(&store, &a_tenant(), &SeededIds::new(1)).await.id();
    let rate = async |rating: &Rating, at| store.first.rate(&a_tenant(), run, rating, at).await.unwrap();
    assert!(rate(&rating(0.25, Some("ünsinnig")), TestClock::START).await);
    let first = RatedRun { run, rating: rating(0.25, Some("ünsinnig")), rated_at: TestClock::START };
    assert_eq!(rated(&store).await, [first]);
    for _ in 0..2 {
        assert!(rate(&rating(1.0, None), LATER).await);
        assert_eq!(rated(&store).await, [RatedRun { run, rating: rating(1.0, None), rated_at: LATER }]);
    }
}

/// Not an active run, another tenant's, or an unknown one.
pub async fn only_an_ended_run_of_the_tenant_is_rated(store: StoreFixture) {
    let (ids, other) = (SeededIds::new(1), TenantId::new("other").unwrap());
    let mut active = Driven::accepted(&ids);
    store.first.append(&[active.commit()]).await.unwrap();
    let others = an_ended(&store, &other, &ids).await.id();
    for run in [active.id(), others, ids.run_id(TestClock::START)] {
        assert!(!store.first.rate(&a_tenant(), run, &rating(1.0, None), LATER).await.unwrap());
    }
    assert!(store.first.rate(&other, others, &rating(0.0, None), LATER).await.unwrap());
    assert_eq!(rated(&store).await, []);
    let theirs = store.first.rated(&other, None, RunId::least_at(END_OF_TIME), 100).await.unwrap();
    assert_eq!(theirs.iter().map(|line| line.run).collect::<Vec<_>>(), [others]);
}

/// The bounds are exclusive.
pub async fn rated_runs_are_ordered_bounded_and_paged(store: StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(an_ended(&store, &a_tenant(), &ids).await.id());
    }
    runs.sort_unstable();
    let unrated = an_ended(&store, &a_tenant(), &ids).await.id();
    for run in runs.iter().rev() {
        assert!(store.first.rate(&a_tenant(), *run, &rating(0.5, None), LATER).await.unwrap());
    }
    let all = RunId::least_at(END_OF_TIME);
    for (after, before, limit, expected) in [
        (None, all, 100, &runs[..]),
        (None, all, 2, &runs[..2]),
        (Some(runs[1]), all, 2, &runs[2..]),
        (Some(runs[0]), runs[3], 100, &runs[1..3]),
        (Some(runs[3]), all, 100, &[]),
    ] {
        let page = store.second.rated(&a_tenant(), after, before, limit).await.unwrap();
        let page: Vec<_> = page.into_iter().map(|line| line.run).collect();
        assert_eq!(page, expected);
        assert!(!page.contains(&unrated));
    }
}

/// It cannot be rated any more.
pub async fn removing_a_run_removes_its_rating(store: StoreFixture) {
    let run = an_ended(&store, &a_tenant(), &SeededIds::new(1)).await;
    assert!(store.first.rate(&a_tenant(), run.id(), &rating(1.0, None), LATER).await.unwrap());
    assert_eq!(store.first.remove_ended(run.now, Duration::ZERO, 100).await.unwrap(), 1);
    assert_eq!(rated(&store).await, []);
    assert!(!store.first.rate(&a_tenant(), run.id(), &rating(1.0, None), LATER).await.unwrap());
    assert_eq!(rated(&store).await, []);
}
