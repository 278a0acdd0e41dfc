//! Tests of the published messages on a real server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use podium_domain::ids::{ClaimId, StepIndex};
use podium_harness::Nats;
use podium_ports::clock::Ids;
use podium_testkit::{SeededIds, TestClock};
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Writer {
    live: NatsLive,
    run: RunId,
    claim: ClaimId,
    text: String,
}

impl Writer {
    async fn connect(server: &Nats) -> Self {
        let live = connect(server).await;
        let ids = SeededIds::new(1);
        Self { live, run: ids.run_id(TestClock::START), claim: ids.claim_id(), text: String::new() }
    }

    async fn write(&mut self, text: &str) {
        let (step, offset) = (StepIndex::new(0), self.text.len() as u64);
        let frame = Frame { round: 0, step, claim: self.claim, offset, text: text.to_owned() };
        self.text.push_str(text);
        self.live.publish(self.run, Signal::Frame(frame)).await.unwrap();
    }

    /// Writes until the run is known to have no watchers.
    async fn until_silent(&mut self) {
        while !self.live.shared.lock_pace().is_silent(Channel::Main.of(self.run)) {
            self.write(".").await;
            self.live.flush().await;
        }
    }

    /// Number of messages that the client has written.
    async fn messages(&self) -> u64 {
        self.live.flush().await;
        self.live.shared.link.client().statistics().out_messages.load(Ordering::Relaxed)
    }
}

async fn connect(server: &Nats) -> NatsLive {
    NatsLive::connect(&ConnectionOptions::new(server.url()), LiveOptions::default()).await.unwrap()
}

/// Reads until `length` bytes of text have arrived.
async fn read(signals: &mut Signals, length: usize) -> String {
    let mut text = String::new();
    read_on(signals, &mut text, length).await;
    text
}

/// Appends to `text` until it has `length` bytes.
async fn read_on(signals: &mut Signals, text: &mut String, length: usize) {
    while text.len() < length {
        if let Some(Signal::Frame(frame)) = signals.next().await {
            assert_eq!(frame.offset, text.len() as u64);
            text.push_str(&frame.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwatched_text_is_buffered_for_a_late_watcher() {
    let server = Nats::start().await.unwrap();
    let (mut writer, elsewhere) = (Writer::connect(&server).await, connect(&server).await);
    timeout(PATIENCE, writer.until_silent()).await.unwrap();
    let before = writer.messages().await;
    for _ in 0..1_000 {
        writer.write("word ").await;
    }
    assert_eq!(writer.messages().await, before);
    let mut signals = elsewhere.subscribe(writer.run).await.unwrap();
    for _ in 0..10 {
        writer.write("more ").await;
    }
    let text = timeout(PATIENCE, read(&mut signals, writer.text.len())).await.unwrap();
    assert_eq!(text, writer.text);
    drop(signals);
    timeout(PATIENCE, writer.until_silent()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_text_is_published_completely_in_few_messages() {
    let server = Nats::start().await.unwrap();
    let (mut writer, elsewhere) = (Writer::connect(&server).await, connect(&server).await);
    let mut signals = elsewhere.subscribe(writer.run).await.unwrap();
    let before = writer.messages().await;
    for _ in 0..1_000 {
        writer.write("word ").await;
    }
    let text = timeout(PATIENCE, read(&mut signals, writer.text.len())).await.unwrap();
    assert_eq!(text, writer.text);
    let messages = writer.messages().await - before;
    assert!(messages < 500, "{messages} messages for 1,000 pieces");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_of_the_answer_gets_no_text_of_other_steps() {
    let server = Nats::start().await.unwrap();
    let (mut writer, elsewhere) = (Writer::connect(&server).await, connect(&server).await);
    timeout(PATIENCE, writer.until_silent()).await.unwrap();
    let mut answer = elsewhere.subscribe_to_answer(writer.run).await.unwrap();
    // Later the writer sends no buffered text: the watcher has all of it.
    let mut text = timeout(PATIENCE, read(&mut answer, writer.text.len())).await.unwrap();
    let inner = SeededIds::new(2).claim_id();
    let piece = |offset: u64| Frame {
        round: 0,
        step: StepIndex::new(1),
        claim: inner,
        offset,
        text: "aside".to_owned(),
    };
    let silent = async {
        let at = Channel::Inner.of(writer.run);
        writer.live.publish_inner(writer.run, piece(0)).await.unwrap();
        while !writer.live.shared.lock_pace().is_silent(at) {
            writer.live.flush().await;
        }
    };
    timeout(PATIENCE, silent).await.unwrap();
    let before = writer.messages().await;
    for number in 1..1_000 {
        writer.live.publish_inner(writer.run, piece(5 * number)).await.unwrap();
    }
    assert_eq!(writer.messages().await, before);
    writer.write("the answer").await;
    let answered = read_on(&mut answer, &mut text, writer.text.len());
    timeout(PATIENCE, answered).await.unwrap();
    assert_eq!(text, writer.text);

    // A watcher of everything gets both.
    let mut all = elsewhere.subscribe(writer.run).await.unwrap();
    writer.live.publish_inner(writer.run, piece(5_000)).await.unwrap();
    let (mut aside, mut answered) = (0, 0);
    let until_all = async {
        while aside < 5 * 1_001 || answered < 10 {
            if let Some(Signal::Frame(frame)) = all.next().await {
                let read = if frame.claim == inner { &mut aside } else { &mut answered };
                assert_eq!(frame.offset, *read);
                *read += frame.text.len() as u64;
            }
        }
    };
    timeout(PATIENCE, until_all).await.unwrap();
}
