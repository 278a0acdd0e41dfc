//! A step that goes on where the one before it ended: claimed in the commit of that one's result, and called at once.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::StepIndex;
use podium_domain::pool::Worker;
use podium_domain::run::{Command, Effect, Run, TaskRef};
use podium_ports::limiter::{Outcome, Patience, Permit, Settlement};
use podium_ports::queue::Lane;
use podium_ports::vendor::ChatRequest;

use super::{Executor, Step, call, fallback, request};
use crate::commit::rehearse;
use crate::lanes::task::{Slot, Wish};

/// How long a result waits for the permit of the step after it before it is recorded alone.
const PERMIT_WAIT: Duration = Duration::from_millis(50);

/// A step that a result will make ready, and all that its call needs but the claim.
pub(super) struct Next {
    pub(super) wish: Wish,
    at: (u16, StepIndex),
    worker: Worker,
    permit: Box<dyn Permit>,
    room: Room,
}

/// Where a chained step runs.
enum Room {
    /// In the slot of the step before it.
    Inherited,
    /// In one of its own.
    Own(Slot),
}

impl Executor {
    /// A step that will be ready once `command` is carried out, with a slot and a permit for it. If others change the run meanwhile,
    /// the step may not be ready after all: then its claim is left out.
    pub(super) async fn next_after(&self, run: &Arc<Run>, command: &Command, lane: &Lane) -> Option<Next> {
        let engine = &self.engine;
        if self.stop.is_cancelled() || !matches!(command, Command::CompleteStep { .. }) {
            return None;
        }
        // Others may have finished what the next step also waits for.
        let mut after = (*engine.known().get(run.id()).unwrap_or_else(|| Arc::clone(run))).clone();
        let (_, effects) = rehearse(&mut after, command, engine.now()).ok()?;
        let mut ready = effects.iter().filter_map(|effect| match effect {
            Effect::Dispatch { task: TaskRef::Step { round, step }, .. } => Some((*round, *step)),
            _ => None,
        });
        let (at, room) = ready.find_map(|at| Some((at, self.room_for(&after, at, lane)?)))?;
        let task = TaskRef::Step { round: at.0, step: at.1 };
        let worker = engine.pool().worker(after.worker_of(task)?)?;
        if !worker.prices.is_valid_at(engine.now()) {
            return None;
        }
        let request = request(&after, at, worker)?;
        if !fallback::can_take(worker, &request) {
            return None;
        }
        // A known output is for the executor that gets the message.
        let recall = self.recall(&after, at, (worker, &request));
        if self.is_known(recall.as_ref()).await {
            return None;
        }
        let permit = self.permit_soon(&after, at, (worker, &request)).await?;
        let reserve = call::most_cost(worker, &request, engine.now());
        let wish = engine.wish(run.id(), task, reserve);
        Some(Next { wish, at, worker: worker.clone(), permit, room })
    }

    /// A permit, if it comes soon.
    async fn permit_soon(
        &self,
        run: &Run,
        at: (u16, StepIndex),
        asked: (&Worker, &ChatRequest),
    ) -> Option<Box<dyn Permit>> {
        tokio::select! {
            biased;
            permit = self.permit(run, at, asked, Patience::Waits) => permit.ok(),
            () = self.engine.parts().clock.sleep(PERMIT_WAIT) => None,
        }
    }

    /// Where the step can run now, if anywhere.
    fn room_for(&self, run: &Run, (round, step): (u16, StepIndex), before: &Lane) -> Option<Room> {
        let lane = Lane::of(run, TaskRef::Step { round, step }, self.engine.pool());
        if self.engine.dispatch().is_contended(&lane) {
            return None;
        }
        if lane == *before { Some(Room::Inherited) } else { self.slots.try_take(&lane).map(Room::Own) }
    }

    /// The step in hand, if the run grants its claim.
    pub(super) fn begin_next(
        &self,
        Next { wish, at, worker, permit, room }: Next,
        run: Arc<Run>,
        slot: Slot,
    ) -> Option<Step> {
        let slot = match room {
            Room::Inherited => slot,
            Room::Own(own) => own,
        };
        let Some(claimed) = wish.granted(run) else {
            permit.settle(Settlement::of(Outcome::NotSent));
            return None;
        };
        self.engine.metrics().waited(claimed.run.spec().policy.tier, Duration::ZERO);
        Some(Step { claimed, at, worker, permit, slot })
    }
}
