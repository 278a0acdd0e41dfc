//! Waiting for a run's end, for callers that want the answer and nothing before it: no event is read, and the run once.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::EndSignals;

use crate::engine::{Engine, WatchError};
use crate::front::watch::{finish, next_of, or_without};
use crate::options::Parts;

/// When the store is first read without a signal, which is lost with a process that dies between a commit and its signal.
/// Then after twice that, and so on up to the most: so a lost signal delays an end by no more than the run took already.
const POLL_AFTER: Duration = Duration::from_secs(1);
const POLL_AFTER_MAX: Duration = Duration::from_secs(16);

/// The end of a run, to come or past.
pub struct Ending {
    engine: Engine,
    id: RunId,
    /// None without a live stream: then the store is polled, and every poll subscribes again.
    signals: Option<EndSignals>,
    /// A subscription under way. The store is read when it is done, since the end may have been signalled before.
    subscribing: Option<BoxFuture<'static, Option<EndSignals>>>,
    /// Whether the run may have ended already, so that the store is read before anything else.
    may_be_over: bool,
    poll_after: Duration,
}

impl Ending {
    /// The end of a run that is about to be created.
    pub(crate) fn of_new(engine: Engine, id: RunId) -> Self {
        let subscribing = Some(subscribe_to_end(engine.parts().clone(), id));
        Self { engine, id, signals: None, subscribing, may_be_over: false, poll_after: POLL_AFTER }
    }

    /// The end of any run. If it is over, the live stream is not needed.
    pub(crate) fn of_known(engine: Engine, id: RunId) -> Self {
        Self { may_be_over: true, ..Self::of_new(engine, id) }
    }

    /// Subscribes. If this is dropped before it is done, [`Self::run`] goes on with it.
    pub(crate) async fn listen(&mut self) {
        if self.subscribing.is_some() {
            self.signals = finish(&mut self.subscribing).await;
        }
    }

    /// The run once it has ended. It can be asked again if it was dropped before.
    pub async fn run(&mut self) -> Result<Arc<Run>, WatchError> {
        loop {
            if !self.may_be_over {
                self.news().await;
            }
            let run = self.engine.run(self.id).await?.ok_or(WatchError::UnknownRun)?;
            if run.is_ended() {
                return Ok(Arc::new(run));
            }
            self.may_be_over = false;
        }
    }

    /// The time until the store is read without a signal. Without a live stream, reading is the only way to see the end.
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
                // The live stream has ended, or it failed.
                if signal.is_none() {
                    self.subscribe_again();
                }
            }
            () = self.engine.parts().clock.sleep(pause) => {
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
        self.subscribing = Some(subscribe_to_end(self.engine.parts().clone(), self.id));
    }
}

/// None if the live stream fails.
fn subscribe_to_end(parts: Parts, id: RunId) -> BoxFuture<'static, Option<EndSignals>> {
    async move { or_without(id, parts.live.subscribe_to_end(id).await) }.boxed()
}
