//! Watchers that subscribe early, late, read slowly, or not at all.

use futures::FutureExt;
use podium_ports::clock::Ids;
use podium_testkit::{SeededIds, TestClock};

use super::*;

struct Scene {
    live: MemoryLive,
    ids: SeededIds,
    run: RunId,
}

fn a_scene(options: LiveOptions) -> Scene {
    let ids = SeededIds::new(1);
    Scene { live: MemoryLive::new(options), run: ids.run_id(TestClock::START), ids }
}

fn frame(step: u16, claim: ClaimId, offset: u64, text: &str) -> Signal {
    Signal::Frame(Frame { round: 0, step: StepIndex::new(step), claim, offset, text: text.to_owned() })
}

impl Scene {
    async fn say(&self, signal: Signal) {
        self.live.publish(self.run, signal).await.unwrap();
    }

    async fn watch(&self) -> Signals {
        self.live.subscribe(self.run).await.unwrap()
    }
}

/// The signals that are available without waiting.
fn heard(signals: &mut Signals) -> Vec<Signal> {
    std::iter::from_fn(|| signals.next().now_or_never().flatten()).collect()
}

#[tokio::test]
async fn an_early_watcher_gets_all_signals_in_order() {
    let scene = a_scene(LiveOptions::default());
    let (mut signals, claim) = (scene.watch().await, scene.ids.claim_id());
    let said = [
        Signal::Committed { version: 2 },
        Signal::Planning { round: 0, text: "Hm.".to_owned() },
        frame(0, claim, 0, "ab"),
        frame(0, claim, 2, "c"),
    ];
    for signal in &said {
        scene.say(signal.clone()).await;
    }
    assert_eq!(heard(&mut signals), said);
}

#[tokio::test]
async fn a_late_watcher_gets_the_text_so_far_and_then_the_rest() {
    let scene = a_scene(LiveOptions::default());
    let [left, right] = [scene.ids.claim_id(), scene.ids.claim_id()];
    for (step, claim, offset, text) in [(0, left, 0, "ab"), (1, right, 0, "é"), (0, left, 2, "c")] {
        scene.say(frame(step, claim, offset, text)).await;
    }
    let mut signals = scene.watch().await;
    scene.say(frame(0, left, 3, "d")).await;
    assert_eq!(
        heard(&mut signals),
        [frame(0, left, 0, "abc"), frame(1, right, 0, "é"), frame(0, left, 3, "d")]
    );
}

#[tokio::test]
async fn a_new_attempt_replaces_the_old_one() {
    let scene = a_scene(LiveOptions::default());
    let [old, new] = [scene.ids.claim_id(), scene.ids.claim_id()];
    scene.say(frame(0, old, 0, "old")).await;
    scene.say(frame(0, new, 0, "new")).await;
    scene.say(frame(0, old, 3, "er")).await;
    assert_eq!(heard(&mut scene.watch().await), [frame(0, new, 0, "new")]);
}

#[tokio::test]
async fn repeated_pieces_count_once_and_a_gap_drops_the_attempt() {
    let scene = a_scene(LiveOptions::default());
    let claim = scene.ids.claim_id();
    scene.say(frame(0, claim, 0, "abc")).await;
    scene.say(frame(0, claim, 0, "abc")).await;
    scene.say(frame(0, claim, 2, "cd")).await;
    assert_eq!(heard(&mut scene.watch().await), [frame(0, claim, 0, "abcd")]);
    scene.say(frame(0, claim, 7, "gh")).await;
    scene.say(frame(0, claim, 9, "ij")).await;
    assert_eq!(heard(&mut scene.watch().await), []);
    assert_eq!(scene.live.lock().text_bytes, 0);
}

#[tokio::test]
async fn a_slow_watcher_is_notified_of_missed_signals() {
    let scene = a_scene(LiveOptions { signals_max: 4, ..LiveOptions::default() });
    let mut signals = scene.watch().await;
    for version in 1..=10 {
        scene.say(Signal::Committed { version }).await;
    }
    let first = [1, 2, 3, 4].map(|version| Signal::Committed { version });
    assert_eq!(heard(&mut signals), [&first[..], &[Signal::Missed]].concat());
    scene.say(Signal::Committed { version: 11 }).await;
    assert_eq!(heard(&mut signals), [Signal::Committed { version: 11 }]);
}

#[tokio::test]
async fn signals_without_watchers_leave_no_state() {
    let scene = a_scene(LiveOptions::default());
    scene.say(Signal::Committed { version: 1 }).await;
    assert!(scene.live.lock().runs.is_empty());
    drop(scene.watch().await);
    scene.say(Signal::Committed { version: 2 }).await;
    assert!(scene.live.lock().runs.is_empty());
}

#[tokio::test]
async fn a_run_that_ends_leaves_no_text() {
    let scene = a_scene(LiveOptions::default());
    let (mut signals, claim) = (scene.watch().await, scene.ids.claim_id());
    let said = [frame(0, claim, 0, "text"), Signal::Ended { version: 2 }];
    for signal in &said {
        scene.say(signal.clone()).await;
    }
    assert_eq!(heard(&mut signals), said);
    assert_eq!(scene.live.lock().text_bytes, 0);
    assert_eq!(heard(&mut scene.watch().await), []);
    drop(signals);
    scene.say(frame(0, claim, 0, "text")).await;
    scene.say(Signal::Ended { version: 3 }).await;
    assert!(scene.live.lock().runs.is_empty());
}

#[tokio::test]
async fn the_text_of_silent_runs_is_dropped_beyond_the_bounds() {
    for options in [
        LiveOptions { runs_max: 3, ..LiveOptions::default() },
        LiveOptions { text_bytes_max: 3 * 4, ..LiveOptions::default() },
    ] {
        let scene = a_scene(options);
        let runs: Vec<_> = (0..10).map(|_| scene.ids.run_id(TestClock::START)).collect();
        let mut watched = scene.live.subscribe(runs[0]).await.unwrap();
        for run in &runs {
            scene.live.publish(*run, frame(0, scene.ids.claim_id(), 0, "text")).await.unwrap();
        }
        {
            let hot = scene.live.lock();
            let held =
                runs.iter().filter(|run| hot.runs.get(run).is_some_and(|entry| !entry.attempts.is_empty()));
            assert!(held.clone().count() >= 2 && held.clone().all(|run| runs[7..].contains(run)));
            assert_eq!(hot.text_bytes, 4 * held.count());
        }
        // The watcher still gets signals.
        scene.live.publish(runs[0], Signal::Committed { version: 2 }).await.unwrap();
        assert_eq!(heard(&mut watched).len(), 2);
    }
}

#[tokio::test]
async fn one_attempt_alone_cannot_exceed_the_bound() {
    let scene = a_scene(LiveOptions { text_bytes_max: 8, ..LiveOptions::default() });
    let claim = scene.ids.claim_id();
    scene.say(frame(0, claim, 0, "12345678")).await;
    assert_eq!(heard(&mut scene.watch().await).len(), 1);
    scene.say(frame(0, claim, 8, "9")).await;
    assert_eq!(heard(&mut scene.watch().await), []);
    assert_eq!(scene.live.lock().text_bytes, 0);
}
