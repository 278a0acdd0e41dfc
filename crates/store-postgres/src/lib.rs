//! Stores runs in Postgres, for a Podium of many processes.
//!
//! Events are stored as JSON with a format version, those of a commit in one row; a run is folded from them whenever it is loaded.
//! Narrow rows derived from the events serve searches: a state for each run, and a row for each task that is ready or running.
//!
//! Each batch is written by one statement, which is its own transaction: one round trip and one wait for the disk, and no lock is
//! held while a client computes. The statements are in `queries/`, checked against the tables when the crate is compiled.
//!
//! One time in the rows of tasks is *not* in the events: until when a ready task counts as published. So a commit changes the times
//! of a task only if its state or claim changed.
#![deny(missing_docs)]

mod accounts;
mod call;
mod charged;
mod clock;
mod columns;
mod connections;
mod inspect;
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
mod servers;
mod sessions;
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

pub use call::{NoAnswer, Standby};
pub use clock::ClockReading;
use connections::Connections;
pub use inspect::DatabaseFacts;
pub use open::OpenError;
pub use servers::NoPrimary;
pub use sessions::{Sessions, WrongSessions};

/// Whether opening a store applies pending migrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migrate {
    /// It does. If none is pending, the role needs no right to create tables.
    #[default]
    Auto,
    /// It does not: a store with pending migrations fails to open.
    Never,
}

/// Options of a store. The defaults suit a Postgres in the same data centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long after its earliest time a ready task that its writer publishes is left to the queue; after that, the sweeper
    /// publishes it again. Default: 2 s.
    pub dispatch_grace: Duration,
    /// Most connections. Default: 8. Times the number of processes, it must stay below the server's `max_connections`.
    pub connections_max: u32,
    /// How long a caller waits for a connection, including the time to connect. Default: 5 s.
    pub acquire_max: Duration,
    /// How long the server may work on one statement. Default: 10 s. The client gives up a little later, in case the server is gone.
    pub statement_max: Duration,
    /// How long a statement waits for a row that another one writes. Default: 5 s.
    pub lock_max: Duration,
    /// Whether connections are sessions. Default: they are.
    pub sessions: Sessions,
    /// Whether opening a store applies pending migrations. Default: it does.
    pub migrate: Migrate,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dispatch_grace: Duration::from_secs(2),
            connections_max: 8,
            acquire_max: Duration::from_secs(5),
            statement_max: Duration::from_secs(10),
            lock_max: Duration::from_secs(5),
            sessions: Sessions::Own,
            migrate: Migrate::Auto,
        }
    }
}

/// Runs in a Postgres database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    connections: Arc<Connections>,
    options: Options,
    removal: remove::Walk,
}

impl Store {
    /// How many of the process's connections are in use, and how many more may be: together the option `connections_max`.
    pub fn connections_in_use_and_free(&self) -> (usize, usize) {
        self.connections.in_use_and_free()
    }
}

#[async_trait]
impl RunLog for Store {
    async fn append(&self, commits: &[Commit]) -> Result<Vec<Result<Appended, Unwritten>>, StoreError> {
        write::append(self, commits).await
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<Option<Run>>, StoreError> {
        let runs: Vec<_> = runs.iter().copied().map(ToLoad::from).collect();
        read::load(self, &runs).await
    }

    async fn load_newer(&self, runs: &[ToLoad]) -> Result<Vec<Option<Run>>, StoreError> {
        read::load(self, runs).await
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
        _now: Timestamp,
        span: Duration,
    ) -> Result<bool, StoreError> {
        leases::extend(self, process, span).await
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
        sweep::unsettled(self, ended_by, after, limit).await
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

    async fn hold_lanes(
        &self,
        holder: ClaimId,
        lanes: &[Lane],
        _now: Timestamp,
        span: Duration,
    ) -> Result<Vec<Lane>, StoreError> {
        sweep::hold_lanes(self, holder, lanes, span).await
    }

    async fn hold_sweep(&self, holder: ClaimId, _now: Timestamp, span: Duration) -> Result<Turn, StoreError> {
        sweep::hold_sweep(self, holder, span).await
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
        remove::remove_ended(self, now, kept, limit).await
    }
}

#[async_trait]
impl RunStore for Store {
    async fn ping(&self) -> Result<(), StoreError> {
        read::ping(self).await
    }
}
