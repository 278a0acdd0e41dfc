//! What every [`LiveStream`] must do. [`live_stream_suite!`](crate::live_stream_suite) makes a test of each requirement.
//!
//! Signals may cross a network, so a test waits for what must come, for as long as is reasonable. What must not come is
//! looked for before something that comes later for sure.

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

/// A live stream under test. Nothing was published.
pub struct LiveFixture {
    /// The live stream.
    pub live: Arc<dyn LiveStream>,
    /// The same one as another process has it; for one that does not leave the process, the same again.
    pub elsewhere: Arc<dyn LiveStream>,
    /// Most signals that a watcher may be behind; not more than 100.
    pub signals_max: usize,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`LiveFixture`]; the attribute goes on every test.
/// The list of requirements is here and nowhere else.
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
            an_early_watcher_hears_everything_in_order
            every_watcher_hears_and_those_of_other_runs_do_not
            a_watcher_that_left_bothers_nobody
            who_waits_for_the_end_hears_it
            a_stop_is_heard_by_every_process
            publishing_waits_for_no_watcher
            a_late_watcher_gets_the_text_so_far_of_each_attempt_and_then_the_rest
            text_is_gathered_from_all_processes
            a_new_attempt_takes_the_place_of_the_old_one_for_good
            repeated_pieces_count_once
            an_attempt_with_a_gap_is_unknown
            long_text_arrives_whole
            long_text_so_far_arrives_whole
            a_slow_watcher_is_told_that_it_missed_something_and_then_goes_on
            who_subscribes_again_after_missing_something_has_everything
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
/// Those written below are private, so that one which is missing in the list above is an unused function.
pub mod requirements {
    live_stream_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{slow::*, text::*, watching::*};
}

/// Longest time for a signal that must come.
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

/// Who watches, and what it has put together of each attempt.
struct Watcher {
    signals: Signals,
    texts: BTreeMap<ClaimId, String>,
}

impl Watcher {
    fn new(signals: Signals) -> Self {
        Self { signals, texts: BTreeMap::new() }
    }

    /// The next signal. Text must follow on what was heard of its attempt.
    async fn hear(&mut self) -> Signal {
        let heard = timeout(SOON, self.signals.next()).await.expect("something must come");
        let heard = heard.expect("the stream of signals goes on");
        if let Signal::Frame(frame) = &heard {
            let text = self.texts.entry(frame.claim).or_default();
            assert_eq!(frame.offset, text.len() as u64, "a piece is missing, or came twice");
            text.push_str(&frame.text);
        }
        heard
    }

    /// Listens until an attempt's text is that long, and returns it.
    async fn text_of(&mut self, claim: ClaimId, bytes: usize) -> &str {
        while self.texts.get(&claim).is_none_or(|text| text.len() < bytes) {
            self.hear().await;
        }
        &self.texts[&claim]
    }

    /// Listens until that signal comes.
    async fn hear_until(&mut self, last: &Signal) {
        while self.hear().await != *last {}
    }
}
