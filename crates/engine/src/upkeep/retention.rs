//! The remover: takes runs out of the store that ended long ago, a few at a time, so that the store stays as small as what is
//! to be kept. Any number may run on one store; each takes what the others do not.

use std::time::Duration;

use podium_ports::store::StoreError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::engine::Engine;

/// Pause after a full batch. With the default batch, one process removes up to 1,200 runs a second: more than are accepted,
/// and few enough to leave the store to those who work.
const BATCH_PAUSE: Duration = Duration::from_millis(50);

/// Removes what was kept for long enough.
pub(crate) struct Remover {
    engine: Engine,
    runs_kept: Duration,
    every: Duration,
    runs_max: u32,
}

impl Remover {
    /// `None` if runs are kept for ever.
    pub(crate) fn new(engine: Engine) -> Option<Self> {
        let options = engine.options();
        let (every, runs_max) = (options.remove_every, options.remove_runs_max.max(1));
        options.runs_kept.map(|runs_kept| Self { engine, runs_kept, every, runs_max })
    }

    /// Looks at once: a process that is often started anew removes, too.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut removed_before = 0;
        loop {
            let removed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                removed = self.remove() => removed,
            };
            let removed = removed.unwrap_or_else(|error| {
                warn!(error = &error as &dyn std::error::Error, "could not remove old runs");
                0
            });
            let is_full = removed == self.runs_max;
            removed_before += u64::from(removed);
            if !is_full && removed_before > 0 {
                info!(runs = removed_before, "removed runs that ended long ago");
                removed_before = 0;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.parts().clock.sleep(if is_full { BATCH_PAUSE } else { self.every }) => {}
            }
        }
    }

    async fn remove(&self) -> Result<u32, StoreError> {
        self.engine.clock_is_right().await;
        self.engine.parts().store.remove_ended(self.engine.now(), self.runs_kept, self.runs_max).await
    }
}
