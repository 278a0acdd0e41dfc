//! The queue. It loses, repeats, delays and reorders messages, and is wiped at times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::RunId;
use podium_domain::run::TaskRef;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, Reply, StepQueue, TaskMessage};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Broken, Core, Filled, Link, Service, Slot};

type Number = u64;

/// The result of a fetch: messages with their numbers and delivery counts.
type Fetched = Result<Vec<(TaskMessage, Number, u32)>, Broken>;

/// The queue.
pub(crate) struct QueueState {
    lanes: BTreeMap<Lane, LaneState>,
    outstanding: BTreeMap<(RunId, TaskRef), Number>,
    last: Number,
    ack_wait_ms: u64,
    lane_messages_max: usize,
}

#[derive(Default)]
struct LaneState {
    messages: BTreeMap<Number, Message>,
    waiters: Vec<Waiter>,
}

struct Message {
    about: TaskMessage,
    available_at: u64,
    deliveries: u32,
}

/// A waiting fetch.
struct Waiter {
    number: Number,
    node: usize,
    max: usize,
    slot: Arc<Slot<Fetched>>,
}

impl QueueState {
    pub(crate) fn new(ack_wait_ms: u64, lane_messages_max: usize) -> Self {
        let (lanes, outstanding) = (BTreeMap::new(), BTreeMap::new());
        Self { lanes, outstanding, last: 0, ack_wait_ms, lane_messages_max }
    }

    /// Messages queued or in flight.
    pub(crate) fn len(&self) -> usize {
        self.lanes.values().map(|lane| lane.messages.len()).sum()
    }

    /// Forgets all messages.
    pub(crate) fn wipe(&mut self) {
        self.outstanding.clear();
        self.lanes.values_mut().for_each(|lane| lane.messages.clear());
    }

    fn capacity(&self, lane: &Lane) -> usize {
        self.lane_messages_max.saturating_sub(self.lanes.get(lane).map_or(0, |lane| lane.messages.len()))
    }

    fn next_number(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    fn remove(&mut self, lane: &Lane, number: Number) {
        let removed = self.lanes.get_mut(lane).and_then(|lane| lane.messages.remove(&number));
        let task = removed.map(|removed| (removed.about.run, removed.about.task));
        if let Some(task) = task.filter(|task| self.outstanding.get(task) == Some(&number)) {
            self.outstanding.remove(&task);
        }
    }
}

impl Core {
    fn publish(&mut self, node: usize, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        let (lost, twice, tardy) =
            (self.rates.message_lost, self.rates.message_twice, self.rates.message_late);
        if self.dice.chance(lost) {
            self.count("message lost");
            return Ok(Published::Queued);
        }
        let task = (message.run, message.task);
        if self.queue.outstanding.contains_key(&task) {
            return Ok(Published::AlreadyOutstanding);
        }
        let messages_max = self.queue.lane_messages_max;
        if self.queue.capacity(lane) == 0 {
            self.count("lane full");
            return Err(QueueError::Full { lane: lane.to_string(), messages_max });
        }
        note!(self, "node {node}: publish {} {} to {lane}", message.run, message.task);
        let number = self.queue.next_number();
        self.queue.outstanding.insert(task, number);
        self.put(lane, number, message, tardy);
        if self.dice.chance(twice) {
            self.count("message repeated");
            let copy = self.queue.next_number();
            self.put(lane, copy, message, tardy);
        }
        Ok(Published::Queued)
    }

    fn put(&mut self, lane: &Lane, number: Number, message: TaskMessage, tardy: u64) {
        let delay = if self.dice.chance(tardy) { self.dice.between(1, 4_000) } else { 0 };
        let message = Message { about: message, available_at: self.now_ms + delay, deliveries: 0 };
        self.queue.lanes.entry(lane.clone()).or_default().messages.insert(number, message);
        self.serve_after(delay, lane);
    }

    /// Checks a lane again when a message becomes available.
    fn serve_after(&mut self, delay: u64, lane: &Lane) {
        if delay == 0 {
            return self.serve(lane);
        }
        let lane = lane.clone();
        self.after(delay, move |core| core.serve(&lane));
    }

    /// Hands the available messages to the waiting fetches.
    fn serve(&mut self, lane: &Lane) {
        let (now, ack_wait) = (self.now_ms, self.queue.ack_wait_ms);
        loop {
            let Some(state) = self.queue.lanes.get_mut(lane) else { return };
            state.waiters.retain(|waiter| !waiter.slot.is_given_up());
            let available = state.messages.iter().filter(|(_, message)| message.available_at <= now);
            let mut available: Vec<_> = available.map(|(number, _)| *number).collect();
            if available.is_empty() || state.waiters.is_empty() {
                return;
            }
            let waiter = state.waiters.remove(self.dice.index(state.waiters.len()));
            let mut fetched = Vec::new();
            while fetched.len() < waiter.max && !available.is_empty() {
                let number = available.remove(self.dice.index(available.len()));
                let Some(message) = state.messages.get_mut(&number) else { continue };
                message.available_at = now + ack_wait;
                message.deliveries += 1;
                fetched.push((message.about, number, message.deliveries));
            }
            let (back, lost) = (self.latency(), self.rates.answer_lost);
            self.serve_after(ack_wait, lane);
            if self.dice.chance(lost) || self.is_cut(waiter.node, Service::Queue) {
                self.count("delivery lost");
                continue;
            }
            note!(self, "node {}: {} of {lane} delivered", waiter.node, fetched.len());
            self.deliver(back, waiter.node, waiter.slot, Ok(fetched));
        }
    }

    fn fetch(&mut self, node: usize, lane: &Lane, max: usize, wait_ms: u64, slot: Arc<Slot<Fetched>>) {
        if self.is_away(Service::Queue) {
            let back = self.latency();
            return self.deliver(back, node, slot, Err(Broken::AWAY));
        }
        let number = self.queue.next_number();
        self.queue.lanes.entry(lane.clone()).or_default().waiters.push(Waiter { number, node, max, slot });
        self.serve(lane);
        let lane = lane.clone();
        self.after(wait_ms, move |core| {
            let Some(state) = core.queue.lanes.get_mut(&lane) else { return };
            let Some(place) = state.waiters.iter().position(|waiter| waiter.number == number) else { return };
            let waiter = state.waiters.remove(place);
            core.deliver(0, waiter.node, waiter.slot, Ok(Vec::new()));
        });
    }

    fn acknowledge(&mut self, lane: &Lane, number: Number) {
        if !self.is_mutated(Mutation::DeafQueue) {
            self.queue.remove(lane, number);
        }
    }

    /// Moves a message to another time if this is its last delivery.
    fn move_message(&mut self, lane: &Lane, number: Number, delivery: u32, in_ms: u64) {
        let at = self.now_ms + in_ms;
        let message = self.queue.lanes.get_mut(lane).and_then(|lane| lane.messages.get_mut(&number));
        if let Some(message) = message.filter(|message| message.deliveries == delivery) {
            message.available_at = at;
            self.serve_after(in_ms, lane);
        }
    }
}

/// A node's connection to the queue.
pub(crate) struct SimQueue(pub(crate) Link);

fn unavailable(broken: Broken) -> QueueError {
    QueueError::Unavailable(broken.into())
}

#[async_trait]
impl StepQueue for SimQueue {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        let (node, lane) = (self.0.node, lane.clone());
        let published = self.0.ask(Service::Queue, move |core| core.publish(node, &lane, message)).await;
        published.map_err(unavailable)?
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let (node, wanted, slot) = (self.0.node, lane.clone(), Slot::new());
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        {
            let mut core = self.0.world.lock();
            let there = core.latency();
            // As adapters must, a fetch ends even if its answer does not come.
            let patience = wait_ms + crate::world::PATIENCE_MS;
            core.deliver(patience, node, Arc::clone(&slot), Err(Broken::LATE));
            let waiting = Arc::clone(&slot);
            if !core.is_cut(node, Service::Queue) {
                core.after(there, move |core| core.fetch(node, &wanted, max, wait_ms, waiting));
            }
        }
        let fetched = Filled(slot).await.map_err(unavailable)?;
        Ok(fetched
            .into_iter()
            .map(|(message, number, delivery)| {
                let reply = SimReply { link: self.0.clone(), lane: lane.clone(), number, delivery };
                Delivery::new(message, delivery, Box::new(reply))
            })
            .collect())
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        let lane = lane.clone();
        self.0.ask(Service::Queue, move |core| core.queue.capacity(&lane)).await.map_err(unavailable)
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.0.ask(Service::Queue, |_| ()).await.map_err(unavailable)
    }
}

struct SimReply {
    link: Link,
    lane: Lane,
    number: Number,
    delivery: u32,
}

#[async_trait]
impl Reply for SimReply {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        let Self { link, lane, number, .. } = *self;
        let acked = link.ask(Service::Queue, move |core| core.acknowledge(&lane, number)).await;
        acked.map_err(unavailable)
    }

    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError> {
        let Self { link, lane, number, delivery } = *self;
        let in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let refuse = move |core: &mut Core| core.move_message(&lane, number, delivery, in_ms);
        link.ask(Service::Queue, refuse).await.map_err(unavailable)
    }
}
