//! The conformance suite of stores that keep objects. [`objects_suite!`](crate::objects_suite) makes a test of each requirement.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::ids::TenantId;
use podium_ports::objects::{Object, Objects};
use podium_ports::store::RunStore;

use crate::builders::a_tenant;
use crate::clock::TestClock;

/// An empty store under test.
pub struct ObjectsFixture {
    /// A handle on its objects.
    pub first: Arc<dyn Objects>,
    /// A second handle, as another process would have it.
    pub second: Arc<dyn Objects>,
    /// Its runs.
    pub runs: Arc<dyn RunStore>,
    /// Objects that must live as long as the test.
    pub keep: Box<dyn std::any::Any + Send>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`ObjectsFixture`].
#[macro_export]
macro_rules! objects_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::objects_suite! { @each [#[$attribute] $fixture]
            all_handles_have_the_same_secret
            an_object_belongs_to_its_tenant
            one_of_concurrent_changes_is_stored
            a_removed_object_may_be_stored_anew
            old_objects_are_removed_with_old_runs
        }
    };
    (@each [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::objects::$name($fixture.await).await;
        })+
    };
}

/// All processes read one secret, which is not made of equal bytes.
pub async fn all_handles_have_the_same_secret(f: ObjectsFixture) {
    let secret = f.first.secret().await.unwrap();
    assert_eq!(f.second.secret().await.unwrap(), secret);
    assert!(secret.iter().any(|byte| *byte != secret[0]));
}

/// Another tenant finds, changes and removes nothing.
pub async fn an_object_belongs_to_its_tenant(f: ObjectsFixture) {
    let (tenant, other) = (a_tenant(), TenantId::new("other").unwrap());
    assert!(f.first.put_object(&tenant, "conv_1", 0, "{\"a\":1}", TestClock::START).await.unwrap());
    let expected = Object { version: 1, body: "{\"a\":1}".to_owned() };
    assert_eq!(f.second.find_object(&tenant, "conv_1").await.unwrap(), Some(expected.clone()));
    assert_eq!(f.second.find_object(&other, "conv_1").await.unwrap(), None);
    assert!(!f.second.put_object(&other, "conv_1", 1, "{}", TestClock::START).await.unwrap());
    assert!(!f.second.remove_object(&other, "conv_1").await.unwrap());
    assert_eq!(f.first.find_object(&tenant, "conv_1").await.unwrap(), Some(expected));
}

/// Of writers that replace the same version, one succeeds.
pub async fn one_of_concurrent_changes_is_stored(f: ObjectsFixture) {
    let tenant = a_tenant();
    for after in 0..3 {
        let bodies: Vec<_> = (0..6).map(|number| format!("{{\"n\":{number}}}")).collect();
        let puts = bodies.iter().enumerate().map(|(number, body)| {
            let store = if number % 2 == 0 { &f.first } else { &f.second };
            store.put_object(&tenant, "conv_1", after, body, TestClock::START)
        });
        let stored = join_all(puts).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let winners: Vec<_> = stored.iter().zip(&bodies).filter(|(is_stored, _)| **is_stored).collect();
        assert_eq!(winners.len(), 1, "version {after}");
        let found = f.first.find_object(&tenant, "conv_1").await.unwrap().unwrap();
        assert_eq!((found.version, &found.body), (after + 1, winners[0].1));
    }
}

/// A removal is final, and frees the id.
pub async fn a_removed_object_may_be_stored_anew(f: ObjectsFixture) {
    let tenant = a_tenant();
    assert!(!f.first.remove_object(&tenant, "conv_1").await.unwrap());
    assert!(f.first.put_object(&tenant, "conv_1", 0, "{}", TestClock::START).await.unwrap());
    assert!(!f.first.put_object(&tenant, "conv_1", 0, "{}", TestClock::START).await.unwrap());
    assert!(f.second.remove_object(&tenant, "conv_1").await.unwrap());
    assert!(!f.first.put_object(&tenant, "conv_1", 1, "{}", TestClock::START).await.unwrap());
    assert_eq!(f.first.find_object(&tenant, "conv_1").await.unwrap(), None);
    assert!(f.first.put_object(&tenant, "conv_1", 0, "{}", TestClock::START).await.unwrap());
}

/// An object lives as long as an ended run, counted from its last change.
pub async fn old_objects_are_removed_with_old_runs(f: ObjectsFixture) {
    let (tenant, kept, hour) = (a_tenant(), Duration::from_hours(24), Duration::from_hours(1));
    let later = TestClock::START.after(hour);
    for id in ["old", "changed"] {
        assert!(f.first.put_object(&tenant, id, 0, "{}", TestClock::START).await.unwrap());
    }
    assert!(f.first.put_object(&tenant, "changed", 1, "{}", later).await.unwrap());
    let has = async |id: &str| f.second.find_object(&tenant, id).await.unwrap().is_some();
    f.runs.remove_ended(TestClock::START.after(kept.checked_sub(hour).unwrap()), kept, 10).await.unwrap();
    assert!(has("old").await && has("changed").await);
    f.runs.remove_ended(TestClock::START.after(kept), kept, 10).await.unwrap();
    assert!(!has("old").await && has("changed").await);
    f.runs.remove_ended(later.after(kept), kept, 10).await.unwrap();
    assert!(!has("changed").await);
}
