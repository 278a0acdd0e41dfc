//! The settler releases the reservations that ended runs still have for calls whose executor never reported.

use podium_domain::run::Command;
use podium_ports::store::StoreError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::commit::CommandError;
use crate::context::Context;

/// Most runs that are released together.
const RUNS_MAX: u32 = 64;

/// Releases reservations. Several may run on one store.
pub(crate) struct Settler {
    context: Context,
}

impl Settler {
    pub(crate) fn new(context: Context) -> Self {
        Self { context }
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let settled = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                settled = self.settle() => settled,
            };
            if let Err(error) = settled {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "could not release reservations of ended runs"
                );
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.context.parts().clock.sleep(self.context.options().settle_every) => {}
            }
        }
    }

    /// Goes through all such runs, page by page: an unreadable run delays no other.
    async fn settle(&self) -> Result<(), StoreError> {
        self.context.clock_is_right().await;
        let ended_by = self.context.now().before(self.context.longest_call());
        let (mut after, mut released) = (None, 0_usize);
        loop {
            let runs = self.context.parts().store.unsettled(ended_by, after, RUNS_MAX).await?;
            let release = runs.iter().map(|run| self.context.commands().send(*run, Command::ReleaseLost));
            for (run, outcome) in runs.iter().zip(futures::future::join_all(release).await) {
                match outcome {
                    Ok(_) => released += 1,
                    // The run was removed meanwhile, or its error is already logged.
                    Err(CommandError::UnknownRun | CommandError::Damaged | CommandError::Stopped) => {}
                    Err(error) => warn!(%run, %error, "could not release the reservation of an ended run"),
                }
            }
            after = runs.last().copied();
            if runs.len() < RUNS_MAX as usize {
                break;
            }
        }
        if released > 0 {
            info!(runs = released, "released reservations of calls whose executor never reported");
        }
        Ok(())
    }
}
