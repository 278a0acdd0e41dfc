//! Waiting for a run's end, for those who want the answer and nothing before it: no event is read, and the run once.

use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::{Signal, Signals};

use crate::engine::{Engine, WatchError};
use crate::watch::{next_of, subscribe};

/// How often the store is read without a signal: a lost signal delays the end by this at most.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The end of a run, to come or past.
pub struct Ending {
    engine: Engine,
    id: RunId,
    /// None while the live stream fails: then the store is polled, and every poll tries again.
    signals: Option<Signals>,
    /// Whether the end may have been signalled before anybody listened.
    is_unsure: bool,
}

impl Ending {
    pub(crate) async fn listen(engine: Engine, id: RunId) -> Self {
        let signals = subscribe(engine.parts(), id).await;
        Self { is_unsure: signals.is_none(), engine, id, signals }
    }

    pub(crate) fn unsure(self) -> Self {
        Self { is_unsure: true, ..self }
    }

    /// The run once it has ended.
    pub async fn run(mut self) -> Result<Run, WatchError> {
        loop {
            if self.is_unsure || self.is_signalled().await {
                let run = self.engine.run(self.id).await?.ok_or(WatchError::UnknownRun)?;
                if run.is_ended() {
                    return Ok(run);
                }
                self.is_unsure = false;
            }
        }
    }

    /// Whether there is reason to look whether the run has ended.
    async fn is_signalled(&mut self) -> bool {
        tokio::select! {
            biased;
            signal = next_of(&mut self.signals) => match signal {
                Some(Signal::Ended { .. }) => true,
                Some(Signal::Missed) | None => {
                    self.signals = subscribe(self.engine.parts(), self.id).await;
                    true
                }
                Some(_) => false,
            },
            () = self.engine.parts().clock.sleep(POLL_EVERY) => {
                if self.signals.is_none() {
                    self.signals = subscribe(self.engine.parts(), self.id).await;
                }
                true
            }
        }
    }
}
