//! Removing runs that ended long ago.

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;
use podium_ports::stored::stored;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

pub(crate) async fn remove_ended(store: &Store, ended_by: Timestamp, limit: u32) -> Result<u32, StoreError> {
    let later = Timestamp::from_unix_ms(ended_by.unix_ms().saturating_add(1));
    let before = *RunId::least_at(later).as_uuid();
    store.call(&RemoveEnded { before, ended_by: stored(ended_by.unix_ms()), limit: limit.into() }).await
}

/// Gives how many were removed.
struct RemoveEnded {
    before: Uuid,
    ended_by: i64,
    limit: i64,
}

impl Call for RemoveEnded {
    type Answer = u32;

    /// Two statements: a single one would not see events that were committed after it began and before it had the locks, and
    /// would leave them behind.
    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { before, ended_by, limit } = self;
        let mut transaction = connection.begin().await?;
        let runs = sqlx::query_file_scalar!("queries/lock_ended.sql", before, ended_by, limit)
            .fetch_all(&mut *transaction)
            .await?;
        if !runs.is_empty() {
            sqlx::query_file!("queries/remove_runs.sql", &runs).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(u32::try_from(runs.len()).unwrap_or(u32::MAX))
    }
}
