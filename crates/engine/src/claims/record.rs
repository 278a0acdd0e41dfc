//! Records the result of a task. It tries until the store answers, because a paid result must not be lost.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::{Command, Run};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::claim::release_in_background;
use super::settle::{Settle, TROUBLE_PAUSE};
use crate::commit::{CommandError, HeldMessage, Order};
use crate::context::Context;

/// Most tries to record a result for a run that other processes keep changing. They take half a minute; then other work gets the
/// slot.
const CONTENDED_MAX: u32 = 60;

/// The outcome of recording a result.
pub(crate) struct Recorded {
    /// The answer to the message of the task.
    pub(crate) settle: Settle,
    /// The run after the commit, if the result was recorded.
    pub(crate) run: Option<Arc<Run>>,
}

impl From<Settle> for Recorded {
    fn from(settle: Settle) -> Self {
        Self { settle, run: None }
    }
}

/// Records the outcome of a task. Gives up if `abandon` is cancelled, or after [`CONTENDED_MAX`] tries on a run that other processes
/// keep changing; then it releases the claim, and the task is repeated. `message` is the task's message, if it is not answered yet.
pub(crate) async fn record(
    context: &Context,
    run: RunId,
    order: impl Into<Order>,
    message: Option<&HeldMessage>,
    abandon: &CancellationToken,
) -> Recorded {
    let (order, mut contended) = (order.into(), 0);
    loop {
        match context.commands().send_holding(run, order.clone(), message.cloned()).await {
            Ok(run) => {
                return Recorded { settle: Settle::after(context, &run, message), run: Some(run) };
            }
            Err(error @ CommandError::Contended) if contended == CONTENDED_MAX => {
                warn!(%run, %error, "a result could not be recorded; its task is repeated");
                if let Some((task, claim)) = order.command.claim() {
                    release_in_background(context, run, Command::ExpireLease { task, claim });
                }
                return Settle::Nak(TROUBLE_PAUSE).into();
            }
            Err(CommandError::Damaged) => return Settle::Unreadable.into(),
            Err(CommandError::UnknownRun | CommandError::Stopped) => return Settle::Ack.into(),
            Err(CommandError::Refused(refusal)) => {
                debug!(%run, %refusal, "a result was not needed");
                return Settle::after_refusal(context, run, message).await.into();
            }
            Err(error @ (CommandError::Contended | CommandError::Store(_))) => {
                contended += u32::from(matches!(error, CommandError::Contended));
                warn!(%run, error = &error as &dyn std::error::Error, "a result could not be recorded yet");
                tokio::select! {
                    biased;
                    () = abandon.cancelled() => return Settle::Nak(Duration::ZERO).into(),
                    () = context.parts().clock.sleep(TROUBLE_PAUSE) => {}
                }
            }
        }
    }
}
