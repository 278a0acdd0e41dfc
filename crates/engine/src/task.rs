//! What planning and steps have in common: a lane is served with so many slots, a task is claimed before it is worked on,
//! and its message is answered once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::money::Cost;
use podium_domain::run::{Claim, Command, Refusal, Run, TaskRef};
use podium_ports::queue::{Delivery, Lane, TaskMessage};
use podium_ports::store::Hold;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::commands::CommandError;
use crate::engine::Engine;
use crate::holds::Held;

/// Pause after the queue or the store failed, before the next try.
const TROUBLE_PAUSE: Duration = Duration::from_millis(500);
/// How long a message for a task that somebody else holds stays away.
const HELD_PAUSE: Duration = Duration::from_secs(5);

/// How to answer a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// There is nothing more to do for it.
    Ack,
    /// Bring it again after this time.
    Nak(Duration),
}

/// A task in hand: claimed in the store, its lease kept alive.
pub(crate) struct Claimed {
    pub(crate) run: Arc<Run>,
    pub(crate) task: TaskRef,
    pub(crate) claim: ClaimId,
    pub(crate) held: Held,
}

/// One kind of work.
pub(crate) trait Work: Clone + Send + Sync + 'static {
    /// Does what the message says, and says how to answer it. `abandon` orders to hand the work back.
    fn work(&self, message: TaskMessage, abandon: CancellationToken) -> impl Future<Output = Settle> + Send;
}

/// Serves a lane with `slots` until `stop`, then waits for the work under way.
pub(crate) async fn serve_lane<W: Work>(
    engine: Engine,
    (lane, slots): (Lane, usize),
    work: W,
    stop: CancellationToken,
    abandon: CancellationToken,
) {
    let free = Arc::new(Semaphore::new(slots));
    let mut under_way = JoinSet::new();
    while !stop.is_cancelled() {
        while under_way.try_join_next().is_some() {}
        // Pull is the back-pressure: no more is fetched than can be worked on at once.
        let Ok(first) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let fetch =
            engine.parts().queue.fetch(&lane, 1 + free.available_permits(), engine.options().fetch_wait);
        let fetched = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            fetched = fetch => fetched,
        };
        let deliveries = match fetched {
            Ok(deliveries) => deliveries,
            Err(error) => {
                warn!(%lane, error = &error as &dyn std::error::Error, "could not fetch");
                engine.parts().clock.sleep(TROUBLE_PAUSE).await;
                continue;
            }
        };
        let mut first = Some(first);
        for delivery in deliveries {
            let permit = match first.take() {
                Some(permit) => permit,
                None => match Arc::clone(&free).acquire_owned().await {
                    Ok(permit) => permit,
                    Err(_) => return,
                },
            };
            let (engine, work, abandon) = (engine.clone(), work.clone(), abandon.clone());
            under_way.spawn(async move {
                handle(&engine, delivery, &work, abandon).await;
                drop(permit);
            });
        }
    }
    while under_way.join_next().await.is_some() {}
}

async fn handle<W: Work>(engine: &Engine, delivery: Delivery, work: &W, abandon: CancellationToken) {
    let message = *delivery.message();
    let settle = tokio::select! {
        biased;
        settle = work.work(message, abandon) => settle,
        never = stay_in_progress(engine, &delivery) => match never {},
    };
    let answered = match settle {
        Settle::Ack => delivery.ack().await,
        Settle::Nak(delay) => delivery.nak(delay).await,
    };
    if let Err(error) = answered {
        debug!(run = %message.run, error = &error as &dyn std::error::Error, "a message was not answered");
    }
}

async fn stay_in_progress(engine: &Engine, delivery: &Delivery) -> Infallible {
    let lease = engine.options().lease;
    loop {
        engine.parts().clock.sleep(lease / 3).await;
        // Who cannot extend the lease in the store must not keep the message from those who can.
        if engine.holds().are_cut_off(engine.now(), lease) {
            continue;
        }
        if let Err(error) = delivery.in_progress().await {
            debug!(error = &error as &dyn std::error::Error, "the queue does not know of the progress");
        }
    }
}

impl Engine {
    /// Claims a task. The claim is durable before this returns; no call may be made without it.
    pub(crate) async fn claim(&self, run: RunId, task: TaskRef, reserve: Cost) -> Result<Claimed, Settle> {
        let id = self.parts().ids.claim_id();
        let claim = Claim {
            id,
            executor: self.options().executor.clone(),
            lease_until: self.now().after(self.options().lease),
            reserve,
        };
        let held = self.holds().register(Hold { run, task, claim: id });
        match self.commands().send(run, Command::Claim { task, claim }).await {
            Ok(run) if run.task(task).is_some_and(|task| task.is_held_by(id)) => {
                held.committed();
                Ok(Claimed { run, task, claim: id, held })
            }
            // The claim ended the run: the deadline had passed, or the cost cap was reached.
            Ok(_) => Err(Settle::Ack),
            Err(error) => Err(self.settle_unclaimed(run, &error)),
        }
    }

    fn settle_unclaimed(&self, run: RunId, error: &CommandError) -> Settle {
        match error {
            CommandError::Refused(Refusal::Held) => Settle::Nak(HELD_PAUSE),
            CommandError::Refused(Refusal::NotBefore(at)) => Settle::Nak(at.since(self.now())),
            CommandError::Refused(_) | CommandError::UnknownRun | CommandError::Damaged => Settle::Ack,
            CommandError::Contended | CommandError::Store(_) | CommandError::Stopped => {
                warn!(%run, %error, "could not claim");
                Settle::Nak(TROUBLE_PAUSE)
            }
        }
    }

    /// Records what work came to, however often the store has to be asked: what was paid for must not be lost. Gives up
    /// only when told to abandon; then the lease runs out and the task is done again.
    pub(crate) async fn record(&self, run: RunId, command: Command, abandon: &CancellationToken) -> Settle {
        loop {
            match self.commands().send(run, command.clone()).await {
                Ok(_) | Err(CommandError::UnknownRun | CommandError::Damaged | CommandError::Stopped) => {
                    return Settle::Ack;
                }
                Err(CommandError::Refused(refusal)) => {
                    debug!(%run, %refusal, "a result was not needed");
                    return Settle::Ack;
                }
                Err(error @ (CommandError::Contended | CommandError::Store(_))) => {
                    warn!(%run, error = &error as &dyn std::error::Error, "a result could not be recorded yet");
                    tokio::select! {
                        biased;
                        () = abandon.cancelled() => return Settle::Nak(Duration::ZERO),
                        () = self.parts().clock.sleep(TROUBLE_PAUSE) => {}
                    }
                }
            }
        }
    }
}
