//! The store of runs, the only authoritative state.

mod run_catalog;
mod run_log;
mod task_board;

use async_trait::async_trait;
use podium_domain::ids::RunId;
use podium_domain::run::IllegalEvent;

use crate::BoxError;

pub use run_catalog::{Lack, RatedRun, RunCatalog, RunFilter, RunSummary, RunSums};
pub use run_log::{Appended, Commit, Place, PlacedTask, PublishBy, RunLog, ToLoad, Unwritten};
pub use task_board::{Again, AgainParts, ClaimRef, Due, LaneLoad, ReadyTask, TaskBoard, Turn};

/// A store of runs, with all its sides.
///
/// Every write is idempotent or guarded by a version, so a caller that lost the reply can repeat it.
#[async_trait]
pub trait RunStore: RunLog + TaskBoard + RunCatalog {
    /// Checks that the store answers; for readiness.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// The store failed or refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It failed or did not answer. The outcome is unknown.
    #[error("the store failed")]
    Unavailable(#[source] BoxError),
    /// It answered and changed nothing: part of the request is impossible, or impossible now, such as a write to a row that another
    /// transaction has locked. If the request had several parts, each of the others may succeed alone.
    #[error("the store refused the request")]
    Refused(#[source] BoxError),
    /// Stored data is invalid: a damaged row, or one written by a newer version.
    #[error("stored data of run {run} is invalid")]
    Inconsistent {
        /// The run.
        run: RunId,
        /// The problem.
        #[source]
        source: BoxError,
    },
    /// The run existed and was removed.
    #[error("run {run} was removed")]
    Removed {
        /// The run.
        run: RunId,
    },
}

impl StoreError {
    /// The error for events of `run` that cannot be folded.
    pub fn illegal(run: RunId, source: IllegalEvent) -> Self {
        Self::Inconsistent { run, source: Box::new(source) }
    }
}
