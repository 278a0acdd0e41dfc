//! What planning and steps have in common: a lane is served with so many slots, and a task is claimed before it is worked on. Its
//! message is answered once: it is acked when the claim is committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::money::Cost;
use podium_domain::run::{Claim, Command, Refusal, Run, TaskRef};
use podium_domain::usage::Spent;
use podium_ports::queue::{Delivery, Lane, TaskMessage};
use podium_ports::store::Hold;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::claims::leases::Held;
use crate::commit::{CommandError, InHand};
use crate::engine::Engine;

/// Pause after the queue or the store failed, before the next try.
pub(crate) const TROUBLE_PAUSE: Duration = Duration::from_millis(500);
/// How often a result is recorded at a run that other processes keep changing, before its slot is given to other work. The first
/// tries take half a minute.
const CONTENDED_MAX: u32 = 60;
/// How long a message for a run that cannot be read here is kept back, so that a process which can read it gets it.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(5);
/// How often such a message is put back. Then it is dropped, so that a lane is not filled with messages that nobody can act on;
/// the sweeper of a process that can read the run publishes the task again.
const UNREADABLE_DELIVERIES_MAX: u32 = 4;
/// Pause before the next process is offered a task that this one lacks the worker or the conductor for.
const ABSENT_PAUSE: Duration = Duration::from_millis(500);
/// Such a task is failed, with the reason, when less time is left than this.
const ABSENT_END: Duration = Duration::from_secs(2);

/// How to answer a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// There is nothing more to do for it.
    Ack,
    /// Bring it again after this time.
    Nak(Duration),
    /// The run cannot be read here: it is for a process of another version.
    Unreadable,
}

/// A claim that is about to be committed. It is registered already, so that a run that ends right after the commit finds it.
pub(crate) struct Wish {
    task: TaskRef,
    claim: Claim,
    held: Held,
}

impl Wish {
    pub(crate) fn command(&self) -> Command {
        Command::Claim { task: self.task, claim: self.claim.clone() }
    }

    /// The task in hand, if the run says that the claim holds it.
    pub(crate) fn granted(self, run: Arc<Run>) -> Option<Claimed> {
        let Self { task, claim: Claim { id, .. }, held } = self;
        if !run.task(task)?.is_held_by(id) {
            return None;
        }
        held.committed();
        Some(Claimed { run, task, claim: id, held })
    }
}

/// A task in hand: claimed in the store, its lease kept alive.
pub(crate) struct Claimed {
    pub(crate) run: Arc<Run>,
    pub(crate) task: TaskRef,
    pub(crate) claim: ClaimId,
    pub(crate) held: Held,
}

/// The right to work on one task of a lane at a time, until dropped.
pub(crate) struct Slot {
    pub(crate) lane: Lane,
    _permit: OwnedSemaphorePermit,
}

/// The slots of the lanes that this process serves. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    lanes: Arc<BTreeMap<Lane, Arc<Semaphore>>>,
}

impl Slots {
    /// So many for each lane.
    pub(crate) fn new(lanes: impl IntoIterator<Item = Lane>, each: usize) -> Self {
        let lanes = lanes.into_iter().map(|lane| (lane, Arc::new(Semaphore::new(each))));
        Self { lanes: Arc::new(lanes.collect()) }
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.keys()
    }

    /// A slot of the lane if one is free.
    pub(crate) fn try_take(&self, lane: &Lane) -> Option<Slot> {
        let permit = Arc::clone(self.lanes.get(lane)?).try_acquire_owned().ok()?;
        Some(Slot { lane: lane.clone(), _permit: permit })
    }

    /// A slot of the lane as soon as one is free; `None` for a lane that is not served.
    async fn take(&self, lane: &Lane) -> Option<Slot> {
        let permit = Arc::clone(self.lanes.get(lane)?).acquire_owned().await.ok()?;
        Some(Slot { lane: lane.clone(), _permit: permit })
    }

    fn free(&self, lane: &Lane) -> usize {
        self.lanes.get(lane).map_or(0, |slots| slots.available_permits())
    }
}

/// One kind of work.
pub(crate) trait Work: Clone + Send + Sync + 'static {
    /// A task in hand: claimed, with all that it needs.
    type Task: Send;

    /// Claims the task of a message, to be worked on in a slot of its lane. Otherwise says how to answer the message.
    fn take(
        &self,
        message: TaskMessage,
        slot: Slot,
        abandon: &CancellationToken,
    ) -> impl Future<Output = Result<Self::Task, Settle>> + Send;

    /// Works on a task in hand and records the outcome. Gives a further task that was claimed in the same commit.
    /// `abandon` orders to hand the work back.
    fn carry_out(
        &self,
        task: Self::Task,
        acked: &Acked,
        abandon: &CancellationToken,
    ) -> impl Future<Output = Option<Self::Task>> + Send;
}

/// Whether the queue has confirmed that the message of a task in hand is gone.
#[derive(Default)]
pub(crate) struct Acked(CancellationToken);

impl Acked {
    /// Waits for it, or until it will not be confirmed any more. A commit that may make the task ready again comes after this:
    /// the queue refuses a new message of the task before.
    pub(crate) async fn settled(&self) {
        self.0.cancelled().await;
    }
}

/// Serves a lane with its slots until `stop`, then waits for the work under way.
pub(crate) async fn serve_lane<W: Work>(
    engine: Engine,
    (lane, slots): (Lane, Slots),
    work: W,
    stop: CancellationToken,
    abandon: CancellationToken,
) {
    let mut under_way = JoinSet::new();
    while !stop.is_cancelled() {
        while under_way.try_join_next().is_some() {}
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = engine.clock_is_right() => {}
        }
        // Pull is the back-pressure: no more is fetched than can be worked on at once.
        let Some(first) = slots.take(&lane).await else {
            return;
        };
        let wanted = 1 + slots.free(&lane);
        let fetch = engine.parts().queue.fetch(&lane, wanted, engine.options().fetch_wait);
        let fetched = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            fetched = fetch => fetched,
        };
        let deliveries = match fetched {
            Ok(deliveries) => deliveries,
            Err(error) => {
                warn!(%lane, error = &error as &dyn std::error::Error, "could not fetch");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = engine.parts().clock.sleep(TROUBLE_PAUSE) => continue,
                }
            }
        };
        engine.metrics().lanes().fetched(&lane, deliveries.len(), 1 + slots.free(&lane));
        let mut first = Some(first);
        for delivery in deliveries {
            let (work, abandon) = (work.clone(), abandon.clone());
            match first.take().or_else(|| slots.try_take(&lane)) {
                Some(slot) => {
                    under_way.spawn(async move { handle((delivery, slot), &work, &abandon).await });
                }
                // A chained step took the slot meanwhile: the message is for another process.
                None => drop(under_way.spawn(answer(delivery, Settle::Nak(Duration::ZERO)))),
            }
        }
    }
    while under_way.join_next().await.is_some() {}
}

async fn handle<W: Work>((delivery, slot): (Delivery, Slot), work: &W, abandon: &CancellationToken) {
    let task = match work.take(*delivery.message(), slot, abandon).await {
        Ok(task) => task,
        Err(settle) => return answer(delivery, settle).await,
    };
    // From the claim on, the lease in the store is what brings the task back. So the queue holds only tasks that wait.
    let acked = Acked::default();
    let ack = async {
        answer(delivery, Settle::Ack).await;
        acked.0.cancel();
    };
    tokio::join!(ack, carry_out(work, task, &acked, abandon));
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

/// Works on a task in hand, then on those that were claimed with the results of those before them.
async fn carry_out<W: Work>(work: &W, task: W::Task, acked: &Acked, abandon: &CancellationToken) {
    let mut next = Some(task);
    while let Some(task) = next {
        next = work.carry_out(task, acked, abandon).await;
    }
}

impl Engine {
    /// Claims the task of a message, which may cost nothing. The claim is durable before this returns; no call may be made without
    /// it.
    pub(crate) async fn claim(&self, run: RunId, message: &InHand) -> Result<Claimed, Settle> {
        self.claim_after(run, None, message, Cost::ZERO).await
    }

    /// How to answer the message of a task that this process cannot do and others may: they get it, until the run's deadline is
    /// near. Then nothing: it is to be failed, with the reason.
    pub(crate) fn leave_to_others(&self, run: &Run) -> Option<Settle> {
        let left = run.spec().deadline_at.since(self.now());
        (left > ABSENT_END).then(|| Settle::Nak(ABSENT_PAUSE.min(left.saturating_sub(ABSENT_END / 2))))
    }

    /// How to answer a message after its task may have become ready again.
    fn settle(&self, run: &Run, message: Option<&InHand>) -> Settle {
        let delay = message.and_then(|message| message.put_back_for(run, self.pool(), self.now()));
        delay.map_or(Settle::Ack, Settle::Nak)
    }

    /// How to answer a message whose task's result was refused: the store knows whether the task waits for somebody.
    async fn settle_refused(&self, run: RunId, message: Option<&InHand>) -> Settle {
        match (message, self.run(run).await) {
            (None, _) | (_, Ok(None)) => Settle::Ack,
            (message, Ok(Some(run))) => self.settle(&run, message),
            (_, Err(_)) => Settle::Nak(TROUBLE_PAUSE),
        }
    }

    /// As [`Self::claim`], once `first` is carried out, in the same commit. Where that is refused nothing is claimed.
    pub(crate) async fn claim_after(
        &self,
        run: RunId,
        first: Option<Command>,
        message: &InHand,
        reserve: Cost,
    ) -> Result<Claimed, Settle> {
        let wish = self.wish(run, message.task, reserve);
        if let Err(error) = self.holds().ensure_lease(self.parts(), self.options().lease).await {
            return Err(self.settle_unclaimed(run, &CommandError::Store(Arc::new(error))));
        }
        let (command, then) = match first {
            Some(first) => (Arc::new(first), Some(wish.command())),
            None => (Arc::new(wish.command()), None),
        };
        let send = || {
            let both = (Arc::clone(&command), then.clone());
            self.commands().send_both(run, both, Some(message.clone()))
        };
        let outcome = match send().await {
            // It may have been carried out. Then nobody else gets the task for a whole lease; and to repeat a claim is safe.
            Err(CommandError::Store(_)) => send().await,
            outcome => outcome,
        };
        match outcome {
            Ok(after) => {
                // Otherwise the claim ended the run: the deadline had passed, or the cost cap was reached.
                let settle = self.settle(&after, Some(message));
                wish.granted(after).ok_or(settle)
            }
            Err(error) => {
                if matches!(error, CommandError::Store(_)) {
                    self.release_later(run, &wish);
                }
                Err(self.settle_unclaimed(run, &error))
            }
        }
    }

    /// Hands back a claim that may stand although the store did not say so: nobody is going to be called for it, and its reservation
    /// must not stay in a budget. It is tried until the store answers or the lease has run out.
    fn release_later(&self, run: RunId, wish: &Wish) {
        let (engine, give_up_at) = (self.clone(), self.now().after(self.options().lease));
        let (task, claim, spent) = (wish.task, wish.claim.id, Spent::NONE);
        self.background().spawn(async move {
            let hand_back = Command::HandBack { task, claim, spent };
            while engine.now() < give_up_at {
                match engine.commands().send(run, hand_back.clone()).await {
                    Err(CommandError::Store(_) | CommandError::Contended) => {
                        engine.parts().clock.sleep(TROUBLE_PAUSE).await;
                    }
                    _ => return,
                }
            }
            warn!(%run, %task, "the store did not say whether a claim stands; its lease runs out");
        });
    }

    /// A claim that is about to be made.
    pub(crate) fn wish(&self, run: RunId, task: TaskRef, reserve: Cost) -> Wish {
        let id = self.parts().ids.claim_id();
        let claim = Claim {
            id,
            executor: self.options().executor.clone(),
            process: self.holds().process(),
            lease_until: self.now().after(self.longest_call().max(self.options().plan_time_max)),
            reserve,
        };
        Wish { task, claim, held: self.holds().register(Hold { run, task, claim: id }) }
    }

    fn settle_unclaimed(&self, run: RunId, error: &CommandError) -> Settle {
        match error {
            // Its lease may have run out, which the next sweep finds.
            CommandError::Refused(Refusal::Held) => Settle::Nak(self.options().sweep_every),
            // The process that delayed the task publishes it in time. A delay that a wrong clock wrote is bounded by a sweep.
            CommandError::Refused(Refusal::NotBefore(at)) => {
                Settle::Nak(at.since(self.now()).min(self.options().sweep_every))
            }
            // The step stands otherwise than it was known here: with another worker, it may still be claimed.
            CommandError::Refused(Refusal::NoFallback) => Settle::Nak(TROUBLE_PAUSE),
            CommandError::Damaged => Settle::Unreadable,
            CommandError::Refused(_) | CommandError::UnknownRun => Settle::Ack,
            CommandError::Contended | CommandError::Store(_) | CommandError::Stopped => {
                warn!(%run, %error, "could not claim");
                Settle::Nak(TROUBLE_PAUSE)
            }
        }
    }

    /// Records the outcome of work, however often the store fails: what was paid for must not be lost. Gives up when told to
    /// abandon, or after [`CONTENDED_MAX`] tries at a run that other processes keep changing; then the lease runs out and the task
    /// is done again. `message` is the one that brought the task, if one did.
    pub(crate) async fn record(
        &self,
        run: RunId,
        command: Command,
        message: &InHand,
        abandon: &CancellationToken,
    ) -> Settle {
        self.record_both(run, (command, None), Some(message), abandon).await.0
    }

    /// As [`Self::record`], with a further command in the same commit. Also gives the run as it is then, if it was recorded.
    pub(crate) async fn record_both(
        &self,
        run: RunId,
        (command, then): (Command, Option<Command>),
        message: Option<&InHand>,
        abandon: &CancellationToken,
    ) -> (Settle, Option<Arc<Run>>) {
        let command = Arc::new(command);
        let mut contended = 0;
        loop {
            let both = (Arc::clone(&command), then.clone());
            match self.commands().send_both(run, both, message.cloned()).await {
                Ok(run) => return (self.settle(&run, message), Some(run)),
                Err(error @ CommandError::Contended) if contended == CONTENDED_MAX => {
                    warn!(%run, %error, "a result could not be recorded, its task is done again");
                    return (Settle::Nak(TROUBLE_PAUSE), None);
                }
                Err(CommandError::Damaged) => return (Settle::Unreadable, None),
                Err(CommandError::UnknownRun | CommandError::Stopped) => return (Settle::Ack, None),
                Err(CommandError::Refused(refusal)) => {
                    debug!(%run, %refusal, "a result was not needed");
                    return (self.settle_refused(run, message).await, None);
                }
                Err(error @ (CommandError::Contended | CommandError::Store(_))) => {
                    contended += u32::from(matches!(error, CommandError::Contended));
                    warn!(%run, error = &error as &dyn std::error::Error, "a result could not be recorded yet");
                    tokio::select! {
                        biased;
                        () = abandon.cancelled() => return (Settle::Nak(Duration::ZERO), None),
                        () = self.parts().clock.sleep(TROUBLE_PAUSE) => {}
                    }
                }
            }
        }
    }
}
