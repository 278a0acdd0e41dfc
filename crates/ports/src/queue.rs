//! The wake-up window: messages that say "this task may be ready". It may lose or repeat anything; the store is the truth.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{RunId, VendorId};
use podium_domain::policy::Tier;
use podium_domain::run::TaskRef;
use serde::{Deserialize, Serialize};

use crate::BoxError;

/// Where a message waits: separate lanes, so that mini never waits behind ultra nor one vendor behind another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Rounds to be planned.
    Plan(Tier),
    /// Steps for a vendor's workers.
    Step(Tier, VendorId),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(tier) => write!(f, "{}.plan", tier.as_str()),
            Self::Step(tier, vendor) => write!(f, "{}.step.{vendor}", tier.as_str()),
        }
    }
}

/// A message: ids only. Losing every message loses no run.
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
#[async_trait]
pub trait StepQueue: Send + Sync {
    /// Queues a message.
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError>;

    /// Takes up to `max` messages; waits at most `wait` for the first. Empty when none came.
    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

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
    /// The lane holds as many messages as it may.
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
