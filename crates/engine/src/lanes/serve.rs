//! The loop of a lane, for planners and executors: it fetches as many messages as slots are free, claims each task and works on it,
//! and answers each message once.

use std::time::Duration;

use podium_ports::queue::{Delivery, Lane, TaskMessage};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::slots::{Slot, Slots};
use crate::claims::settle::{Settle, TROUBLE_PAUSE};
use crate::context::Context;

/// Delay after which a message for an unreadable run is redelivered, so that a process that can read the run gets it.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(5);
/// How often such a message is put back. Then it is dropped, so that it does not fill the lane. The sweeper of a process that can
/// read the run publishes the task again.
const UNREADABLE_DELIVERIES_MAX: u32 = 4;

/// The work on the tasks of a lane.
pub(crate) trait LaneWork: Clone + Send + Sync + 'static {
    /// A claimed task with all that the work on it needs.
    type Task: Send;

    /// Claims the task of a message, for work in `slot`. The error is the answer to the message.
    fn take(
        &self,
        message: TaskMessage,
        slot: Slot,
    ) -> impl Future<Output = Result<Self::Task, Settle>> + Send;

    /// Works on a claimed task and records the outcome. Returns another task if one was claimed in the same commit. If `abandon` is
    /// cancelled, it releases the task.
    fn carry_out(
        &self,
        task: Self::Task,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> impl Future<Output = Option<Self::Task>> + Send;
}

/// Whether the queue has confirmed that the message of a claimed task is gone.
#[derive(Default)]
pub(crate) struct Acked(CancellationToken);

impl Acked {
    /// Waits for the confirmation, or until none can come any more. A commit that may make the task ready again must wait for this,
    /// because the queue refuses a new message of the task until then.
    pub(crate) async fn settled(&self) {
        self.0.cancelled().await;
    }
}

/// A lane and how it is served.
pub(crate) struct Service<W> {
    pub(crate) context: Context,
    pub(crate) lane: Lane,
    pub(crate) slots: Slots,
    pub(crate) work: W,
    /// Ends the loop; work in flight is finished.
    pub(crate) stop: CancellationToken,
    /// Cancelled when work in flight must be released.
    pub(crate) abandon: CancellationToken,
}

impl<W: LaneWork> Service<W> {
    /// Serves the lane until `stop`, then waits for the work in flight.
    pub(crate) async fn serve_lane(self) {
        let mut in_flight = JoinSet::new();
        // A cancelled fetch puts back its messages.
        let stop = self.stop.clone();
        while let Some(fetched) = stop.run_until_cancelled(self.fetch()).await {
            while in_flight.try_join_next().is_some() {}
            let Some(Fetched { first, deliveries }) = fetched else { break };
            let mut first = Some(first);
            for delivery in deliveries {
                let (work, abandon) = (self.work.clone(), self.abandon.clone());
                match first.take().or_else(|| self.slots.try_take(&self.lane)) {
                    Some(slot) => drop(in_flight.spawn(handle(work, delivery, slot, abandon))),
                    // A chained step took the slot meanwhile, so the message is left to another process.
                    None => drop(in_flight.spawn(answer(delivery, Settle::Nak(Duration::ZERO)))),
                }
            }
        }
        while in_flight.join_next().await.is_some() {}
    }

    /// Waits for a free slot and fetches at most as many messages as slots are free. `None` if the lane is not served.
    async fn fetch(&self) -> Option<Fetched> {
        let Self { context, lane, slots, .. } = self;
        loop {
            context.clock_is_right().await;
            let first = slots.take(lane).await?;
            let wanted = 1 + slots.free(lane);
            match context.parts().queue.fetch(lane, wanted, context.options().fetch_wait).await {
                Ok(deliveries) => {
                    context.metrics().lanes().fetched(lane, deliveries.len(), 1 + slots.free(lane));
                    return Some(Fetched { first, deliveries });
                }
                Err(error) => {
                    warn!(%lane, error = &error as &dyn std::error::Error, "could not fetch messages");
                    context.parts().clock.sleep(TROUBLE_PAUSE).await;
                }
            }
        }
    }
}

/// Messages, and the slot for the first of them.
struct Fetched {
    first: Slot,
    deliveries: Vec<Delivery>,
}

async fn handle<W: LaneWork>(work: W, delivery: Delivery, slot: Slot, abandon: CancellationToken) {
    let task = match work.take(*delivery.message(), slot).await {
        Ok(task) => task,
        Err(settle) => return answer(delivery, settle).await,
    };
    // After the claim, the lease in the store ensures that the task is repeated. So the queue only holds messages of waiting tasks.
    let acked = Acked::default();
    let ack = async {
        answer(delivery, Settle::Ack).await;
        acked.0.cancel();
    };
    // Work on the task, then on the tasks that are claimed together with results.
    let carry_out = async {
        let mut next = Some(task);
        while let Some(task) = next {
            next = work.carry_out(task, &acked, &abandon).await;
        }
    };
    tokio::join!(ack, carry_out);
}

async fn answer(delivery: Delivery, settle: Settle) {
    let run = delivery.message().run;
    let answered = match settle {
        Settle::Nak(delay) => delivery.nak(delay).await,
        Settle::Unreadable if delivery.deliveries() < UNREADABLE_DELIVERIES_MAX => {
            delivery.nak(UNREADABLE_PAUSE).await
        }
        Settle::Ack | Settle::Unreadable => delivery.ack().await,
    };
    if let Err(error) = answered {
        debug!(%run, error = &error as &dyn std::error::Error, "a message was not answered");
    }
}
