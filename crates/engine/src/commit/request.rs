//! A request to the command loop, and its errors.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::pool::Pool;
use podium_domain::run::{Command, Refusal, Run, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::StoreError;
use tokio::sync::oneshot;

/// Most times that a batch is decided again because another process committed first; then its callers get an error.
pub(super) const CONFLICTS_MAX: u32 = 16;
/// Longest time for which a message is put back for its task's next attempt. A task that waits longer is published when it is due.
const PUT_BACK_MAX: Duration = Duration::from_secs(2);

/// A command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// The run does not exist.
    #[error("the run does not exist")]
    UnknownRun,
    /// The run refuses the command.
    #[error("the run does not allow it")]
    Refused(#[source] Refusal),
    /// Other processes kept committing to the run first.
    #[error("other processes committed to the run {CONFLICTS_MAX} times in a row")]
    Contended,
    /// The store failed. The command may have been carried out: repeating it is safe.
    #[error("the store failed")]
    Store(#[source] Arc<StoreError>),
    /// The stored data of the run cannot be read.
    #[error("the run cannot be read")]
    Damaged,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// The bounds of a loop that works in batches.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Most requests in a batch.
    pub(crate) batch: usize,
    /// Most batches in flight.
    pub(crate) batches: usize,
    /// Most requests that wait.
    pub(crate) waiting: usize,
}

/// One or two commands for one commit.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) command: Arc<Command>,
    /// A second command, decided right after the first. It is left out if the run refuses it; the caller sees that in the run.
    pub(crate) then: Option<Command>,
}

impl Order {
    pub(crate) fn both(command: Command, then: Option<Command>) -> Self {
        Self { command: Arc::new(command), then }
    }
}

impl From<Command> for Order {
    fn from(command: Command) -> Self {
        Self::both(command, None)
    }
}

/// A message that its receiver has not answered yet. Until it is acked, the queue refuses a second message of the task in the lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldMessage {
    /// The task of the message.
    pub(crate) task: TaskRef,
    /// The lane that it came from.
    pub(crate) lane: Lane,
}

impl HeldMessage {
    /// The delay with which the sender must put back the message, if a commit made its task ready again in its lane. `None` if the
    /// task gets a new message or needs none: a message with a longer delay would only take up capacity of the lane.
    pub(crate) fn put_back_for(&self, run: &Run, pool: &Pool, now: Timestamp) -> Option<Duration> {
        let TaskState::Ready { not_before } = run.task(self.task)?.state else { return None };
        let delay = not_before.since(now);
        (delay <= PUT_BACK_MAX && Lane::of(run, self.task, pool) == self.lane).then_some(delay)
    }
}

pub(super) struct Request {
    pub(super) run: RunId,
    pub(super) order: Order,
    /// The message that the sender holds.
    pub(super) message: Option<HeldMessage>,
    /// The budget that lacks the capacity for an earlier decision; the run ends instead.
    pub(super) shortage: Option<Shortage>,
    pub(super) reply: oneshot::Sender<Result<Arc<Run>, CommandError>>,
}

impl Request {
    /// Answers the sender, who may be gone.
    pub(super) fn answer(self, result: Result<Arc<Run>, CommandError>) {
        drop(self.reply.send(result));
    }
}
