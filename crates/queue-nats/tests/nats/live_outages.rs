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

async fn hear(signals: &mut Signals) -> Signal {
    timeout(SECONDS, signals.next()).await.expect("something must come").expect("the signals go on")
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
    timeout(SECONDS, tries).await.expect("it works again within seconds")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_during_an_outage_is_there_after_it() {
    let mut server = Nats::start().await.unwrap();
    let (writes, watches) = (connect(&server).await, connect(&server).await);
    let ids = SeededIds::new(1);
    let (run, claim) = (ids.run_id(TestClock::START), ids.claim_id());
    let mut signals = subscribe(&watches, run).await;
    writes.publish(run, frame(claim, 0, "before, ")).await.unwrap();
    assert_eq!(hear(&mut signals).await, frame(claim, 0, "before, "));

    server.kill().await;
    let begun = Instant::now();
    for (offset, text) in [(8, "during, "), (16, "during, ")] {
        writes.publish(run, frame(claim, offset, text)).await.unwrap();
    }
    assert!(begun.elapsed() < CALL_MAX, "publishing waits for nothing");
    server.wipe().await.unwrap();

    assert_eq!(hear(&mut signals).await, Signal::Missed);
    let mut signals = subscribe(&watches, run).await;
    let mut heard = String::new();
    while heard.len() < 24 {
        match hear(&mut signals).await {
            Signal::Frame(frame) => {
                assert_eq!(frame.offset, heard.len() as u64);
                heard.push_str(&frame.text);
            }
            // The writer has a connection again only now.
            Signal::Missed => {
                signals = subscribe(&watches, run).await;
                heard.clear();
            }
            other => panic!("{other:?} was not said"),
        }
    }
    assert_eq!(heard, "before, during, during, ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_waits_for_no_connection_and_is_heard_again_after_it() {
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
    let heard = async {
        loop {
            writes.publish(run, Signal::Committed { version: 9999 }).await.unwrap();
            if let Ok(Some(Signal::Committed { version: 9999 })) =
                timeout(Duration::from_millis(200), signals.next()).await
            {
                return;
            }
        }
    };
    timeout(SECONDS, heard).await.expect("the writer is heard again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribing_ends_within_its_time_while_the_server_is_away() {
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
    while hear(&mut signals).await != (Signal::Committed { version: 1 }) {}
    timeout(SECONDS, live.close()).await.expect("nothing runs on for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_signals_end_with_the_live_stream() {
    let server = Nats::start().await.unwrap();
    let live = connect(&server).await;
    let mut signals = subscribe(&live, SeededIds::new(1).run_id(TestClock::START)).await;
    drop(live);
    assert_eq!(timeout(SECONDS, signals.next()).await.expect("it ends"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_end_is_told_that_it_may_have_missed_it() {
    let mut server = Nats::start().await.unwrap();
    let waits = connect(&server).await;
    let run = SeededIds::new(1).run_id(TestClock::START);
    let mut signals = waits.subscribe_to_end(run).await.unwrap();
    server.kill().await;
    server.start_again().await.unwrap();
    let news = timeout(SECONDS, signals.next()).await.expect("it is told");
    assert_eq!(news, Some(()));
    drop(waits);
    while timeout(SECONDS, signals.next()).await.expect("it ends").is_some() {}
}

/// A process of an earlier version encloses the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_that_an_earlier_version_signals_is_heard() {
    let server = Nats::start().await.unwrap();
    let (waits, earlier) = (connect(&server).await, async_nats::connect(server.url()).await.unwrap());
    let run = SeededIds::new(1).run_id(TestClock::START);
    let mut signals = waits.subscribe_to_end(run).await.unwrap();
    let body = r#"{"v":1,"by":"0.0.1","run":null}"#;
    earlier.publish(format!("podium.live.end.OtherProcess.{run}"), body.into()).await.unwrap();
    timeout(SECONDS, signals.next()).await.expect("the end must come").expect("the signals go on");
}
