//! The text so far, and how live pieces continue it.

use podium_ports::clock::Ids;
use podium_ports::live::Signal;

use super::{Scene, committed, frame};

/// Larger than a message of any transport.
const LONG_BYTES: usize = 3 << 19;

fn long_text() -> String {
    let mut text: String = (0_u32..).map(|n| format!("{n} é\n\u{1}")).take(LONG_BYTES / 8).collect();
    while text.len() < LONG_BYTES {
        text.push('x');
    }
    text
}

pub(crate) async fn a_late_watcher_gets_the_text_so_far_and_then_the_rest(scene: &Scene) {
    let [left, right] = [scene.ids.claim_id(), scene.ids.claim_id()];
    for (step, claim, offset, text) in [(0, left, 0, "ab"), (1, right, 0, "é"), (0, left, 2, "c")] {
        scene.say(frame(step, claim, offset, text)).await;
    }
    for mut watcher in [scene.watch().await, scene.watch_elsewhere().await] {
        assert_eq!(watcher.text_of(left, 3).await, "abc");
        assert_eq!(watcher.text_of(right, 2).await, "é");
    }
    let (mut here, mut there) = (scene.watch().await, scene.watch_elsewhere().await);
    scene.say(frame(0, left, 3, "d")).await;
    for watcher in [&mut here, &mut there] {
        assert_eq!(watcher.text_of(left, 4).await, "abcd");
        assert_eq!(watcher.text_of(right, 2).await, "é");
    }
}

pub(crate) async fn text_is_gathered_from_all_processes(scene: &Scene) {
    let [here, there] = [scene.ids.claim_id(), scene.ids.claim_id()];
    scene.say(frame(0, here, 0, "here")).await;
    scene.say_elsewhere(frame(1, there, 0, "there")).await;
    for mut watcher in [scene.watch().await, scene.watch_elsewhere().await] {
        assert_eq!(watcher.text_of(here, 4).await, "here");
        assert_eq!(watcher.text_of(there, 5).await, "there");
    }
}

pub(crate) async fn a_new_attempt_replaces_the_old_one(scene: &Scene) {
    let [old, new, later] = [scene.ids.claim_id(), scene.ids.claim_id(), scene.ids.claim_id()];
    scene.say(frame(0, old, 0, "old")).await;
    scene.say(frame(0, new, 0, "new")).await;
    scene.say(frame(0, old, 3, "er")).await;
    scene.say(frame(1, later, 0, "later")).await;
    let mut watcher = scene.watch().await;
    assert_eq!(watcher.text_of(new, 3).await, "new");
    watcher.text_of(later, 5).await;
    assert!(!watcher.texts.contains_key(&old), "{:?}", watcher.texts);
}

pub(crate) async fn repeated_pieces_count_once(scene: &Scene) {
    let claim = scene.ids.claim_id();
    for (offset, text) in [(0, "abc"), (0, "abc"), (2, "cd")] {
        scene.say(frame(0, claim, offset, text)).await;
    }
    assert_eq!(scene.watch().await.text_of(claim, 4).await, "abcd");
}

/// No text is better than text with a hole. A live watcher sees the hole from the offset.
pub(crate) async fn an_attempt_with_a_gap_is_unknown(scene: &Scene) {
    let [holed, whole] = [scene.ids.claim_id(), scene.ids.claim_id()];
    for (step, claim, offset, text) in [(0, holed, 0, "abc"), (0, holed, 7, "gh"), (1, whole, 0, "whole")] {
        scene.say(frame(step, claim, offset, text)).await;
    }
    let mut watcher = scene.watch().await;
    assert_eq!(watcher.text_of(whole, 5).await, "whole");
    scene.say(committed(9)).await;
    watcher.receive_until(&committed(9)).await;
    assert!(!watcher.texts.contains_key(&holed), "{:?}", watcher.texts);
}

pub(crate) async fn long_text_arrives_whole(scene: &Scene) {
    let (claim, text) = (scene.ids.claim_id(), long_text());
    let mut watcher = scene.watch_elsewhere().await;
    scene.say(frame(0, claim, 0, &text)).await;
    assert!(watcher.text_of(claim, text.len()).await == text);

    scene.say(Signal::Planning { round: 0, text: text.clone() }).await;
    let mut heard = String::new();
    while heard.len() < text.len() {
        if let Signal::Planning { round: 0, text } = watcher.receive().await {
            heard.push_str(&text);
        }
    }
    assert!(heard == text);
}

pub(crate) async fn long_text_so_far_arrives_whole(scene: &Scene) {
    let (claim, text) = (scene.ids.claim_id(), long_text());
    scene.say(frame(0, claim, 0, &text)).await;
    let mut watcher = scene.watch_elsewhere().await;
    scene.say(frame(0, claim, text.len() as u64, "end")).await;
    assert!(watcher.text_of(claim, text.len() + 3).await.ends_with("end"));
}
