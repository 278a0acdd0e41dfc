//! Watchers that do not listen for a while.

use podium_ports::clock::Ids;
use podium_ports::live::Signal;

use super::{Scene, Watcher, committed, frame};

/// Says more than a watcher may be behind, and waits until another one has heard the last of it.
async fn say_too_much(scene: &Scene) {
    let mut listens = scene.watch().await;
    for version in 1..=10 * scene.fixture.signals_max as u64 {
        scene.say(committed(version)).await;
        listens.hear_until(&committed(version)).await;
    }
}

async fn hear_that_something_was_missed(watcher: &mut Watcher, scene: &Scene) {
    let mut behind = 0;
    while watcher.hear().await != Signal::Missed {
        behind += 1;
        assert!(behind <= scene.fixture.signals_max, "a watcher is behind by more than it may be");
    }
}

pub(crate) async fn a_slow_watcher_is_told_that_it_missed_something_and_then_goes_on(scene: &Scene) {
    let mut slow = scene.watch().await;
    say_too_much(scene).await;
    hear_that_something_was_missed(&mut slow, scene).await;
    scene.say(committed(u64::MAX)).await;
    slow.hear_until(&committed(u64::MAX)).await;
}

pub(crate) async fn who_subscribes_again_after_missing_something_has_everything(scene: &Scene) {
    let claim = scene.ids.claim_id();
    let mut slow = scene.watch().await;
    scene.say(frame(0, claim, 0, "said ")).await;
    say_too_much(scene).await;
    scene.say(frame(0, claim, 5, "meanwhile")).await;
    hear_that_something_was_missed(&mut slow, scene).await;
    assert_eq!(scene.watch().await.text_of(claim, 14).await, "said meanwhile");
}
