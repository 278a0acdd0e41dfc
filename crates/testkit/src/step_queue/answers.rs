//! Messages that are answered in time, too late, or not at all.

use podium_ports::queue::Published;

use super::{INSTANT, QueueFixture, a_lane, a_message};

pub(crate) async fn a_message_is_fetched_once_and_removed_when_acknowledged(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    let delivery = queue.fetch_one().await.expect("it was published");
    assert_eq!((delivery.message(), delivery.deliveries()), (&a_message(), 1));
    assert!(queue.fetch_one().await.is_none(), "it is in flight");
    delivery.ack().await.unwrap();
    queue.clock.sleep(2 * queue.ack_wait).await;
    assert!(queue.fetch_one().await.is_none());
}

pub(crate) async fn a_task_has_one_message_queued_or_in_flight(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    assert_eq!(queue.publish(&a_message()).await, Published::AlreadyOutstanding, "it is queued");
    let delivery = queue.fetch_one().await.expect("it was published");
    assert_eq!(queue.publish(&a_message()).await, Published::AlreadyOutstanding, "it is in flight");
    delivery.nak(queue.long).await.unwrap();
    assert_eq!(queue.publish(&a_message()).await, Published::AlreadyOutstanding, "it was put back");
    queue.clock.sleep(queue.long).await;
    queue.fetch_due().await.expect("its delay has passed").ack().await.unwrap();
    queue.must_publish(&a_message()).await;
    assert_eq!(queue.fetch_one().await.expect("it was published").deliveries(), 1);
}

/// The publish is refused or has no effect, and the message in hand is delivered again.
pub(crate) async fn a_message_returned_during_a_publish_is_delivered_at_once(queue: &QueueFixture) {
    for _ in 0..20 {
        queue.publish(&a_message()).await;
        let delivery = queue.fetch_due().await.expect("it is there");
        let lane = a_lane();
        let publish = queue.queue.publish(&lane, a_message());
        let (put_back, published) = futures::join!(delivery.nak(INSTANT), publish);
        put_back.unwrap();
        assert_eq!(published.unwrap(), Published::AlreadyOutstanding);
        let delivery = queue.fetch_due().await.expect("it was put back for now");
        delivery.nak(INSTANT).await.unwrap();
    }
    queue.fetch_due().await.expect("it was put back for now").ack().await.unwrap();
}

pub(crate) async fn a_returned_message_is_delivered_after_its_delay(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    queue.fetch_one().await.expect("it was published").nak(INSTANT).await.unwrap();
    let delivery = queue.fetch_due().await.expect("it was put back for now");
    assert_eq!(delivery.deliveries(), 2);
    // Longer than the ack wait, which no longer counts.
    let delay = 2 * queue.ack_wait;
    delivery.nak(delay).await.unwrap();
    queue.sleep_nearly(delay).await;
    assert!(queue.fetch_one().await.is_none());
    assert_eq!(queue.fetch_due().await.expect("the delay has passed").deliveries(), 3);
}

pub(crate) async fn an_unanswered_message_is_redelivered_after_the_ack_wait(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    for deliveries in 1..4 {
        let delivery = queue.fetch_due().await.expect("it is time");
        assert_eq!(delivery.deliveries(), deliveries);
        drop(delivery);
        queue.sleep_nearly(queue.ack_wait).await;
        assert!(queue.fetch_one().await.is_none(), "it might still be answered");
    }
}

/// As in `JetStream`, an ack counts for any delivery: the work was done, and the store knows whether it was needed.
pub(crate) async fn a_late_ack_removes_the_message(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    let late = queue.fetch_one().await.expect("it was published");
    queue.clock.sleep(queue.ack_wait).await;
    let again = queue.fetch_due().await.expect("it timed out");
    late.ack().await.unwrap();
    queue.clock.sleep(queue.ack_wait).await;
    assert!(queue.fetch_one().await.is_none());
    again.ack().await.unwrap();
    queue.must_publish(&a_message()).await;
}

/// Whether it counts is open: an adapter may ignore it, or treat it as the holder's. Nothing is lost either way.
pub(crate) async fn a_late_nak_is_no_error(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    let late = queue.fetch_one().await.expect("it was published");
    queue.clock.sleep(queue.ack_wait).await;
    let later = queue.fetch_due().await.expect("it timed out");
    late.nak(queue.long).await.unwrap();
    drop(later);
    queue.clock.sleep(queue.long + queue.ack_wait).await;
    let last = queue.fetch_due().await.expect("it was never acked");
    last.ack().await.unwrap();
    queue.must_publish(&a_message()).await;
}

pub(crate) async fn a_late_ack_does_not_touch_the_tasks_next_message(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    let late = queue.fetch_one().await.expect("it was published");
    queue.clock.sleep(queue.ack_wait).await;
    queue.fetch_due().await.expect("it timed out").ack().await.unwrap();
    queue.must_publish(&a_message()).await;
    late.ack().await.unwrap();
    assert_eq!(queue.publish(&a_message()).await, Published::AlreadyOutstanding);
    assert_eq!(queue.fetch_one().await.expect("it is another one").deliveries(), 1);
}
