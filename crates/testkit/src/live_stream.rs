//! The conformance suite of [`LiveStream`]. [`live_stream_suite!`](crate::live_stream_suite) makes a test of each requirement.
//!
//! Signals may cross a network, so a test waits for expected signals for a generous time. Absence is checked by a later signal
//! that is certain to arrive.

mod slow;
mod text;
mod watching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_ports::clock::Ids;
use podium_ports::live::{Frame, LiveStream, Signal, Signals};
use tokio::time::timeout;

use crate::clock::TestClock;
use crate::ids::SeededIds;

/// A live stream under test, without any signals.
pub struct LiveFixture {
    /// The live stream.
    pub live: Arc<dyn LiveStream>,
    /// The same stream in another process; for a stream of one process, the same object.
    pub elsewhere: Arc<dyn LiveStream>,
    /// Most signals by which a watcher may lag; at most 100.
    pub signals_max: usize,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`LiveFixture`]; the attribute is put on every test.
/// This is the only list of the requirements.
///
/// ```ignore
/// podium_testkit::live_stream_suite! { #[tokio::test] fixture() }
/// ```
#[macro_export]
macro_rules! live_stream_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::live_stream_suite! { @each tests [#[$attribute] $fixture] }
    };
    (@each $what:ident $arguments:tt) => {
        $crate::live_stream_suite! { @$what $arguments
            an_early_watcher_gets_all_signals_in_order
            every_watcher_gets_the_signals_of_its_run_only
            a_watcher_that_left_affects_no_other
            a_caller_that_waits_for_the_end_is_notified
            a_stop_reaches_every_process
            publishing_waits_for_no_watcher
            a_late_watcher_gets_the_text_so_far_and_then_the_rest
            text_is_gathered_from_all_processes
            a_new_attempt_replaces_the_old_one
            repeated_pieces_count_once
            an_attempt_with_a_gap_is_unknown
            long_text_arrives_whole
            long_text_so_far_arrives_whole
            a_slow_watcher_is_notified_of_missed_signals_and_continues
            a_new_subscription_after_missed_signals_is_complete
        }
    };
    (@tests [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::live_stream::requirements::$name($fixture.await).await;
        })+
    };
    (@requirements [] $($name:ident)+) => {
        $(#[expect(missing_docs, reason = "its name is the sentence")]
        pub async fn $name(fixture: super::LiveFixture) {
            super::written::$name(&super::Scene::new(fixture)).await;
        })+
    };
}

/// The requirements, one function each.
///
/// The functions below are private, so a requirement that is missing in the list above is an unused function.
pub mod requirements {
    live_stream_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{slow::*, text::*, watching::*};
}

/// Longest wait for an expected signal.
const SOON: Duration = Duration::from_secs(20);

struct Scene {
    fixture: LiveFixture,
    ids: SeededIds,
    run: RunId,
}

impl Scene {
    fn new(fixture: LiveFixture) -> Self {
        let ids = SeededIds::new(1);
        Self { fixture, run: ids.run_id(TestClock::START), ids }
    }

    async fn say(&self, signal: Signal) {
        self.fixture.live.publish(self.run, signal).await.unwrap();
    }

    async fn say_elsewhere(&self, signal: Signal) {
        self.fixture.elsewhere.publish(self.run, signal).await.unwrap();
    }

    async fn watch(&self) -> Watcher {
        Watcher::new(self.fixture.live.subscribe(self.run).await.unwrap())
    }

    async fn watch_elsewhere(&self) -> Watcher {
        Watcher::new(self.fixture.elsewhere.subscribe(self.run).await.unwrap())
    }
}

fn frame(step: u16, claim: ClaimId, offset: u64, text: &str) -> Signal {
    Signal::Frame(Frame { round: 0, step: StepIndex::new(step), claim, offset, text: text.to_owned() })
}

fn committed(version: u64) -> Signal {
    Signal::Committed { version }
}

/// A watcher, with the text that it has received of each attempt.
struct Watcher {
    signals: Signals,
    texts: BTreeMap<ClaimId, String>,
}

impl Watcher {
    fn new(signals: Signals) -> Self {
        Self { signals, texts: BTreeMap::new() }
    }

    /// Receives the next signal. Text must continue what was received of its attempt.
    async fn receive(&mut self) -> Signal {
        let heard = timeout(SOON, self.signals.next()).await.expect("something must come");
        let heard = heard.expect("the stream of signals continues");
        if let Signal::Frame(frame) = &heard {
            let text = self.texts.entry(frame.claim).or_default();
            assert_eq!(frame.offset, text.len() as u64, "a piece is missing, or came twice");
            text.push_str(&frame.text);
        }
        heard
    }

    /// Receives until an attempt's text has `bytes` bytes, and returns it.
    async fn text_of(&mut self, claim: ClaimId, bytes: usize) -> &str {
        while self.texts.get(&claim).is_none_or(|text| text.len() < bytes) {
            self.receive().await;
        }
        &self.texts[&claim]
    }

    /// Receives until the signal `last` arrives.
    async fn receive_until(&mut self, last: &Signal) {
        while self.receive().await != *last {}
    }
}
