//! Waiting for a run's end, for callers that want the answer and nothing before it: no event is read, and the run once.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::EndSignals;

use crate::engine::{Engine, WatchError};
use crate::front::watch::{next_of, or_without};
use crate::options::Parts;

/// When the store is first read without a signal, which is lost with a process that dies between a commit and its signal.
/// Then after twice that, and so on up to the most: so a lost signal delays an end by no more than the run took already.
const POLL_AFTER: Duration = Duration::from_secs(1);
const POLL_AFTER_MAX: Duration = Duration::from_secs(16);

/// The end of a run, to come or past.
pub struct Ending {
    engine: Engine,
    id: RunId,
    /// None while the live stream fails: then the store is polled, and every poll tries again.
    signals: Option<EndSignals>,
    /// Whether the end may have been signalled before anybody listened.
    is_unsure: bool,
    poll_after: Duration,
}

impl Ending {
    pub(crate) async fn listen(engine: Engine, id: RunId) -> Self {
        let signals = subscribe_to_end(engine.parts(), id).await;
        Self { is_unsure: signals.is_none(), engine, id, signals, poll_after: POLL_AFTER }
    }

    pub(crate) fn unsure(self) -> Self {
        Self { is_unsure: true, ..self }
    }

    /// The run once it has ended. It can be asked again if it was dropped before.
    pub async fn run(&mut self) -> Result<Arc<Run>, WatchError> {
        loop {
            if !self.is_unsure {
                self.news().await;
            }
            let run = self.engine.run(self.id).await?.ok_or(WatchError::UnknownRun)?;
            if run.is_ended() {
                return Ok(Arc::new(run));
            }
            self.is_unsure = false;
        }
    }

    /// How long the store is left alone. While nothing is signalled, looking is the only way to hear of an end.
    const fn pause(&self) -> Duration {
        if self.signals.is_some() { self.poll_after } else { POLL_AFTER }
    }

    /// Waits for a reason to look whether the run has ended.
    async fn news(&mut self) {
        let pause = self.pause();
        tokio::select! {
            biased;
            signal = next_of(&mut self.signals) => {
                // The live stream has ended, or it failed: subscribe anew before the store is read.
                if signal.is_none() {
                    self.signals = subscribe_to_end(self.engine.parts(), self.id).await;
                }
            }
            () = self.engine.parts().clock.sleep(pause) => {
                if self.signals.is_none() {
                    self.signals = subscribe_to_end(self.engine.parts(), self.id).await;
                } else {
                    self.poll_after = POLL_AFTER_MAX.min(self.poll_after * 2);
                }
            }
        }
    }
}

async fn subscribe_to_end(parts: &Parts, id: RunId) -> Option<EndSignals> {
    or_without(id, parts.live.subscribe_to_end(id).await)
}
