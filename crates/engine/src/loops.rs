//! Starts and stops the loops of a process: upkeep in every process, and the lanes of its work. They stop in order.

use podium_ports::queue::Lane;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::context::Context;
use crate::executor::Executor;
use crate::lanes::dispatcher::Dispatcher;
use crate::lanes::slots::Slots;
use crate::parts::Work;
use crate::planner::Planner;
use crate::upkeep::retention::Remover;
use crate::upkeep::settler::Settler;
use crate::upkeep::supervision::{LoopEnded, Supervision};
use crate::upkeep::sweeper::Sweeper;

/// The loops and the tokens that stop them.
pub(crate) struct Loops {
    context: Context,
    supervision: Supervision,
    /// Cancelled when the process stops.
    shutdown: CancellationToken,
    /// Cancelled when the loops of other parts take the new work.
    replaced: CancellationToken,
    /// Cancelled first, in both cases: no new work begins, and sweeps end.
    stop: CancellationToken,
    /// Cancelled after the drain time: work in flight is released.
    abandon: CancellationToken,
    /// Cancelled when no work is in flight any more: heartbeats end.
    ended: CancellationToken,
}

impl Loops {
    pub(crate) fn new(
        context: Context,
        supervision: Supervision,
        shutdown: CancellationToken,
        replaced: CancellationToken,
    ) -> Self {
        let (abandon, ended) = (CancellationToken::new(), CancellationToken::new());
        let stop = shutdown.child_token();
        Self { context, supervision, shutdown, replaced, stop, abandon, ended }
    }

    /// Runs all loops until `shutdown` or `replaced`, then waits for work in flight. After `shutdown` it waits at most for the drain
    /// time, and releases the rest.
    pub(crate) async fn run(self, work: Work) -> Result<(), LoopEnded> {
        let mut upkeep = self.start_upkeep(work.takes_tasks());
        let mut lanes = self.start_lanes(work);
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {}
            () = self.replaced.cancelled() => self.stop.cancel(),
            failed = self.supervision.ended() => return Err(failed),
        }
        let all_done = async { while lanes.join_next().await.is_some() {} };
        tokio::pin!(all_done);
        tokio::select! {
            biased;
            () = &mut all_done => {}
            () = self.drained() => {
                info!("the drain time is over; releasing work in flight");
                self.abandon.cancel();
                all_done.await;
            }
        }
        self.outlast_requests().await;
        self.ended.cancel();
        while upkeep.join_next().await.is_some() {}
        self.supervision.first().map_or(Ok(()), Err)
    }

    /// Waits until the process stops, then for the drain time.
    async fn drained(&self) {
        self.shutdown.cancelled().await;
        self.context.parts().clock.sleep(self.context.options().drain).await;
    }

    /// Requests that began on replaced parts may still claim tasks under their lease, so its heartbeat goes on for another lease.
    async fn outlast_requests(&self) {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {}
            () = self.context.parts().clock.sleep(self.context.options().lease) => {}
        }
    }

    /// Starts the loops that keep the store and the queue in order.
    fn start_upkeep(&self, takes_tasks: bool) -> JoinSet<()> {
        let (context, mut upkeep) = (&self.context, JoinSet::new());
        let (parts, lease) = (context.parts(), context.options().lease);
        let leases = || context.leases().clone();
        let beat = leases().beat(parts.clone(), lease, self.ended.clone());
        self.start(&mut upkeep, &self.ended, "heartbeat", beat);
        if takes_tasks {
            let listen = leases().listen(parts.clone(), self.ended.clone());
            self.start(&mut upkeep, &self.ended, "stop", listen);
        }
        let stop = || self.stop.clone();
        self.start(&mut upkeep, &self.stop, "sweep", Sweeper::new(context.clone()).run(stop()));
        self.start(&mut upkeep, &self.stop, "dispatch", Dispatcher::new(context.clone()).run(stop()));
        self.start(&mut upkeep, &self.stop, "settlement", Settler::new(context.clone()).run(stop()));
        if let Some(remover) = Remover::new(context.clone()) {
            self.start(&mut upkeep, &self.stop, "removal", remover.run(stop()));
        }
        upkeep
    }

    /// Starts the loops that take tasks from lanes.
    fn start_lanes(&self, Work { plan, execute }: Work) -> JoinSet<()> {
        let (context, mut lanes) = (&self.context, JoinSet::new());
        if let Some(parts) = execute {
            let slots = Slots::new(Lane::steps(context.pool()), context.options().step_slots);
            let executor = Executor::new(context.clone(), parts, slots.clone(), self.stop.clone());
            for lane in slots.lanes() {
                let serve = executor.clone().run(lane.clone(), self.abandon.clone());
                self.start(&mut lanes, &self.stop, "step lane", serve);
            }
        }
        if let Some(conductors) = plan {
            let planner = Planner::new(context.clone(), conductors);
            for lane in Lane::plans() {
                let serve = planner.clone().run(lane, self.stop.clone(), self.abandon.clone());
                self.start(&mut lanes, &self.stop, "plan lane", serve);
            }
        }
        lanes
    }

    /// Starts a loop that must not return before `end`.
    fn start(
        &self,
        loops: &mut JoinSet<()>,
        end: &CancellationToken,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        loops.spawn(self.supervision.clone().until(end.clone(), name, work));
    }
}
