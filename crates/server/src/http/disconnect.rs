//! Cancels the run of a client that disconnects before it has its answer.

use podium_api::ApiError;
use podium_domain::ids::RunId;
use podium_engine::{CommandError, Engine};
use podium_ports::causes::with_causes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ServerState;
use crate::error_mapping;

/// Cancels a run when it is dropped, unless the client has its answer or the server is stopping.
pub(super) struct CancelOnDisconnect {
    engine: Engine,
    run: RunId,
    stopping: CancellationToken,
    left: TaskTracker,
    is_armed: bool,
}

impl CancelOnDisconnect {
    /// A guard for a run. Only a run that nobody else can find is cancelled.
    pub(super) fn of(state: &ServerState, run: RunId, is_findable: bool) -> Self {
        let (engine, stopping, left) = (state.engine.clone(), state.stopping.clone(), state.left.clone());
        Self { engine, run, stopping, left, is_armed: !is_findable }
    }

    /// The client has its answer, or an error that says how to get it.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDisconnect {
    fn drop(&mut self) {
        // If the server stops, the run goes on elsewhere or after the next start.
        if self.is_armed && !self.stopping.is_cancelled() {
            self.left.spawn(cancel(self.engine.clone(), self.run));
        }
    }
}

async fn cancel(engine: Engine, run: RunId) {
    match engine.cancel(run).await {
        Ok(_) => tracing::debug!(%run, "the client disconnected; its run was cancelled"),
        Err(CommandError::Refused(_)) => {}
        Err(error) => {
            tracing::warn!(%run, error = with_causes(&error), "a client disconnected, and its run could not be cancelled");
        }
    }
}

/// Waits for a run to be accepted, and cancels it if the client disconnects meanwhile. `accepting` runs in a task of its own,
/// because it may store the run after its client has disconnected.
pub(super) async fn accept<T: Send + 'static>(
    state: &ServerState,
    is_findable: bool,
    accepting: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    run_of: fn(&T) -> RunId,
) -> Result<(T, CancelOnDisconnect), ApiError> {
    let (accepted, answer) = oneshot::channel();
    let (state, left) = (state.clone(), state.left.clone());
    left.spawn(async move {
        let asked = accepting.await.map(|asked| {
            let guard = CancelOnDisconnect::of(&state, run_of(&asked), is_findable);
            (asked, guard)
        });
        // A guard that cannot be handed over is dropped, which cancels the run.
        let _ = accepted.send(asked);
    });
    answer.await.map_err(|e| error_mapping::defect(&e))?
}
