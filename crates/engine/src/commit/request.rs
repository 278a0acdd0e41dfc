//! A request to the command loop, and its errors.

use std::sync::Arc;

use podium_domain::budget::Shortage;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::{Command, Refusal, Run, TaskRef};
use podium_ports::store::StoreError;
use tokio::sync::oneshot;

/// Most times that a batch is decided again because another process committed first; then its callers get an error.
pub(super) const CONFLICTS_MAX: u32 = 16;

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

    /// The claim that the first command ends, and the claim that the second makes.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (TaskRef, ClaimId)> {
        let made = match &self.then {
            Some(Command::Claim { task, claim }) => Some((*task, claim.id)),
            _ => None,
        };
        self.command.claim().into_iter().chain(made)
    }
}

impl From<Command> for Order {
    fn from(command: Command) -> Self {
        Self::both(command, None)
    }
}

pub(super) struct Request {
    pub(super) run: RunId,
    pub(super) order: Order,
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
