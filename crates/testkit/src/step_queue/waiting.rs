//! Fetches that wait.

use std::time::Duration;

use futures::future::join_all;
use futures::{join, poll};

use super::{QueueFixture, a_message, messages};

pub(crate) async fn a_fetch_waits_no_longer_than_asked(queue: &QueueFixture) {
    let wait = Duration::from_millis(50);
    let begun = queue.clock.now();
    assert_eq!(queue.fetch(1, wait).await.len(), 0);
    let waited = queue.clock.now().since(begun);
    assert!(waited + queue.slack >= wait && waited < queue.long, "{waited:?}");
}

pub(crate) async fn a_fetch_wakes_when_a_message_is_published(queue: &QueueFixture) {
    let begun = queue.clock.now();
    let message = a_message();
    let (fetched, ()) = join!(queue.fetch(5, queue.long), queue.must_publish(&message));
    assert_eq!(fetched.len(), 1);
    assert!(queue.clock.now().since(begun) < queue.long);
}

pub(crate) async fn every_waiting_fetch_wakes_for_a_message_of_its_own(queue: &QueueFixture) {
    let begun = queue.clock.now();
    let publish = async {
        for message in messages(4) {
            queue.must_publish(&message).await;
        }
    };
    let (fetched, ()) = join!(join_all((0..4).map(|_| queue.fetch(1, queue.long))), publish);
    assert!(fetched.iter().all(|deliveries| deliveries.len() == 1), "{fetched:?}");
    assert!(queue.clock.now().since(begun) < queue.long);
}

pub(crate) async fn a_fetch_wakes_when_a_delayed_message_falls_due(queue: &QueueFixture) {
    queue.must_publish(&a_message()).await;
    let delay = Duration::from_millis(50);
    queue.fetch_one().await.expect("it was published").nak(delay).await.unwrap();
    let begun = queue.clock.now();
    let delivery = queue.fetch(1, queue.long).await.pop().expect("it falls due");
    let waited = queue.clock.now().since(begun);
    assert!(waited + queue.slack >= delay && waited < queue.long, "{waited:?}");

    // It is returned while a fetch is already waiting.
    let begun = queue.clock.now();
    let (fetched, refused) = join!(queue.fetch(1, queue.long), delivery.nak(delay));
    refused.unwrap();
    assert_eq!(fetched.len(), 1);
    assert!(queue.clock.now().since(begun) < queue.ack_wait, "not the ack wait but the delay counts");
}

pub(crate) async fn an_abandoned_fetch_takes_no_message(queue: &QueueFixture) {
    let mut given_up = Box::pin(queue.fetch(1, queue.long));
    assert!(poll!(&mut given_up).is_pending());
    queue.must_publish(&a_message()).await;
    drop(given_up);
    let delivery = queue.fetch(1, queue.long).await.pop().expect("it is still there");
    assert_eq!(delivery.deliveries(), 1);
}

pub(crate) async fn the_queue_answers(queue: &QueueFixture) {
    queue.queue.ping().await.unwrap();
}
