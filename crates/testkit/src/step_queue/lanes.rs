//! Lanes: separate, bounded, and in order.

use std::collections::BTreeSet;

use futures::future::join_all;
use podium_domain::policy::Tier;
use podium_domain::run::TaskRef;
use podium_ports::queue::{Delivery, Lane, Published, QueueError};

use super::{INSTANT, MILLISECOND, QueueFixture, a_lane, messages, step_lane};

pub(crate) async fn lanes_are_separate(queue: &QueueFixture) {
    let lanes = [
        Lane::Plan(Tier::Mini),
        Lane::Plan(Tier::Ultra),
        step_lane(Tier::Mini, "north"),
        step_lane(Tier::Ultra, "north"),
        step_lane(Tier::Ultra, "south"),
    ];
    let messages = messages(5);
    for (lane, message) in lanes.iter().zip(&messages) {
        queue.queue.publish(lane, *message).await.unwrap();
    }
    for (lane, message) in lanes.iter().zip(&messages) {
        let fetched = queue.queue.fetch(lane, 10, INSTANT).await.unwrap();
        assert_eq!(fetched.iter().map(Delivery::message).collect::<Vec<_>>(), [message], "{lane}");
    }
}

/// Fills the lane; returns one more message.
async fn fill(queue: &QueueFixture) -> super::TaskMessage {
    let max = u16::try_from(queue.lane_messages_max).expect("a test's lane is short");
    let mut messages = messages(max + 1);
    let extra = messages.pop().expect("there is one more");
    for message in &messages {
        queue.must_publish(message).await;
    }
    extra
}

pub(crate) async fn a_full_lane_refuses_until_a_message_is_acked(queue: &QueueFixture) {
    let extra = fill(queue).await;
    let refused = queue.queue.publish(&a_lane(), extra).await.unwrap_err();
    let max = queue.lane_messages_max;
    assert!(matches!(refused, QueueError::Full { messages_max, .. } if messages_max == max), "{refused:?}");
    let delivery = queue.fetch_one().await.expect("the lane is full");
    queue.queue.publish(&a_lane(), extra).await.unwrap_err();
    delivery.ack().await.unwrap();
    queue.must_publish(&extra).await;
}

pub(crate) async fn a_full_lane_does_not_affect_others(queue: &QueueFixture) {
    let extra = fill(queue).await;
    // Never the same task, which would have one message only.
    let mut others = (0..).map(|round| super::TaskMessage::new(extra.run, TaskRef::Plan { round }));
    for lane in [
        step_lane(Tier::Ultra, "south"),
        step_lane(Tier::Mini, "north"),
        Lane::Plan(Tier::Ultra),
        Lane::Plan(Tier::Mini),
    ] {
        for message in others.by_ref().take(queue.lane_messages_max) {
            assert_eq!(queue.queue.publish(&lane, message).await.unwrap(), Published::Queued, "{lane}");
        }
        queue.queue.publish(&lane, extra).await.unwrap_err();
    }
}

pub(crate) async fn a_full_lane_still_recognises_its_tasks(queue: &QueueFixture) {
    fill(queue).await;
    assert_eq!(queue.publish(&messages(1)[0]).await, Published::AlreadyOutstanding);
    let _in_flight = queue.fetch_one().await.expect("the lane is full");
    assert_eq!(queue.publish(&messages(1)[0]).await, Published::AlreadyOutstanding);
}

pub(crate) async fn a_lane_reports_its_free_capacity(queue: &QueueFixture) {
    let max = queue.lane_messages_max;
    let room = async |lane| queue.queue.capacity(&lane).await.unwrap();
    assert_eq!(room(a_lane()).await, max, "nothing was ever published");
    queue.must_publish(&messages(1)[0]).await;
    assert_eq!((room(a_lane()).await, room(Lane::Plan(Tier::Ultra)).await), (max - 1, max));
    let delivery = queue.fetch_one().await.expect("it was published");
    assert_eq!(room(a_lane()).await, max - 1, "it is in flight");
    delivery.ack().await.unwrap();
    assert_eq!(room(a_lane()).await, max);
    fill(queue).await;
    assert_eq!(room(a_lane()).await, 0);
}

pub(crate) async fn messages_come_in_the_order_of_publishing(queue: &QueueFixture) {
    let messages = messages(6);
    for message in &messages {
        queue.must_publish(message).await;
        queue.clock.sleep(MILLISECOND).await;
    }
    let fetched = queue.fetch(10, INSTANT).await;
    let fetched: Vec<_> = fetched.iter().map(|delivery| *delivery.message()).collect();
    assert_eq!(fetched, messages);
}

pub(crate) async fn a_fetch_takes_no_more_than_it_asked_for(queue: &QueueFixture) {
    for message in messages(5) {
        queue.must_publish(&message).await;
    }
    assert_eq!(queue.fetch(2, INSTANT).await.len(), 2);
    assert_eq!(queue.fetch(0, INSTANT).await.len(), 0);
    assert_eq!(queue.fetch(100, INSTANT).await.len(), 3);
}

pub(crate) async fn fetchers_never_share_a_message(queue: &QueueFixture) {
    let messages = messages(8);
    for message in &messages {
        queue.must_publish(message).await;
    }
    let fetched = join_all((0..8).map(|_| queue.fetch(1, INSTANT))).await;
    let fetched: Vec<_> = fetched.iter().flatten().map(Delivery::message).collect();
    assert_eq!(fetched.len(), messages.len());
    let runs = |messages: &[&super::TaskMessage]| messages.iter().map(|m| m.run).collect::<BTreeSet<_>>();
    assert_eq!(runs(&fetched), runs(&messages.iter().collect::<Vec<_>>()));
}
