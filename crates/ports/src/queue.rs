//! The wake-up window: messages that say "this task may be ready". It may lose or repeat anything; the store is the truth.

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

/// The vendor of steps whose worker the pool does not have (any more): they are to be failed with that reason.
const UNSERVED: &str = "unserved";

/// Where a message waits: separate lanes, so that mini never waits behind ultra nor one vendor behind another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Rounds to be planned.
    Plan(Tier),
    /// Steps for a vendor's workers.
    Step(Tier, VendorId),
}

impl Lane {
    /// Where a task of `run` waits when its workers are those of `pool`.
    pub fn of(run: &Run, task: TaskRef, pool: &Pool) -> Self {
        let tier = run.spec().policy.tier;
        match task {
            TaskRef::Plan { .. } => Self::Plan(tier),
            TaskRef::Step { .. } => {
                let worker = run.worker_of(task).and_then(|worker| pool.worker(worker));
                Self::Step(tier, worker.map_or_else(unserved, |worker| worker.vendor.clone()))
            }
        }
    }

    /// The lanes of rounds to be planned.
    pub const fn plans() -> [Self; 2] {
        [Self::Plan(Tier::Mini), Self::Plan(Tier::Ultra)]
    }

    /// Every lane that steps can wait in when their workers are those of `pool`.
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

/// Stores keep it: [`Lane::from_str`] reads it back.
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

/// The text names no lane that this version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lane is `<tier>.plan` or `<tier>.step.<vendor>`")]
pub struct UnknownLane;

/// A message. Losing every message loses no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskMessage {
    /// The form of the message; this is [`Self::VERSION`].
    pub version: u16,
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskRef,
}

impl TaskMessage {
    /// The form that this version writes.
    pub const VERSION: u16 = 1;

    /// A message for a task.
    pub const fn new(run: RunId, task: TaskRef) -> Self {
        Self { version: Self::VERSION, run, task }
    }
}

/// Carries messages with the semantics of a JetStream work queue.
///
/// A message is delivered again when it is not answered within the ack wait. A task has at most one message outstanding,
/// queued or in flight: a second one is refused until the first is acked.
///
/// Each lane is bounded by itself, so that a stuck vendor fills its own lane and no other. It is a window on what is ready, and
/// shallow: what does not fit waits in the store, where it can be chosen from fairly.
#[async_trait]
pub trait StepQueue: Send + Sync {
    /// Queues a message. A full lane refuses it with [`QueueError::Full`], unless the task has one outstanding already.
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError>;

    /// Takes up to `max` messages; waits at most `wait` for the first. Empty when none came.
    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// How many further messages the lane takes, as far as the queue knows: others may be faster.
    async fn room(&self, lane: &Lane) -> Result<usize, QueueError>;

    /// Whether the queue answers; for readiness.
    async fn ping(&self) -> Result<(), QueueError>;
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is queued.
    Queued,
    /// The task has one outstanding already.
    AlreadyOutstanding,
}

/// A message in hand. It can be answered once; dropped unanswered it comes back after the ack wait.
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
    /// Made by adapters.
    pub fn new(message: TaskMessage, deliveries: u32, reply: Box<dyn Reply>) -> Self {
        Self { message, deliveries, reply }
    }

    /// The message.
    pub fn message(&self) -> &TaskMessage {
        &self.message
    }

    /// How often it was delivered, this time included.
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// Done with it.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.reply.ack().await
    }

    /// Deliver it again, not before `delay` has passed.
    pub async fn nak(self, delay: Duration) -> Result<(), QueueError> {
        self.reply.nak(delay).await
    }

    /// Still at it: the ack wait begins anew.
    pub async fn in_progress(&self) -> Result<(), QueueError> {
        self.reply.in_progress().await
    }
}

/// How an adapter answers for one delivery. An answer to a delivery that timed out meanwhile is no error.
#[async_trait]
pub trait Reply: Send + Sync {
    /// Removes the message.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;
    /// Puts the message back for later.
    async fn nak(self: Box<Self>, delay: Duration) -> Result<(), QueueError>;
    /// Restarts the ack wait.
    async fn in_progress(&self) -> Result<(), QueueError>;
}

/// The queue could not do it. The sweeper publishes again whatever this loses.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The lane holds as many messages as it may. That is no trouble: the task waits in the store.
    #[error("lane {lane} is full at {messages_max} messages")]
    Full {
        /// Which lane.
        lane: String,
        /// Its bound.
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
    fn a_lane_reads_back_from_its_text() {
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
