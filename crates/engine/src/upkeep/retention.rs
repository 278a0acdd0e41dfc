//! The remover deletes runs that ended long ago, a few at a time. Several may run on one store; each removes different runs.

use std::time::Duration;

use podium_ports::store::StoreError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::Context;

/// Pause after a full batch. With the default batch, one process removes up to 1,200 runs a second. That is more than are accepted,
/// and does not slow down other work of the store.
const BATCH_PAUSE: Duration = Duration::from_millis(50);

/// Removes runs that were kept for long enough.
pub(crate) struct Remover {
    context: Context,
    runs_kept: Duration,
    every: Duration,
    runs_max: u32,
}

impl Remover {
    /// `None` if runs are kept forever.
    pub(crate) fn new(context: Context) -> Option<Self> {
        let options = context.options();
        let (every, runs_max) = (options.remove_every, options.remove_runs_max.max(1));
        options.runs_kept.map(|runs_kept| Self { context, runs_kept, every, runs_max })
    }

    /// Begins at once, so that a process with frequent restarts also removes runs.
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
                () = self.context.parts().clock.sleep(if is_full { BATCH_PAUSE } else { self.every }) => {}
            }
        }
    }

    async fn remove(&self) -> Result<u32, StoreError> {
        self.context.clock_is_right().await;
        self.context.parts().store.remove_ended(self.context.now(), self.runs_kept, self.runs_max).await
    }
}
