//! Watchers that stop reading for a while.

use podium_ports::clock::Ids;
use podium_ports::live::Signal;

use super::{Scene, Watcher, committed, frame};

/// Publishes more than a watcher may lag, and waits until another watcher has received the last signal.
async fn publish_too_much(scene: &Scene) {
    let mut listens = scene.watch().await;
    for version in 1..=10 * scene.fixture.signals_max as u64 {
        scene.say(committed(version)).await;
        listens.receive_until(&committed(version)).await;
    }
}

async fn receive_missed(watcher: &mut Watcher, scene: &Scene) {
    let mut behind = 0;
    while watcher.receive().await != Signal::Missed {
        behind += 1;
        assert!(behind <= scene.fixture.signals_max, "a watcher is behind by more than it may be");
    }
}

pub(crate) async fn a_slow_watcher_is_notified_of_missed_signals_and_continues(scene: &Scene) {
    let mut slow = scene.watch().await;
    publish_too_much(scene).await;
    receive_missed(&mut slow, scene).await;
    scene.say(committed(u64::MAX)).await;
    slow.receive_until(&committed(u64::MAX)).await;
}

pub(crate) async fn a_new_subscription_after_missed_signals_is_complete(scene: &Scene) {
    let claim = scene.ids.claim_id();
    let mut slow = scene.watch().await;
    scene.say(frame(0, claim, 0, "said ")).await;
    publish_too_much(scene).await;
    scene.say(frame(0, claim, 5, "meanwhile")).await;
    receive_missed(&mut slow, scene).await;
    assert_eq!(scene.watch().await.text_of(claim, 14).await, "said meanwhile");
}
