//! The leases of processes, and the claims that depend on them.

use std::collections::HashSet;
use std::time::Duration;

use podium_domain::ids::{ClaimId, ProcessId, RunId};
use podium_ports::store::{ClaimRef, StoreError};
use podium_store_format::task;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

/// How long the lease of a dead process is kept after its end.
const KEPT: Duration = Duration::from_hours(1);

pub(crate) async fn extend(store: &Store, process: ProcessId, span: Duration) -> Result<bool, StoreError> {
    store.call(&ExtendLease { process: *process.as_uuid(), span_ms: milliseconds(span) }).await
}

pub(crate) async fn held(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let held = store.call(&FindHeld(ClaimColumns::new(claims))).await?;
    let held = held.iter().map(ClaimRow::read).collect::<Result<HashSet<_>, _>>()?;
    Ok(claims.iter().map(|claim| held.contains(claim)).collect())
}

pub(crate) async fn disown(store: &Store, claims: &[ClaimRef]) -> Result<Vec<bool>, StoreError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let locked = store.call(&Disown(ClaimColumns::new(claims))).await?;
    let locked = locked.iter().map(ClaimRow::read).collect::<Result<HashSet<_>, _>>()?;
    Ok(claims.iter().map(|claim| !locked.contains(claim)).collect())
}

/// A time span for a statement that adds it to the current time.
pub(crate) fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX >> 1)
}

pub(crate) struct ClaimRow {
    pub(crate) run_id: Uuid,
    pub(crate) task: String,
    pub(crate) claim: Uuid,
}

impl ClaimRow {
    pub(crate) fn read(&self) -> Result<ClaimRef, StoreError> {
        let run = RunId::new(self.run_id);
        Ok(ClaimRef { run, task: task(run, &self.task)?, claim: ClaimId::new(self.claim) })
    }
}

/// Returns whether the process had a lease until now.
struct ExtendLease {
    process: Uuid,
    span_ms: i64,
}

impl Call for ExtendLease {
    type Answer = bool;

    async fn ask(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let Self { process, span_ms } = self;
        sqlx::query_file_scalar!("queries/extend_lease.sql", process, span_ms, milliseconds(KEPT))
            .fetch_one(connection)
            .await
    }
}

struct ClaimColumns {
    runs: Vec<Uuid>,
    tasks: Vec<String>,
    claims: Vec<Uuid>,
}

impl ClaimColumns {
    fn new(claims: &[ClaimRef]) -> Self {
        Self {
            runs: claims.iter().map(|claim| *claim.run.as_uuid()).collect(),
            tasks: claims.iter().map(|claim| claim.task.to_string()).collect(),
            claims: claims.iter().map(|claim| *claim.claim.as_uuid()).collect(),
        }
    }
}

/// Returns the claims that hold their tasks.
struct FindHeld(ClaimColumns);

impl Call for FindHeld {
    type Answer = Vec<ClaimRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let ClaimColumns { runs, tasks, claims } = &self.0;
        sqlx::query_file_as!(ClaimRow, "queries/find_held.sql", runs, tasks, claims)
            .fetch_all(connection)
            .await
    }
}

/// Returns the claims whose rows are locked.
struct Disown(ClaimColumns);

impl Call for Disown {
    type Answer = Vec<ClaimRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let ClaimColumns { runs, tasks, claims } = &self.0;
        sqlx::query_file_as!(ClaimRow, "queries/disown.sql", runs, tasks, claims).fetch_all(connection).await
    }
}

#[cfg(test)]
mod tests {
    use podium_harness::{Fsync, Postgres};
    use sqlx::{Connection, query_scalar};

    use super::*;
    use crate::Options;

    const LEASE: Duration = Duration::from_secs(4);

    fn process(number: u128) -> ProcessId {
        ProcessId::new(Uuid::from_u128(number))
    }

    async fn a_store() -> (Postgres, Store) {
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, Options::default()).await.unwrap();
        (postgres, store)
    }

    #[tokio::test]
    async fn an_extension_does_not_wait_for_the_disk_and_nothing_else_does_so() {
        let (_postgres, store) = a_store().await;
        let mut connection = store.connections.pool().acquire().await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let extend = ExtendLease { process: Uuid::nil(), span_ms: 1 };
        let show = || query_scalar::<_, String>("SHOW synchronous_commit");
        extend.ask(&mut transaction).await.unwrap();
        assert_eq!(show().fetch_one(&mut *transaction).await.unwrap(), "off");
        transaction.commit().await.unwrap();
        assert_eq!(show().fetch_one(&mut *connection).await.unwrap(), "on");
    }

    #[tokio::test]
    async fn a_new_process_removes_the_leases_of_processes_that_died_long_ago() {
        let (_postgres, store) = a_store().await;
        for number in 1..=3 {
            assert!(!extend(&store, process(number), LEASE).await.unwrap());
        }
        let mut connection = store.connections.pool().acquire().await.unwrap();
        let age = "UPDATE process_leases SET until_ms = until_ms - $1 WHERE process = ANY($2)";
        let dead = [*process(1).as_uuid(), *process(2).as_uuid()];
        let age = sqlx::query(age).bind(milliseconds(KEPT + LEASE)).bind(&dead[..]);
        age.execute(&mut *connection).await.unwrap();
        assert!(!extend(&store, process(2), LEASE).await.unwrap(), "it slept for long, and lives");
        assert!(!extend(&store, process(4), LEASE).await.unwrap());
        let left = query_scalar::<_, Uuid>("SELECT process FROM process_leases ORDER BY process");
        let left = left.fetch_all(&mut *connection).await.unwrap();
        assert_eq!(left, [2, 3, 4].map(|number| *process(number).as_uuid()));
    }
}
