//! Which watchers receive which signals.

use futures::{FutureExt, StreamExt};
use podium_ports::clock::Ids;
use podium_ports::live::Signal;
use tokio::time::timeout;

use super::{SOON, Scene, Watcher, committed, frame};
use crate::clock::TestClock;

pub(crate) async fn an_early_watcher_gets_all_signals_in_order(scene: &Scene) {
    let watchers = [scene.watch().await, scene.watch_elsewhere().await];
    let claim = scene.ids.claim_id();
    let said = [
        committed(2),
        Signal::Planning { round: 0, text: "Hm.".to_owned() },
        frame(0, claim, 0, "ab"),
        frame(0, claim, 2, "c"),
        Signal::Missed,
        committed(3),
    ];
    for signal in &said {
        scene.say(signal.clone()).await;
    }
    for mut watcher in watchers {
        for signal in &said {
            assert_eq!(watcher.receive().await, *signal);
        }
    }
}

pub(crate) async fn every_watcher_gets_the_signals_of_its_run_only(scene: &Scene) {
    let other = scene.ids.run_id(TestClock::START);
    let mut stranger = Watcher::new(scene.fixture.live.subscribe(other).await.unwrap());
    let mut watchers = [scene.watch().await, scene.watch().await, scene.watch_elsewhere().await];
    scene.say(committed(2)).await;
    scene.say(frame(0, scene.ids.claim_id(), 0, "a")).await;
    for watcher in &mut watchers {
        assert_eq!(watcher.receive().await, committed(2));
        assert!(matches!(watcher.receive().await, Signal::Frame(_)));
    }
    scene.fixture.live.publish(other, committed(7)).await.unwrap();
    assert_eq!(stranger.receive().await, committed(7), "it received nothing before");
}

pub(crate) async fn a_watcher_that_left_affects_no_other(scene: &Scene) {
    let mut stays = scene.watch().await;
    drop(scene.watch().await);
    drop(scene.watch_elsewhere().await);
    scene.say(committed(2)).await;
    assert_eq!(stays.receive().await, committed(2));
}

pub(crate) async fn publishing_waits_for_no_watcher(scene: &Scene) {
    let claim = scene.ids.claim_id();
    // This exceeds every bound: first without watchers, then with a watcher that does not read.
    for _ in 0..10 * scene.fixture.signals_max {
        scene.say(committed(1)).await;
    }
    let deaf = scene.watch().await;
    for offset in 0..10 * scene.fixture.signals_max as u64 {
        scene.say(frame(0, claim, offset, "x")).await;
    }
    drop(deaf);
}

pub(crate) async fn a_caller_that_waits_for_the_end_is_notified(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let mut other = here.subscribe_to_end(scene.ids.run_id(TestClock::START)).await.unwrap();
    let waiting = [here, here, elsewhere].map(|live| live.subscribe_to_end(scene.run));
    let waiting = futures::future::try_join_all(waiting).await.unwrap();
    scene.say(frame(0, scene.ids.claim_id(), 0, "a")).await;
    scene.say(committed(2)).await;
    let mut watcher = scene.watch().await;
    let waiting = futures::future::join_all(waiting.into_iter().map(async |mut signals| {
        assert_eq!(signals.next().now_or_never(), None, "the run has not ended");
        signals
    }));
    let waiting = waiting.await;
    scene.say(Signal::Ended { version: 3 }).await;
    for mut signals in waiting {
        timeout(SOON, signals.next()).await.expect("the end must come").expect("the signals go on");
    }
    while watcher.receive().await != (Signal::Ended { version: 3 }) {}
    assert_eq!(other.next().now_or_never(), None, "it is not the end of another run");
}

pub(crate) async fn a_stop_reaches_every_process(scene: &Scene) {
    let (here, elsewhere) = (&scene.fixture.live, &scene.fixture.elsewhere);
    let listening = [here.stops().await.unwrap(), elsewhere.stops().await.unwrap()];
    here.publish_stop(scene.run).await.unwrap();
    for mut stops in listening {
        assert_eq!(timeout(SOON, stops.next()).await.expect("it must come"), Some(scene.run));
    }
}
