//! Records the result of a task. It tries until the store answers, because a paid result must not be lost.

use std::sync::Arc;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::store::ClaimRef;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::settle::TROUBLE_PAUSE;
use crate::commit::{CommandError, Order};
use crate::context::Context;

/// Most tries to record a result for a run that other processes keep changing. They take half a minute; then other work gets the
/// slot.
const CONTENDED_MAX: u32 = 60;

/// Records the outcome of a task whose message is acked. Returns the run after the commit.
///
/// Gives up if `abandon` is cancelled, or after [`CONTENDED_MAX`] tries on a run that other processes keep changing; then it disowns
/// the claim, and the task is repeated.
pub(crate) async fn record(
    context: &Context,
    run: RunId,
    order: impl Into<Order>,
    abandon: &CancellationToken,
) -> Option<Arc<Run>> {
    let (order, mut contended) = (order.into(), 0);
    loop {
        match context.commands().send(run, order.clone()).await {
            Ok(run) => return Some(run),
            Err(CommandError::UnknownRun | CommandError::Stopped) => return None,
            Err(CommandError::Refused(refusal)) => {
                debug!(%run, %refusal, "a result was not needed");
                return None;
            }
            // A process that can read the run repeats the task.
            Err(CommandError::Damaged) => {
                disown(context, run, &order);
                return None;
            }
            Err(error @ CommandError::Contended) if contended == CONTENDED_MAX => {
                warn!(%run, %error, "a result could not be recorded; its task is repeated");
                disown(context, run, &order);
                return None;
            }
            Err(error @ (CommandError::Contended | CommandError::Store(_))) => {
                contended += u32::from(matches!(error, CommandError::Contended));
                warn!(%run, error = &error as &dyn std::error::Error, "a result could not be recorded yet");
                tokio::select! {
                    biased;
                    () = abandon.cancelled() => return None,
                    () = context.parts().clock.sleep(TROUBLE_PAUSE) => {}
                }
            }
        }
    }
}

/// Disowns the claims that the order ends and makes, because nobody works on them any more.
fn disown(context: &Context, run: RunId, order: &Order) {
    for (task, claim) in order.claims() {
        context.leases().disown(ClaimRef { run, task, claim });
    }
}
