//! Waits for the end of a run or of a reply, for callers that need nothing before it: no event is read. If this process commits the
//! end of the run, the run is not loaded; otherwise it is loaded once.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::EndSignals;
use podium_ports::store::StoreError;

use super::outages::{OUTAGE_MAX, outlast};
use super::replies::as_of;
use super::watch::{WatchError, finish, next_of, or_without};
use crate::commit::Kept;
use crate::context::Context;
use crate::parts::Parts;

/// Time to the first read of the store without a signal, which is lost if a process dies between a commit and its signal. The time
/// doubles up to a bound: a lost signal delays the end by at most the time that the run took already.
const POLL_AFTER: Duration = Duration::from_secs(1);
const POLL_AFTER_MAX: Duration = Duration::from_mins(1);

/// The end of a run, or of one of its replies, in the future or the past.
pub struct Ending {
    context: Context,
    id: RunId,
    kept: Kept,
    /// The reply whose end is waited for; `None` for the end of the run.
    reply: Option<u16>,
    /// `None` without a live stream. Then the store is polled, and each poll subscribes again.
    signals: Option<EndSignals>,
    /// A pending subscription. The store is read when it is complete, because the end may have been signalled before.
    subscribing: Option<BoxFuture<'static, Option<EndSignals>>>,
    /// Whether the run may have ended already, so that the store is read first.
    may_be_over: bool,
    poll_after: Duration,
    /// The longest outage of the store that delays the caller and does not fail it. Zero while the run may be unknown.
    outage_max: Duration,
}

impl Ending {
    /// The end of the first reply of a run that is about to be created.
    pub(crate) fn of_new(context: Context, id: RunId) -> Self {
        let subscribing = Some(subscribe_to_end(context.parts().clone(), id));
        let kept = context.run_cache().keep(id);
        Self {
            context,
            id,
            kept,
            reply: Some(0),
            signals: None,
            subscribing,
            may_be_over: false,
            poll_after: POLL_AFTER,
            outage_max: OUTAGE_MAX,
        }
    }

    /// The end of any run, or of one of its replies. If that has passed, the live stream is not needed.
    pub(crate) fn of_known(context: Context, id: RunId, reply: Option<u16>) -> Self {
        Self { may_be_over: true, outage_max: Duration::ZERO, reply, ..Self::of_new(context, id) }
    }

    /// Subscribes. If this is dropped before it is complete, [`Self::run`] continues it.
    pub(crate) async fn listen(&mut self) {
        if self.subscribing.is_some() {
            self.signals = finish(&mut self.subscribing).await;
        }
    }

    /// The run at that end. The wait may be dropped and repeated.
    pub async fn run(&mut self) -> Result<Arc<Run>, WatchError> {
        loop {
            if !self.may_be_over {
                self.news().await;
            }
            let run = if let Some(run) = self.kept.ended() {
                run
            } else {
                Arc::new(self.stored_run().await?.ok_or(WatchError::UnknownRun)?)
            };
            self.outage_max = OUTAGE_MAX;
            match self.reply {
                None if run.is_ended() => return Ok(run),
                Some(reply) if run.has_replied(reply) => {
                    return as_of(self.context.parts(), run, reply).await.map_err(Into::into);
                }
                _ => {}
            }
            self.may_be_over = false;
        }
    }

    fn stored_run(&self) -> impl Future<Output = Result<Option<Run>, StoreError>> + Send + use<> {
        let (context, id, outage_max) = (self.context.clone(), self.id, self.outage_max);
        async move { outlast(&*context.parts().clock, id, outage_max, || context.run_for_client(id)).await }
    }

    /// The time to the next read of the store. Without a live stream, reading is the only way to notice the end.
    const fn pause(&self) -> Duration {
        if self.signals.is_some() { self.poll_after } else { POLL_AFTER }
    }

    /// Waits for a reason to read the store.
    async fn news(&mut self) {
        let pause = self.pause();
        tokio::select! {
            biased;
            signals = finish(&mut self.subscribing) => self.signals = signals,
            signal = next_of(&mut self.signals) => {
                // The live stream has ended or failed.
                if signal.is_none() {
                    self.subscribe_again();
                }
            }
            () = self.context.parts().clock.sleep(pause) => {
                if self.signals.is_some() {
                    self.poll_after = POLL_AFTER_MAX.min(self.poll_after * 2);
                } else if self.subscribing.is_none() {
                    self.subscribe_again();
                }
            }
        }
    }

    fn subscribe_again(&mut self) {
        self.signals = None;
        self.subscribing = Some(subscribe_to_end(self.context.parts().clone(), self.id));
    }
}

/// `None` if the live stream fails.
fn subscribe_to_end(parts: Parts, id: RunId) -> BoxFuture<'static, Option<EndSignals>> {
    async move { or_without(id, parts.live.subscribe_to_end(id).await) }.boxed()
}
