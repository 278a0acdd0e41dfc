//! The end of a process: by a signal, or because a part of it failed.

use std::error::Error as StdError;

use podium_engine::LoopEnded;
use podium_setup::Signals;
use tokio::task::JoinError;
use tracing::{error, info, warn};

use crate::ClusterError;

/// The exit code after a second signal, as shells count an interrupt.
const INTERRUPTED: i32 = 130;

/// Waits for the first signal, or for a failure.
pub async fn first_signal(
    signals: &mut Signals,
    failure: impl Future<Output = ClusterError>,
) -> Result<(), ClusterError> {
    tokio::select! {
        name = signals.next() => {
            info!(signal = name, "stopping");
            Ok(())
        }
        error = failure => {
            error!(error = &error as &dyn StdError, "stopping, because a part of this process failed");
            Err(error)
        }
    }
}

/// Stops. A second signal ends the process at once.
pub async fn stop_or_second_signal(signals: &mut Signals, stop: impl Future<Output = ()>) {
    tokio::select! {
        () = stop => info!("stopped"),
        name = signals.next() => {
            warn!(signal = name, "ending at once; other processes take over the work under way");
            std::process::exit(INTERRUPTED);
        }
    }
}

/// The reason why the engine's loops ended before they were stopped.
pub fn engine_failure(ended: Option<Result<Result<(), LoopEnded>, JoinError>>) -> ClusterError {
    ClusterError::Failed(match ended {
        Some(Err(panic)) => panic.into(),
        Some(Ok(Err(ended))) => ended.into(),
        Some(Ok(Ok(()))) | None => "the engine's loops ended without an error".into(),
    })
}
