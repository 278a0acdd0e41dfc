//! Waiting for a run's end, for those who want the answer and nothing before it: no event is read, and the run once.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::{EndSignal, EndSignals};
use podium_ports::store::StoreError;

use crate::engine::{Engine, WatchError};
use crate::parts::Parts;
use crate::submit::Draft;
use crate::watch::{next_of, or_without};

/// When the store is first read without a signal, which is lost with a process that dies between a commit and its telling.
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
    /// What this one has to create unless somebody claims it soon.
    draft: Option<Draft>,
}

impl Ending {
    pub(crate) async fn listen(engine: Engine, id: RunId) -> Self {
        let signals = subscribe_to_end(engine.parts(), id).await;
        Self { is_unsure: signals.is_none(), engine, id, signals, poll_after: POLL_AFTER, draft: None }
    }

    pub(crate) fn unsure(self) -> Self {
        Self { is_unsure: true, ..self }
    }

    /// The end of a run that was offered, and that may not be stored yet. `signals` come from whoever took it.
    pub(crate) fn of_draft(engine: Engine, draft: Draft, signals: EndSignals) -> Self {
        let id = draft.run_id();
        let (signals, draft) = (Some(signals), Some(draft));
        Self { engine, id, signals, is_unsure: false, poll_after: POLL_AFTER, draft }
    }

    /// Whether the run is known to be stored: then it ends, whatever happens to this process.
    pub fn is_secured(&self) -> bool {
        self.draft.is_none()
    }

    /// Makes sure that the run is stored, so that it ends whatever happens to this process.
    pub async fn secure(&mut self) -> Result<(), StoreError> {
        let Some(draft) = &self.draft else { return Ok(()) };
        // Once it is stored anybody may end it, and not only whoever took the offer. What was signalled before anybody listened is
        // found in the store.
        self.is_unsure = true;
        let listen = subscribe_to_end(self.engine.parts(), self.id);
        // It has no request id, so no other run can take its place.
        let (signals, created) = futures::future::join(listen, self.engine.create_drafted(draft)).await;
        self.signals = signals;
        created?;
        self.draft = None;
        Ok(())
    }

    /// The run once it has ended. It can be asked again if it was dropped before.
    pub async fn run(&mut self) -> Result<Arc<Run>, WatchError> {
        loop {
            let news = if self.is_unsure { EndSignal::Missed } else { self.news().await };
            if let EndSignal::Ended(Some(run)) = news
                && run.id() == self.id
                && run.is_ended()
            {
                return Ok(run);
            }
            self.secure().await?;
            let run = self.engine.run(self.id).await?.ok_or(WatchError::UnknownRun)?;
            if run.is_ended() {
                return Ok(Arc::new(run));
            }
            self.is_unsure = false;
        }
    }

    /// A reason to look whether the run has ended.
    async fn news(&mut self) -> EndSignal {
        let wait = if self.draft.is_some() { self.engine.options().draft_wait } else { self.poll_after };
        tokio::select! {
            biased;
            signal = next_of(&mut self.signals) => {
                let news = signal.unwrap_or(EndSignal::Missed);
                if news == EndSignal::Missed && self.draft.is_none() {
                    self.signals = subscribe_to_end(self.engine.parts(), self.id).await;
                }
                news
            }
            () = self.engine.parts().clock.sleep(wait) => {
                if self.draft.is_some() {
                    return EndSignal::Missed;
                }
                self.poll_after = POLL_AFTER_MAX.min(self.poll_after * 2);
                if self.signals.is_none() {
                    self.signals = subscribe_to_end(self.engine.parts(), self.id).await;
                }
                EndSignal::Missed
            }
        }
    }
}

async fn subscribe_to_end(parts: &Parts, id: RunId) -> Option<EndSignals> {
    or_without(id, parts.live.subscribe_to_end(id).await)
}
