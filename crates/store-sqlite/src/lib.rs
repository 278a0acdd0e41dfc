//! Stores runs in one `SQLite` file, for a Podium that is embedded in one process.
//!
//! Events are stored as JSON with a format version; a run is folded from them whenever it is loaded. Narrow rows derived from the
//! events serve searches: one row for each run, and one for each task.
//!
//! Writes use one connection, because `SQLite` has one writer at a time anyway. Reads use several; under WAL they see the last
//! commit and never wait. Each connection is on a thread of its own. Other processes may have the same file open.
//!
//! One time in the rows of tasks is *not* in the events: until when a ready task counts as published. So a commit changes the times
//! of a task only if its state or claim changed.
#![deny(missing_docs)]

mod accounts;
mod charged;
mod connections;
mod leases;
mod migrate;
mod objects;
mod open;
mod operations;
#[cfg(test)]
mod plans;
mod ratings;
mod read;
mod remove;
mod row;
mod sweep;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::run::{Run, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::{
    Appended, ClaimRef, Commit, Due, LaneLoad, RatedRun, RunCatalog, RunFilter, RunLog, RunStore, RunSummary,
    StoreError, TaskBoard, ToLoad, Turn, Unwritten,
};
use rusqlite::{Connection, TransactionBehavior};

use crate::connections::Connections;
use crate::row::unavailable;

pub use open::OpenError;

/// Options of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long after its earliest time a ready task that its writer publishes is left to the queue; after that, the sweeper
    /// publishes it again.
    pub dispatch_grace: Duration,
    /// The number of connections for reading.
    pub readers: u32,
    /// When a commit reaches the disk.
    pub durability: Durability,
}

/// When a commit reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is reported: it survives a loss of power.
    Synced,
    /// When the operating system writes it: a loss of power may damage the file. For files that are thrown away.
    Unsynced,
}

impl Default for Options {
    fn default() -> Self {
        Self { dispatch_grace: Duration::from_secs(2), readers: 6, durability: Durability::Synced }
    }
}

/// Runs in a `SQLite` file. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    writer: Arc<Connections>,
    readers: Arc<Connections>,
    dispatch_grace: Duration,
}

impl Store {
    /// Reads. Each statement sees the last commit.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.call(move |connection| work(connection)).await
    }

    /// Writes in one transaction: all of `work` is committed, or nothing if it fails. It takes the write lock at once, because a
    /// transaction that reads first and writes later can be refused without waiting.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let write = move |connection: &mut Connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(unavailable)?;
            let written = work(&transaction)?;
            transaction.commit().map_err(unavailable)?;
            Ok(written)
        };
        self.writer.call(write).await
    }
}

#[async_trait]
impl RunLog for Store {
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        write::append(self, commits).await
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
        read::load(self, runs).await
    }

    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
        self.load(&ToLoad::ids(runs)).await
    }

    async fn events(&self, run: RunId, after: u64, limit: u32) -> Result<Vec<SequencedEvent>, StoreError> {
        read::events(self, run, after, limit).await
    }
}

#[async_trait]
impl TaskBoard for Store {
    async fn extend_lease(
        &self,
        process: ProcessId,
        now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError> {
        leases::extend(self, process, now, span).await
    }

    async fn held(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        leases::held(self, claims).await
    }

    async fn disown(&self, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
        leases::disown(self, claims).await
    }

    async fn due(
        &self,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
        except: &[RunId],
    ) -> Result<Due, StoreError> {
        sweep::due(self, now, again_at, limit, except).await
    }

    async fn unsettled(
        &self,
        ended_by: Timestamp,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunId>, StoreError> {
        read::unsettled(self, ended_by, after, limit).await
    }

    async fn take(
        &self,
        lane: &Lane,
        now: Timestamp,
        again_at: Timestamp,
        limit: u32,
    ) -> Result<Vec<(RunId, TaskRef)>, StoreError> {
        sweep::take(self, lane, now, again_at, limit).await
    }

    /// One process uses the store: it dispatches every lane.
    async fn hold_lanes(
        &self,
        _holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        Ok(lanes.to_vec())
    }

    /// One process uses the store: the turn is always its own.
    async fn hold_sweep(
        &self,
        _holder: ClaimId,
        _now: Timestamp,
        _span: Duration,
    ) -> Result<Turn, StoreError> {
        Ok(Turn::Own)
    }

    async fn put_back(&self, tasks: &[(RunId, TaskRef)]) -> Result<(), StoreError> {
        sweep::put_back(self, tasks).await
    }

    async fn lane_loads(&self) -> Result<Vec<LaneLoad>, StoreError> {
        operations::lane_loads(self).await
    }
}

#[async_trait]
impl RunCatalog for Store {
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunSummary>, StoreError> {
        read::list(self, tenant, filter, before, limit).await
    }

    async fn rate(
        &self,
        tenant: &TenantId,
        run: RunId,
        rating: &Rating,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        ratings::rate(self, tenant, run, rating, at).await
    }

    async fn rated(
        &self,
        tenant: &TenantId,
        after: Option<RunId>,
        before: RunId,
        limit: u32,
    ) -> Result<Vec<RatedRun>, StoreError> {
        ratings::rated(self, tenant, after, before, limit).await
    }

    async fn remove_ended(&self, now: Timestamp, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        objects::remove_old(self, now.before(kept), limit).await?;
        remove::remove_ended(self, now.before(kept), limit).await
    }
}

#[async_trait]
impl RunStore for Store {
    async fn ping(&self) -> Result<(), StoreError> {
        read::ping(self).await
    }
}
