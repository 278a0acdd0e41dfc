//! What every [`StepQueue`] must do. [`step_queue_suite!`](crate::step_queue_suite) makes a test of each requirement.
//!
//! Nothing here sleeps but on the fixture's own clock: a paused one makes hours of no time. A queue that is a server goes by
//! the real time; its fixture says how long is long, and how exactly the server keeps it.

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

/// A queue under test. It is empty.
pub struct QueueFixture {
    /// The queue.
    pub queue: Arc<dyn StepQueue>,
    /// The clock that it goes by.
    pub clock: Arc<dyn Clock>,
    /// How long it waits for an answer to a delivery. At least four times `slack`.
    pub ack_wait: Duration,
    /// How much earlier or later than told it may do something: a millisecond on a paused clock.
    pub slack: Duration,
    /// Longer than anything takes that is expected to happen at once, and than `ack_wait`: an hour on a paused clock.
    pub long: Duration,
    /// Most messages of a lane.
    pub lane_messages_max: usize,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`QueueFixture`]; the attribute goes on every test.
/// The list of requirements is here and nowhere else.
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
            a_message_is_fetched_once_and_gone_when_acked
            a_task_has_one_message_queued_or_in_flight
            a_message_put_back_while_its_task_is_published_again_comes_at_once
            a_refused_message_comes_back_after_its_delay
            an_unanswered_message_comes_back_after_the_ack_wait
            progress_restarts_the_ack_wait
            a_late_ack_removes_the_message
            a_late_nak_or_progress_is_no_error
            a_late_ack_does_not_touch_the_tasks_next_message
            lanes_are_separate
            a_full_lane_refuses_until_a_message_is_acked
            a_full_lane_leaves_all_others_alone
            a_full_lane_knows_what_it_has
            a_lane_has_room_for_what_it_takes
            messages_come_in_the_order_of_publishing
            a_fetch_takes_no_more_than_it_asked_for
            fetchers_never_share_a_message
            a_fetch_waits_no_longer_than_told
            a_fetch_wakes_when_a_message_is_published
            every_waiting_fetch_wakes_for_a_message_of_its_own
            a_fetch_wakes_when_a_delayed_message_falls_due
            a_fetch_that_is_given_up_takes_nothing_along
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
/// Those written below are private, so that one which is missing in the list above is an unused function.
pub mod requirements {
    step_queue_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{answers::*, lanes::*, waiting::*};
}

const INSTANT: Duration = Duration::ZERO;
const MILLISECOND: Duration = Duration::from_millis(1);

/// Different messages, always the same ones.
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

    /// What is there now.
    async fn fetch_one(&self) -> Option<Delivery> {
        self.fetch(1, INSTANT).await.pop()
    }

    /// What falls due now, as exactly as the queue keeps time.
    async fn fetch_due(&self) -> Option<Delivery> {
        self.fetch(1, 2 * self.slack).await.pop()
    }

    /// Sleeps until just before `span` has passed.
    async fn sleep_nearly(&self, span: Duration) {
        self.clock.sleep(span.checked_sub(self.slack).expect("it is longer than the slack")).await;
    }
}
