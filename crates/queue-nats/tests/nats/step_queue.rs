//! The requirements of every queue, tested on a real server.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::servers::a_queue;
use podium_harness::Nats;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};
use podium_queue_nats::QueueOptions;
use podium_testkit::TestClock;
use podium_testkit::step_queue::QueueFixture;

/// The queue with its server, which stops when the queue is dropped.
struct Served<T> {
    queue: T,
    _server: Nats,
}

impl<T> Deref for Served<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.queue
    }
}

#[async_trait::async_trait]
impl<T: StepQueue> StepQueue for Served<T> {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.queue.publish(lane, message).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        self.queue.fetch(lane, max, wait).await
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        self.queue.capacity(lane).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.queue.ping().await
    }
}

async fn fixture() -> QueueFixture {
    let server = Nats::start().await.unwrap();
    let options =
        QueueOptions { ack_wait: Duration::from_secs(2), lane_messages_max: 10, ..QueueOptions::default() };
    let (ack_wait, lane_messages_max) = (options.ack_wait, options.lane_messages_max);
    let queue = a_queue(&server, options).await;
    QueueFixture {
        queue: Arc::new(Served { queue, _server: server }),
        clock: Arc::new(TestClock::new()),
        ack_wait,
        slack: Duration::from_millis(500),
        long: Duration::from_secs(6),
        lane_messages_max,
    }
}

podium_testkit::step_queue_suite! { #[tokio::test(flavor = "multi_thread", worker_threads = 2)] fixture() }
