//! Claims a task: the claim is durable before any call for it.

use std::sync::Arc;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::money::Cost;
use podium_domain::run::{Claim, Command, Run, TaskRef};
use podium_domain::usage::Spent;
use podium_ports::queue::TaskMessage;
use podium_ports::store::ClaimRef;

use super::leases::ClaimGuard;
use super::settle::Settle;
use crate::commit::{CommandError, Order};
use crate::context::Context;

/// A claim before its commit. It is already registered, so that a run that ends right after the commit can stop the work.
pub(crate) struct PendingClaim {
    task: TaskRef,
    claim: Claim,
    guard: ClaimGuard,
}

/// A claimed task. The lease of this process is extended until this is dropped.
pub(crate) struct Claimed {
    /// The run after the claim's commit.
    pub(crate) run: Arc<Run>,
    pub(crate) task: TaskRef,
    pub(crate) claim: ClaimId,
    pub(crate) guard: ClaimGuard,
}

impl Claimed {
    /// The command that releases the task. The attempt does not count, and what it spent is recorded.
    pub(crate) const fn hand_back(&self, spent: Spent) -> Command {
        Command::HandBack { task: self.task, claim: self.claim, spent }
    }
}

impl PendingClaim {
    /// A new claim. The attempt may cost at most `reserve`.
    pub(crate) fn new(context: &Context, run: RunId, task: TaskRef, reserve: Cost) -> Self {
        let id = context.parts().ids.claim_id();
        let claim = Claim {
            id,
            executor: context.options().executor.clone(),
            process: context.leases().process(),
            lease_until: context.now().after(context.longest_call().max(context.options().plan_time_max)),
            reserve,
        };
        Self { task, claim, guard: context.leases().register(ClaimRef { run, task, claim: id }) }
    }

    pub(crate) fn command(&self) -> Command {
        Command::Claim { task: self.task, claim: self.claim.clone() }
    }

    /// The claimed task, if the claim holds it in `run`.
    pub(crate) fn granted(self, run: Arc<Run>) -> Option<Claimed> {
        let Self { task, claim: Claim { id, .. }, guard } = self;
        if !run.task(task)?.is_held_by(id) {
            return None;
        }
        guard.committed();
        Some(Claimed { run, task, claim: id, guard })
    }
}

/// Claims the task of a message, at no cost. The claim is durable when this returns; no call may be made without it.
pub(crate) async fn claim(context: &Context, message: TaskMessage) -> Result<Claimed, Settle> {
    claim_after(context, None, message, Cost::ZERO).await
}

/// Claims the task of a message in the same commit as `first`, and after it. If `first` is refused, nothing is claimed.
pub(crate) async fn claim_after(
    context: &Context,
    first: Option<Command>,
    message: TaskMessage,
    reserve: Cost,
) -> Result<Claimed, Settle> {
    let TaskMessage { run, task, .. } = message;
    let pending = PendingClaim::new(context, run, task, reserve);
    if let Err(error) = context.leases().ensure_lease(context.parts(), context.options().lease).await {
        return Err(Settle::unclaimed(context, run, &CommandError::Store(Arc::new(error))));
    }
    let order = match first {
        Some(first) => Order::both(first, Some(pending.command())),
        None => pending.command().into(),
    };
    let send = || context.commands().send(run, order.clone());
    let outcome = match send().await {
        // The claim may be committed. Repeating a claim is safe.
        Err(CommandError::Store(_)) => {
            let repeated = send().await;
            if repeated.is_err() {
                give_up(context, run, &pending).await;
            }
            repeated
        }
        outcome => outcome,
    };
    match outcome {
        Ok(after) => {
            // Without a grant the claim ended the run: the deadline had passed, or the cost cap was reached.
            let settle = Settle::unclaimed_after(context, &after, task);
            pending.granted(after).ok_or(settle)
        }
        Err(error) => Err(Settle::unclaimed(context, run, &error)),
    }
}

/// Releases a claim that may be committed although no call follows. Handing it back is tried first, once: then the attempt does not
/// count, and the reservation ends at once.
async fn give_up(context: &Context, run: RunId, PendingClaim { task, claim, guard }: &PendingClaim) {
    let hand_back = Command::HandBack { task: *task, claim: claim.id, spent: Spent::NONE };
    if context.commands().send(run, hand_back).await.is_err() {
        guard.disown();
    }
}
