//! Lanes: apart from each other, bounded, and in order.

use std::collections::BTreeSet;

use futures::future::join_all;
use podium_domain::policy::Tier;
use podium_ports::queue::{Delivery, Lane, QueueError};

use super::{Bound, INSTANT, MILLISECOND, QueueFixture, a_lane, messages, step_lane};

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

pub(crate) async fn a_full_queue_refuses_until_a_message_is_acked(queue: &QueueFixture) {
    let max = u16::try_from(queue.messages_max).expect("a test's lane is short");
    let mut messages = messages(max + 1);
    let extra = messages.pop().expect("there is one more");
    for message in &messages {
        queue.must_publish(message).await;
    }
    let refused = queue.queue.publish(&a_lane(), extra).await.unwrap_err();
    assert!(matches!(refused, QueueError::Full { messages_max, .. } if messages_max == queue.messages_max));
    let elsewhere = queue.queue.publish(&step_lane(Tier::Ultra, "south"), extra).await;
    assert_eq!(elsewhere.is_ok(), queue.bound == Bound::Lane, "{elsewhere:?}");

    let another = super::TaskMessage::new(extra.run, podium_domain::run::TaskRef::Plan { round: 9 });
    let delivery = queue.fetch_one().await.expect("the lane is full");
    queue.queue.publish(&a_lane(), another).await.unwrap_err();
    delivery.ack().await.unwrap();
    queue.must_publish(&another).await;
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
