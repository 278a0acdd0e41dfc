//! A task may become ready again before its message is acked: then it must be claimed again without a delay.
//!
//! The store is in memory and time is virtual, so the measured times are those that the engine waits for, on any machine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::run::{Run, Task};
use podium_engine::Options;
use podium_memory::{MemoryQueue, QueueOptions};
use podium_ports::clock::Clock;
use podium_ports::conductor::ConductorError;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, Reply, StepQueue, TaskMessage};
use podium_testkit::{Answer, Fault, Planning, TestStore, plan_of};

use crate::house::House;

/// The latency of a message to the queue, and of its answer on another path.
const PUBLISH: Duration = Duration::from_millis(1);
const ANSWER: Duration = Duration::from_millis(3);
/// Much more than these latencies, and much less than the grace period after which a message counts as lost.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A queue across a network: a message that is published right before its task's old one is acked arrives first.
struct Distant {
    inner: Arc<dyn StepQueue>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl StepQueue for Distant {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.clock.sleep(PUBLISH).await;
        self.inner.publish(lane, message).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let fetched = self.inner.fetch(lane, max, wait).await?;
        let distant = |delivery: Delivery| {
            let (message, deliveries) = (*delivery.message(), delivery.deliveries());
            let reply = DistantReply { delivery, clock: Arc::clone(&self.clock) };
            Delivery::new(message, deliveries, Box::new(reply))
        };
        Ok(fetched.into_iter().map(distant).collect())
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        self.inner.capacity(lane).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.inner.ping().await
    }
}

struct DistantReply {
    delivery: Delivery,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Reply for DistantReply {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.clock.sleep(ANSWER).await;
        self.delivery.ack().await
    }

    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError> {
        self.clock.sleep(ANSWER).await;
        self.delivery.nak(delay).await
    }
}

/// As in a cluster, a task without a message is found after seconds.
fn options() -> Options {
    Options { retry_pause: Duration::from_millis(1), drain: Duration::from_millis(1), ..Options::default() }
}

async fn a_house() -> House {
    let house = House::idle(options(), |_| Arc::new(TestStore::new())).await;
    // The fixture has opened a database that it does not use, in a separate thread. From now on no other thread runs.
    tokio::time::pause();
    let clock = Arc::clone(&house.parts.clock);
    let inner = Arc::new(MemoryQueue::new(Arc::clone(&clock), QueueOptions::default()));
    let house = house.with_queue(Arc::new(Distant { inner, clock }), options());
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    house
}

/// The time from the end of a task's first attempt to the start of the second.
fn waited(task: &Task) -> Duration {
    let [first, second, ..] = task.attempts.as_slice() else { panic!("two attempts: {task:?}") };
    second.started_at.since(first.ended_at.unwrap())
}

fn step(run: &Run) -> &Task {
    &run.rounds()[0].steps[0].task
}

#[tokio::test]
async fn a_step_that_failed_is_tried_again_after_its_pause() {
    let house = a_house().await.at_work();
    house.vendor.script("quick", [Answer::refuse(Fault::Failed), Answer::text("fine")]);
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(waited(step(&run)) < AT_ONCE, "{:?}", waited(step(&run)));
}

#[tokio::test]
async fn another_process_claims_a_released_step_at_once() {
    let mut stopping = a_house().await.at_work();
    stopping.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    let id = stopping.ask().await;
    stopping.vendor.until_called(1).await;
    let other = stopping.beside(options(), 8, |_| {}).at_work();
    stopping.stop().await;
    let run = other.ended(id).await;
    assert_eq!(run.answer(), Some("fine"));
    assert!(waited(step(&run)) < AT_ONCE, "{:?}", waited(step(&run)));
}

#[tokio::test]
async fn a_plan_that_failed_is_tried_again_after_its_pause() {
    let house = a_house().await.at_work();
    house.vendor.otherwise(Answer::text("fine"));
    house.conductor.script([Planning::fails(ConductorError::Unavailable("a moment".into()))]);
    let run = house.ended(house.ask().await).await;
    assert_eq!(run.answer(), Some("fine"));
    let planning = &run.rounds()[0].planning;
    assert!(waited(planning) < AT_ONCE, "{:?}", waited(planning));
}
