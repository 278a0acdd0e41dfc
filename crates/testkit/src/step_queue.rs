//! The conformance suite of [`StepQueue`]. [`step_queue_suite!`](crate::step_queue_suite) makes a test of each requirement.
//!
//! Tests sleep only on the fixture's own clock; hours pass at once on a paused one. A queue that is a server uses real time; its
//! fixture says how long `long` is, and how exactly the server keeps time.

mod answers;
mod lanes;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{StepIndex, VendorId};
use podium_domain::policy::Tier;
use podium_domain::run::TaskRef;
use podium_ports::clock::{Clock, Ids};
use podium_ports::queue::{Delivery, Lane, Published, StepQueue, TaskMessage};

use crate::clock::TestClock;
use crate::ids::SeededIds;

/// An empty queue under test.
pub struct QueueFixture {
    /// The queue.
    pub queue: Arc<dyn StepQueue>,
    /// The clock that it uses.
    pub clock: Arc<dyn Clock>,
    /// Its ack wait, at least four times `slack`.
    pub ack_wait: Duration,
    /// How much too early or too late it may act: a millisecond on a paused clock.
    pub slack: Duration,
    /// Longer than `ack_wait`, and than anything that should happen at once: an hour on a paused clock.
    pub long: Duration,
    /// Most messages of a lane.
    pub lane_messages_max: usize,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`QueueFixture`]; the attribute is put on every test.
/// This is the only list of the requirements.
///
/// ```ignore
/// podium_testkit::step_queue_suite! { #[tokio::test(start_paused = true)] fixture() }
/// ```
#[macro_export]
macro_rules! step_queue_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::step_queue_suite! { @each tests [#[$attribute] $fixture] }
    };
    (@each $what:ident $arguments:tt) => {
        $crate::step_queue_suite! { @$what $arguments
            a_message_is_fetched_once_and_removed_when_acknowledged
            a_task_has_one_message_queued_or_in_flight
            a_message_returned_during_a_publish_is_delivered_at_once
            a_returned_message_is_delivered_after_its_delay
            an_unanswered_message_is_redelivered_after_the_ack_wait
            a_late_ack_removes_the_message
            a_late_nak_is_no_error
            a_late_ack_does_not_touch_the_tasks_next_message
            lanes_are_separate
            a_full_lane_refuses_until_a_message_is_acked
            a_full_lane_does_not_affect_others
            a_full_lane_still_recognises_its_tasks
            a_lane_reports_its_free_capacity
            messages_come_in_the_order_of_publishing
            a_fetch_takes_no_more_than_it_asked_for
            fetchers_never_share_a_message
            a_fetch_waits_no_longer_than_asked
            a_fetch_wakes_when_a_message_is_published
            every_waiting_fetch_wakes_for_a_message_of_its_own
            a_fetch_wakes_when_a_delayed_message_falls_due
            an_abandoned_fetch_takes_no_message
            the_queue_answers
        }
    };
    (@tests [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::step_queue::requirements::$name($fixture.await).await;
        })+
    };
    (@requirements [] $($name:ident)+) => {
        $(#[expect(missing_docs, reason = "its name is the sentence")]
        pub async fn $name(queue: super::QueueFixture) {
            super::written::$name(&queue).await;
        })+
    };
}

/// The requirements, one function each.
///
/// The functions below are private, so a requirement that is missing in the list above is an unused function.
pub mod requirements {
    step_queue_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{answers::*, lanes::*, waiting::*};
}

const INSTANT: Duration = Duration::ZERO;
const MILLISECOND: Duration = Duration::from_millis(1);

/// Different messages, the same ones for each call.
fn messages(count: u16) -> Vec<TaskMessage> {
    let ids = SeededIds::new(1);
    let task = |step| TaskRef::Step { round: 0, step: StepIndex::new(step) };
    (0..count).map(|step| TaskMessage::new(ids.run_id(TestClock::START), task(step % 3))).collect()
}

fn a_message() -> TaskMessage {
    messages(1).remove(0)
}

fn a_lane() -> Lane {
    step_lane(Tier::Ultra, "north")
}

fn step_lane(tier: Tier, vendor: &str) -> Lane {
    Lane::Step(tier, VendorId::new(vendor).expect("it is a name"))
}

impl QueueFixture {
    async fn publish(&self, message: &TaskMessage) -> Published {
        self.queue.publish(&a_lane(), *message).await.unwrap()
    }

    async fn must_publish(&self, message: &TaskMessage) {
        assert_eq!(self.publish(message).await, Published::Queued);
    }

    async fn fetch(&self, max: usize, wait: Duration) -> Vec<Delivery> {
        self.queue.fetch(&a_lane(), max, wait).await.unwrap()
    }

    /// A message that is available now.
    async fn fetch_one(&self) -> Option<Delivery> {
        self.fetch(1, INSTANT).await.pop()
    }

    /// A message that is due now, as exactly as the queue keeps time.
    async fn fetch_due(&self) -> Option<Delivery> {
        self.fetch(1, 2 * self.slack).await.pop()
    }

    /// Sleeps until just before `span` has passed.
    async fn sleep_nearly(&self, span: Duration) {
        self.clock.sleep(span.checked_sub(self.slack).expect("it is longer than the slack")).await;
    }
}
