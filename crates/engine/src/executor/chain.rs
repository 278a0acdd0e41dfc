//! Chains steps: claims the next step of a run in the commit of the result before it, and makes its call at once.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::pool::Worker;
use podium_domain::run::{Command, Effect, Run, StepRef, TaskRef};
use podium_ports::limiter::{Patience, Permit};
use podium_ports::queue::Lane;
use tokio_util::sync::CancellationToken;

use super::fallback;
use super::permits::Permits;
use super::step_cache::CachedCalls;
use super::step_call::{StepCall, Taken, return_permit};
use crate::claims::claim::PendingClaim;
use crate::commit::rehearse;
use crate::context::Context;
use crate::lanes::slots::{Slot, Slots};

/// How long a result waits for the permit of the next step before it is recorded alone.
const PERMIT_WAIT: Duration = Duration::from_millis(50);

/// Finds the next step of a run. Cheap to clone.
#[derive(Clone)]
pub(super) struct Chain {
    pub(super) context: Context,
    pub(super) permits: Permits,
    pub(super) cache: CachedCalls,
    pub(super) slots: Slots,
    /// After its cancellation no step is chained.
    pub(super) stop: CancellationToken,
}

/// A step that a result will make ready, with everything that its call needs except the claim.
pub(super) struct NextStep {
    pub(super) pending: PendingClaim,
    step: StepRef,
    worker: Worker,
    permit: Box<dyn Permit>,
    /// Its own slot; `None` if it inherits the slot of the step before it.
    slot: Option<Slot>,
}

impl Chain {
    /// A step that will be ready after `command`, with a slot and a permit. If another process changes the run meanwhile, the step may
    /// not be ready, and then the commit omits its claim.
    pub(super) async fn next_after(
        &self,
        run: &Arc<Run>,
        command: &Command,
        lane: &Lane,
    ) -> Option<NextStep> {
        let context = &self.context;
        if self.stop.is_cancelled() || !matches!(command, Command::CompleteStep { .. }) {
            return None;
        }
        // Other processes may have finished steps that the next step also waits for.
        let mut after = (*context.run_cache().get(run.id()).unwrap_or_else(|| Arc::clone(run))).clone();
        let effects = rehearse(&mut after, command, context.now()).ok()?.effects;
        let after = Arc::new(after);
        let mut ready = effects.iter().filter_map(|effect| match effect {
            Effect::Dispatch { task, .. } => task.step(),
            Effect::CallOff { .. } | Effect::Stop => None,
        });
        let (step, slot) = ready.find_map(|step| Some((step, self.slot_for(&after, step.into(), lane)?)))?;
        let worker = context.pool().worker_or_retired(after.worker_of(step.into())?)?;
        if !worker.prices.is_valid_at(context.now()) {
            return None;
        }
        let call = StepCall::new(&after, step, worker)?;
        // A step with a cached output is left to the executor that gets its message.
        if !fallback::can_take(worker, &call.request) || self.cache.look_up(&call).await.is_some() {
            return None;
        }
        let permit = tokio::select! {
            biased;
            permit = self.permits.acquire(&call, Patience::Waits) => permit.ok()?,
            () = context.parts().clock.sleep(PERMIT_WAIT) => return None,
        };
        let pending = PendingClaim::new(context, run.id(), step.into(), call.cost_max(context.now()));
        Some(NextStep { pending, step, worker: call.worker, permit, slot })
    }

    /// The slot in which the task can run now: `Some(None)` is the slot of the step before it.
    #[expect(clippy::option_option, reason = "no slot, the inherited one, or one of its own")]
    fn slot_for(&self, run: &Run, task: TaskRef, before: &Lane) -> Option<Option<Slot>> {
        let lane = Lane::of(run, task, self.context.pool());
        if self.context.publisher().is_contended(&lane) {
            return None;
        }
        if lane == *before { Some(None) } else { self.slots.try_take(&lane).map(Some) }
    }

    /// The next step as claimed, if the run after the commit grants its claim. `slot` is that of the step before it.
    pub(super) fn begin(&self, next: NextStep, run: Arc<Run>, slot: Slot) -> Option<Taken> {
        let NextStep { pending, step, worker, permit, slot: own } = next;
        let Some(claimed) = pending.granted(run) else {
            return_permit(permit);
            return None;
        };
        self.context.metrics().waited(claimed.run.spec().request.policy.tier, Duration::ZERO);
        Some(Taken { claimed, step, worker, permit, slot: own.unwrap_or(slot) })
    }
}
