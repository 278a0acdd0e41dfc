//! Decides how to answer a message whose task was not claimed: it was refused, or left to another process.

use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::{Refusal, Run, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use tracing::warn;

use crate::commit::CommandError;
use crate::context::Context;

/// Pause after the queue or the store failed, before the next try.
pub(crate) const TROUBLE_PAUSE: Duration = Duration::from_millis(500);
/// Pause before the queue redelivers a task whose worker or conductor this process lacks.
const ABSENT_PAUSE: Duration = Duration::from_millis(500);
/// If less time than this is left, such a task fails with the reason.
const ABSENT_END: Duration = Duration::from_secs(2);

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// The message is done.
    Ack,
    /// The message is delivered again after this time.
    Nak(Duration),
    /// This process cannot read the run. The message is for a process of another version.
    Unreadable,
}

impl Settle {
    /// After a commit that did not claim the task of the message. If the task is ready, this message is put back, because the queue
    /// may have refused a new one.
    pub(super) fn unclaimed_after(context: &Context, run: &Run, task: TaskRef) -> Self {
        match run.task(task).map(|task| &task.state) {
            Some(TaskState::Ready { not_before }) => Self::Nak(Self::until(context, *not_before)),
            _ => Self::Ack,
        }
    }

    /// The delay with which to put back the message of a task that may not be claimed yet. The process that delayed the task
    /// publishes it in time. If its clock is wrong, the next sweep does.
    fn until(context: &Context, not_before: Timestamp) -> Duration {
        not_before.since(context.now()).min(context.options().sweep_every)
    }

    /// After a claim failed.
    pub(super) fn unclaimed(context: &Context, run: RunId, error: &CommandError) -> Self {
        match error {
            // The lease may have expired; the next sweep finds that.
            CommandError::Refused(Refusal::Held) => Self::Nak(context.options().sweep_every),
            CommandError::Refused(Refusal::NotBefore(at)) => Self::Nak(Self::until(context, *at)),
            // The step has another worker than in the run cache. With that worker, the step may still be claimed.
            CommandError::Refused(Refusal::NoFallback) => Self::Nak(TROUBLE_PAUSE),
            CommandError::Damaged => Self::Unreadable,
            CommandError::Refused(_) | CommandError::UnknownRun => Self::Ack,
            CommandError::Contended | CommandError::Store(_) | CommandError::Stopped => {
                warn!(%run, %error, "could not claim");
                Self::Nak(TROUBLE_PAUSE)
            }
        }
    }

    /// The answer for a task that this process cannot do and others may: they get the message. `None` if the run's deadline is near:
    /// then the caller must fail the task with the reason.
    pub(crate) fn for_others(context: &Context, run: &Run) -> Option<Self> {
        let left = run.deadline_at().since(context.now());
        (left > ABSENT_END).then(|| Self::Nak(ABSENT_PAUSE.min(left.saturating_sub(ABSENT_END / 2))))
    }
}
