//! The live stream during and after an outage of its server.

use std::time::Duration;

use crate::servers::{CALL_MAX, to};
use futures::StreamExt;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_harness::Nats;
use podium_ports::clock::{Clock, Ids};
use podium_ports::live::{Frame, LiveStream, Signal, Signals};
use podium_queue_nats::{LiveOptions, NatsLive};
use podium_testkit::{SeededIds, TestClock};
use tokio::time::{Instant, timeout};

const SECONDS: Duration = Duration::from_secs(15);

async fn connect(server: &Nats) -> NatsLive {
    NatsLive::connect(&to(server), LiveOptions::default()).await.unwrap()
}

fn frame(claim: ClaimId, offset: u64, text: &str) -> Signal {
    Signal::Frame(Frame { round: 0, step: StepIndex::new(0), claim, offset, text: text.to_owned() })
}

async fn next_signal(signals: &mut Signals) -> Signal {
    timeout(SECONDS, signals.next()).await.expect("a signal must arrive").expect("the stream must go on")
}

/// Subscribes again after missed signals, as the engine does.
async fn subscribe(live: &NatsLive, run: RunId) -> Signals {
    let tries = async {
        loop {
            if let Ok(signals) = live.subscribe(run).await {
                return signals;
            }
            TestClock::new().sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SECONDS, tries).await.expect("subscribing must succeed again within seconds")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_published_during_an_outage_arrives_after_it() {
    let mut server = Nats::start().await.unwrap();
    let (writes, watches) = (connect(&server).await, connect(&server).await);
    let ids = SeededIds::new(1);
    let (run, claim) = (ids.run_id(TestClock::START), ids.claim_id());
    let mut signals = subscribe(&watches, run).await;
    writes.publish(run, frame(claim, 0, "before, ")).await.unwrap();
    assert_eq!(next_signal(&mut signals).await, frame(claim, 0, "before, "));

    server.kill().await;
    let begun = Instant::now();
    for (offset, text) in [(8, "during, "), (16, "during, ")] {
        writes.publish(run, frame(claim, offset, text)).await.unwrap();
    }
    assert!(begun.elapsed() < CALL_MAX, "publishing must not wait");
    server.wipe().await.unwrap();

    assert_eq!(next_signal(&mut signals).await, Signal::Missed);
    let mut signals = subscribe(&watches, run).await;
    let mut received = String::new();
    while received.len() < 24 {
        match next_signal(&mut signals).await {
            Signal::Frame(frame) => {
                assert_eq!(frame.offset, received.len() as u64);
                received.push_str(&frame.text);
            }
            // The writer has only now reconnected.
            Signal::Missed => {
                signals = subscribe(&watches, run).await;
                received.clear();
            }
            other => panic!("{other:?} was not published"),
        }
    }
    assert_eq!(received, "before, during, during, ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_never_waits_and_works_again_after_an_outage() {
    let mut server = Nats::start().await.unwrap();
    let (writes, ids) = (connect(&server).await, SeededIds::new(1));
    let run = ids.run_id(TestClock::START);
    server.kill().await;
    let begun = Instant::now();
    // More signals than the client buffers.
    for version in 0..5000 {
        writes.publish(run, Signal::Committed { version }).await.unwrap();
    }
    assert!(begun.elapsed() < CALL_MAX);
    server.start_again().await.unwrap();
    let watches = connect(&server).await;
    let mut signals = subscribe(&watches, run).await;
    let received = async {
        loop {
            writes.publish(run, Signal::Committed { version: 9999 }).await.unwrap();
            if let Ok(Some(Signal::Committed { version: 9999 })) =
                timeout(Duration::from_millis(200), signals.next()).await
            {
                return;
            }
        }
    };
    timeout(SECONDS, received).await.expect("the writer's signals must arrive again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribing_times_out_while_the_server_is_unreachable() {
    let mut server = Nats::start().await.unwrap();
    let live = connect(&server).await;
    let run = SeededIds::new(1).run_id(TestClock::START);
    server.kill().await;
    let begun = Instant::now();
    assert!(live.subscribe(run).await.is_err());
    assert!(begun.elapsed() < 2 * CALL_MAX);
    server.start_again().await.unwrap();
    let mut signals = subscribe(&live, run).await;
    live.publish(run, Signal::Committed { version: 1 }).await.unwrap();
    while next_signal(&mut signals).await != (Signal::Committed { version: 1 }) {}
    timeout(SECONDS, live.close()).await.expect("all tasks must stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_live_stream_ends_its_subscriptions() {
    let server = Nats::start().await.unwrap();
    let live = connect(&server).await;
    let mut signals = subscribe(&live, SeededIds::new(1).run_id(TestClock::START)).await;
    drop(live);
    assert_eq!(timeout(SECONDS, signals.next()).await.expect("the stream must end"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_the_end_is_notified_after_an_outage() {
    let mut server = Nats::start().await.unwrap();
    let waits = connect(&server).await;
    let run = SeededIds::new(1).run_id(TestClock::START);
    let mut signals = waits.subscribe_to_end(run).await.unwrap();
    server.kill().await;
    server.start_again().await.unwrap();
    let news = timeout(SECONDS, signals.next()).await.expect("the waiter must be notified");
    assert_eq!(news, Some(()));
    drop(waits);
    while timeout(SECONDS, signals.next()).await.expect("the stream must end").is_some() {}
}

/// The message of an earlier version contains the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_published_by_an_earlier_version_is_received() {
    let server = Nats::start().await.unwrap();
    let (waits, earlier) = (connect(&server).await, async_nats::connect(server.url()).await.unwrap());
    let run = SeededIds::new(1).run_id(TestClock::START);
    let mut signals = waits.subscribe_to_end(run).await.unwrap();
    let body = r#"{"v":1,"by":"0.0.1","run":null}"#;
    earlier.publish(format!("podium.live.end.OtherProcess.{run}"), body.into()).await.unwrap();
    timeout(SECONDS, signals.next()).await.expect("the end must arrive").expect("the stream must go on");
}
