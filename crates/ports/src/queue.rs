//! The port of the queue, whose messages say "this task may be ready". It may lose or repeat messages; the store is authoritative.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, VendorId};
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_domain::run::{Run, TaskRef};
use serde::{Deserialize, Serialize};

use crate::BoxError;

/// The name of the lane for steps whose worker is not in the pool. Executors take them from there and fail them.
const UNSERVED: &str = "unserved";

/// A separate queue for each tier and vendor, so that mini never waits behind ultra, nor one vendor behind another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Rounds that need a plan.
    Plan(Tier),
    /// Steps for a vendor's workers.
    Step(Tier, VendorId),
}

impl Lane {
    /// The lane of a task of `run`, if its workers are those of `pool`.
    pub fn of(run: &Run, task: TaskRef, pool: &Pool) -> Self {
        let tier = run.spec().request.policy.tier;
        match task {
            TaskRef::Plan { .. } => Self::Plan(tier),
            TaskRef::Step { .. } => {
                let worker = run.worker_of(task).and_then(|worker| pool.worker_or_retired(worker));
                Self::Step(tier, worker.map_or_else(unserved, |worker| worker.vendor.clone()))
            }
        }
    }

    /// The lanes of rounds that need a plan.
    pub const fn plans() -> [Self; 2] {
        [Self::Plan(Tier::Mini), Self::Plan(Tier::Ultra)]
    }

    /// Every lane of steps whose workers are those of `pool`.
    pub fn steps(pool: &Pool) -> Vec<Self> {
        let vendors = pool.vendors().iter().map(|vendor| vendor.id.clone()).chain([unserved()]);
        vendors
            .flat_map(|vendor| [Tier::Mini, Tier::Ultra].map(|tier| Self::Step(tier, vendor.clone())))
            .collect()
    }
}

fn unserved() -> VendorId {
    VendorId::new(UNSERVED).expect("it is a name")
}

/// The text that stores keep; [`Lane::from_str`] parses it.
impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(tier) => write!(f, "{}.plan", tier.as_str()),
            Self::Step(tier, vendor) => write!(f, "{}.step.{vendor}", tier.as_str()),
        }
    }
}

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(text: &str) -> Result<Self, UnknownLane> {
        let (tier, kind) = text.split_once('.').ok_or(UnknownLane)?;
        let tiers = [Tier::Mini, Tier::Ultra];
        let tier = tiers.into_iter().find(|known| known.as_str() == tier).ok_or(UnknownLane)?;
        match kind.split_once('.') {
            None if kind == "plan" => Ok(Self::Plan(tier)),
            Some(("step", vendor)) => {
                VendorId::new(vendor).map(|vendor| Self::Step(tier, vendor)).map_err(|_| UnknownLane)
            }
            _ => Err(UnknownLane),
        }
    }
}

/// The text is not the name of a lane that this version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lane is `<tier>.plan` or `<tier>.step.<vendor>`")]
pub struct UnknownLane;

/// A message for one task. If all messages are lost, the sweeper publishes them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskMessage {
    /// The version of the message's format; this version writes [`Self::VERSION`].
    pub version: u16,
    /// The run of the task.
    pub run: RunId,
    /// The task that may be ready.
    pub task: TaskRef,
}

impl TaskMessage {
    /// The version of the format that this version writes.
    pub const VERSION: u16 = 1;

    /// A message for a task, in the current format.
    pub const fn new(run: RunId, task: TaskRef) -> Self {
        Self { version: Self::VERSION, run, task }
    }
}

/// Carries messages with the semantics of a JetStream work queue.
///
/// A message that is not answered within the ack wait is delivered again. A task has at most one outstanding message, queued or in
/// flight: a second one is refused until the first is acknowledged.
///
/// Each lane has its own bound, so a stuck vendor fills its own lane only. Lanes are shallow: tasks that do not fit wait in the
/// store, where the dispatcher chooses fairly.
#[async_trait]
pub trait StepQueue: Send + Sync {
    /// Queues a message. A full lane refuses it with [`QueueError::Full`], unless the task already has an outstanding message.
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError>;

    /// Takes up to `max` messages; waits at most `wait` for the first. Returns none if none arrived.
    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// How many more messages fit the lane, as far as the queue knows; other publishers may fill it meanwhile.
    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError>;

    /// Checks that the queue answers; for readiness.
    async fn ping(&self) -> Result<(), QueueError>;
}

/// The result of publishing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The message is queued.
    Queued,
    /// The task already has an outstanding message; this one was dropped.
    AlreadyOutstanding,
}

/// A received message. It can be answered once; if it is dropped unanswered, it is delivered again after the ack wait.
#[must_use = "an unanswered delivery comes back after the ack wait"]
pub struct Delivery {
    message: TaskMessage,
    deliveries: u32,
    reply: Box<dyn Reply>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("message", &self.message)
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

impl Delivery {
    /// Wraps a message that an adapter received, with the way to answer it.
    pub fn new(message: TaskMessage, deliveries: u32, reply: Box<dyn Reply>) -> Self {
        Self { message, deliveries, reply }
    }

    /// The message.
    pub fn message(&self) -> &TaskMessage {
        &self.message
    }

    /// How often it was delivered, including this time.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// Removes the message: the task is done or needs no work.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.reply.ack().await
    }

    /// Asks for another delivery after `delay`.
    pub async fn nak(self, delay: Duration) -> Result<(), QueueError> {
        self.reply.nak(delay).await
    }
}

/// An adapter's way to answer one delivery. Answering a delivery that has timed out is no error.
#[async_trait]
pub trait Reply: Send + Sync {
    /// Removes the message.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;
    /// Makes the message available again after `delay`.
    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError>;
}

/// The queue failed. The sweeper publishes lost messages again.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The lane is full. The task waits in the store, so nothing is lost.
    #[error("lane {lane} is full at {messages_max} messages")]
    Full {
        /// The name of the lane.
        lane: String,
        /// Its bound, in messages.
        messages_max: usize,
    },
    /// It failed or did not answer.
    #[error("the queue failed")]
    Unavailable(#[source] BoxError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lanes_text_parses_back() {
        let step = |tier, vendor: &str| Lane::Step(tier, VendorId::new(vendor).unwrap());
        let [mini, ultra] = Lane::plans();
        for lane in [mini, ultra, step(Tier::Mini, "north"), step(Tier::Ultra, "a.b:c/d.plan")] {
            assert_eq!(lane.to_string().parse(), Ok(lane));
        }
        for bad in
            ["", "mini", "mini.nap", "nano.plan", "mini.plan.x", "mini.step", "mini.step.", "ultra.step.a b"]
        {
            assert_eq!(bad.parse::<Lane>(), Err(UnknownLane), "{bad}");
        }
    }
}
