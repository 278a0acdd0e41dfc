//! A work queue with the semantics of `JetStream`, as far as the port requires them.

use std::cmp;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, Reply, StepQueue, TaskMessage};
use tokio::sync::Notify;

/// The queue's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The time after which an unanswered delivery is delivered again.
    pub ack_wait: Duration,
    /// Most messages of a lane, including those in flight: about twice the slots that serve a lane.
    pub lane_messages_max: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { ack_wait: Duration::from_secs(30), lane_messages_max: 256 }
    }
}

/// A queue in memory.
///
/// A message stays in its lane until it is acknowledged. It has the time from which it may be fetched: the time of publishing at
/// first, the end of the ack wait after a delivery, the end of the delay after a refusal. So nothing runs in the background, and
/// an unanswered delivery is delivered again without further action.
#[derive(Clone)]
pub struct MemoryQueue {
    shared: Arc<Shared>,
}

struct Shared {
    options: QueueOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// A message's position in the order of publishing; never reused.
type Number = u64;

#[derive(Default)]
struct State {
    last_number: Number,
    messages: HashMap<Number, Outstanding>,
    outstanding: HashMap<(RunId, TaskRef), Number>,
    /// At most as many as there are tiers and vendors.
    lanes: HashMap<Lane, LaneState>,
}

#[derive(Default)]
struct LaneState {
    /// All messages by the time from which they may be fetched, then by their number.
    order: BTreeSet<(Timestamp, Number)>,
    /// Notified when a message arrives, or may be fetched earlier.
    news: Arc<Notify>,
}

struct Outstanding {
    lane: Lane,
    message: TaskMessage,
    available_at: Timestamp,
    deliveries: u32,
}

impl MemoryQueue {
    /// An empty queue with the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>, options: QueueOptions) -> Self {
        Self { shared: Arc::new(Shared { options, clock, state: Mutex::default() }) }
    }

    /// Takes the messages that may be fetched now. Without any, returns when the next one may be fetched.
    fn take(&self, lane: &Lane, max: usize) -> Result<Vec<Delivery>, Option<Timestamp>> {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let state = &mut *state;
        let order = &mut state.lanes.entry(lane.clone()).or_default().order;
        let ready: Vec<_> = order.iter().take_while(|(at, _)| *at <= now).take(max).copied().collect();
        if ready.is_empty() {
            return Err(order.first().map(|(at, _)| *at));
        }
        let ack_by = now.after(self.shared.options.ack_wait);
        let mut deliveries = Vec::with_capacity(ready.len());
        for (at, number) in ready {
            let Some(message) = state.messages.get_mut(&number) else { continue };
            order.remove(&(at, number));
            order.insert((ack_by, number));
            message.available_at = ack_by;
            message.deliveries = message.deliveries.saturating_add(1);
            let reply = QueueReply { shared: Arc::clone(&self.shared), number, delivery: message.deliveries };
            deliveries.push(Delivery::new(message.message, message.deliveries, Box::new(reply)));
        }
        Ok(deliveries)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn publish(
        &mut self,
        lane: &Lane,
        message: TaskMessage,
        messages_max: usize,
        now: Timestamp,
    ) -> Result<Published, QueueError> {
        let task = (message.run, message.task);
        if self.outstanding.contains_key(&task) {
            return Ok(Published::AlreadyOutstanding);
        }
        let lane_state = self.lanes.entry(lane.clone()).or_default();
        if lane_state.order.len() >= messages_max {
            return Err(QueueError::Full { lane: lane.to_string(), messages_max });
        }
        self.last_number += 1;
        let number = self.last_number;
        lane_state.order.insert((now, number));
        lane_state.news.notify_waiters();
        self.outstanding.insert(task, number);
        let (lane, deliveries) = (lane.clone(), 0);
        self.messages.insert(number, Outstanding { lane, message, available_at: now, deliveries });
        Ok(Published::Queued)
    }

    fn remove(&mut self, number: Number) {
        let Some(message) = self.messages.remove(&number) else { return };
        self.outstanding.remove(&(message.message.run, message.message.task));
        if let Some(lane) = self.lanes.get_mut(&message.lane) {
            lane.order.remove(&(message.available_at, number));
        }
    }

    /// Changes the time of a message, if this delivery is its latest.
    fn move_to(&mut self, number: Number, delivery: u32, at: Timestamp) {
        let message = self.messages.get_mut(&number).filter(|message| message.deliveries == delivery);
        let Some(message) = message else { return };
        if let Some(lane) = self.lanes.get_mut(&message.lane) {
            lane.order.remove(&(message.available_at, number));
            lane.order.insert((at, number));
            lane.news.notify_waiters();
        }
        message.available_at = at;
    }
}

#[async_trait]
impl StepQueue for MemoryQueue {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        let (now, messages_max) = (self.shared.clock.now(), self.shared.options.lane_messages_max);
        self.shared.lock().publish(lane, message, messages_max, now)
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let give_up_at = self.shared.clock.now().after(wait);
        let news = Arc::clone(&self.shared.lock().lanes.entry(lane.clone()).or_default().news);
        loop {
            // The notification is awaited from before the look, or one in between would be missed. Nothing is awaited after messages
            // were taken, so a fetch that is dropped takes none.
            let mut heard = std::pin::pin!(news.notified());
            heard.as_mut().enable();
            let next = match self.take(lane, max) {
                Ok(deliveries) => return Ok(deliveries),
                Err(next) => next,
            };
            let now = self.shared.clock.now();
            if now >= give_up_at {
                return Ok(Vec::new());
            }
            let wake_at = next.map_or(give_up_at, |next| cmp::min(next, give_up_at));
            tokio::select! {
                () = heard => {}
                () = self.shared.clock.sleep(wake_at.since(now)) => {}
            }
        }
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        let held = self.shared.lock().lanes.get(lane).map_or(0, |lane| lane.order.len());
        Ok(self.shared.options.lane_messages_max.saturating_sub(held))
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

/// The answer to one delivery. An ack counts even if the message was delivered again meanwhile, because the work is done. Other
/// answers count for the latest delivery only.
struct QueueReply {
    shared: Arc<Shared>,
    number: Number,
    delivery: u32,
}

#[async_trait]
impl Reply for QueueReply {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.shared.lock().remove(self.number);
        Ok(())
    }

    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError> {
        let at = self.shared.clock.now().after(delay);
        self.shared.lock().move_to(self.number, self.delivery, at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::policy::Tier;
    use podium_ports::clock::Ids;
    use podium_testkit::step_queue::QueueFixture;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    fn a_queue(options: QueueOptions) -> (MemoryQueue, Arc<dyn Clock>) {
        let clock: Arc<dyn Clock> = Arc::new(TestClock::new());
        (MemoryQueue::new(Arc::clone(&clock), options), clock)
    }

    fn fixture() -> QueueFixture {
        let options = QueueOptions { lane_messages_max: 10, ..QueueOptions::default() };
        let (queue, clock) = a_queue(options);
        QueueFixture {
            queue: Arc::new(queue),
            clock,
            ack_wait: options.ack_wait,
            slack: Duration::from_millis(1),
            long: Duration::from_hours(1),
            lane_messages_max: options.lane_messages_max,
        }
    }

    podium_testkit::step_queue_suite! { #[tokio::test(start_paused = true)] async { fixture() } }

    #[tokio::test(start_paused = true)]
    async fn acknowledged_messages_leave_no_state() {
        let (queue, clock) = a_queue(QueueOptions::default());
        let (ids, lane) = (SeededIds::new(1), Lane::Plan(Tier::Ultra));
        for _ in 0..100 {
            let message = TaskMessage::new(ids.run_id(clock.now()), TaskRef::Plan { round: 0 });
            queue.publish(&lane, message).await.unwrap();
            let mut fetched = queue.fetch(&lane, 1, Duration::ZERO).await.unwrap();
            let delivery = fetched.pop().unwrap();
            delivery.ack().await.unwrap();
        }
        let state = queue.shared.lock();
        assert!(state.messages.is_empty() && state.outstanding.is_empty());
        assert!(state.lanes.values().all(|lane| lane.order.is_empty()));
    }
}
