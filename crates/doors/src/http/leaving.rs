//! Cancelling the run of a client that leaves before it has its answer.

use podium_api::ApiError;
use podium_domain::ids::RunId;
use podium_engine::{CommandError, Engine};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Door;
use crate::asking;

/// Cancels a run when this is dropped, unless the client has its answer or the server is stopping.
pub(super) struct Leaving {
    engine: Engine,
    run: RunId,
    stopping: CancellationToken,
    left: TaskTracker,
    is_armed: bool,
}

impl Leaving {
    /// A guard for a run. Only a run that nobody else can find is cancelled.
    pub(super) fn of(door: &Door, run: RunId, is_findable: bool) -> Self {
        let (engine, stopping, left) = (door.engine.clone(), door.stopping.clone(), door.left.clone());
        Self { engine, run, stopping, left, is_armed: !is_findable }
    }

    /// The client has its answer, or was told how to get it.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // A run that is cut off by a server that stops goes on elsewhere, or after the next start.
        if self.is_armed && !self.stopping.is_cancelled() {
            self.left.spawn(cancel(self.engine.clone(), self.run));
        }
    }
}

async fn cancel(engine: Engine, run: RunId) {
    match engine.cancel(run).await {
        Ok(_) => tracing::debug!(%run, "the client left, its run is cancelled"),
        Err(CommandError::Refused(_)) => {}
        Err(error) => {
            tracing::warn!(%run, error = asking::chain(&error), "the run of a client that left goes on");
        }
    }
}

/// Waits for a run to be accepted, and cancels it if the client leaves meanwhile. `accepting` goes on in a task of its own, as the
/// run may be stored when its client does not wait for it any more.
pub(super) async fn accept<T: Send + 'static>(
    door: &Door,
    is_findable: bool,
    accepting: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    run_of: fn(&T) -> RunId,
) -> Result<(T, Leaving), ApiError> {
    let (accepted, answer) = oneshot::channel();
    let (door, left) = (door.clone(), door.left.clone());
    left.spawn(async move {
        let asked = accepting.await.map(|asked| {
            let leaving = Leaving::of(&door, run_of(&asked), is_findable);
            (asked, leaving)
        });
        // A guard that cannot be handed over is dropped, which cancels the run.
        let _ = accepted.send(asked);
    });
    answer.await.map_err(|e| asking::defect(&e))?
}
