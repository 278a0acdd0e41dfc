//! Removes runs that ended long ago.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::time::Timestamp;
use podium_ports::accounts::SUMS_KEPT;
use podium_ports::store::StoreError;
use podium_store_format::stored;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::Store;
use crate::call::Call;
use crate::objects::RemoveOldObjects;

/// The id up to which an unfinished walk has removed runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk(Arc<Mutex<Uuid>>);

impl Walk {
    fn get(&self) -> Uuid {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, last: Uuid) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

pub(crate) async fn remove_ended(
    store: &Store,
    now: Timestamp,
    kept: Duration,
    limit: u32,
) -> Result<u32, StoreError> {
    let ended_by = now.before(kept);
    let later = Timestamp::from_unix_ms(ended_by.unix_ms().saturating_add(1));
    let before = *RunId::least_at(later).as_uuid();
    let ms = |span: Duration| stored(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let sums_kept = ms(kept.saturating_add(SUMS_KEPT));
    store.call(&RemoveSums { now: stored(now.unix_ms()), kept: sums_kept }).await?;
    let (after, limit) = (store.removal.get(), usize::try_from(limit).unwrap_or(usize::MAX));
    let (now, kept) = (stored(now.unix_ms()), ms(kept));
    let old = RemoveOldObjects { now, kept, limit: i64::try_from(limit).unwrap_or(i64::MAX) };
    store.call(&old).await?;
    let remove = |after, limit: usize| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        RemoveEnded { after, before, now, kept, limit }
    };
    let mut removed = store.call(&remove(after, limit)).await?;
    if removed.len() < limit && !after.is_nil() {
        // The walk is over and begins again: runs that were accepted earlier may have ended meanwhile.
        removed.extend(store.call(&remove(Uuid::nil(), limit - removed.len())).await?);
    }
    let last = removed.last().filter(|_| removed.len() == limit);
    store.removal.set(last.copied().unwrap_or_default());
    Ok(u32::try_from(removed.len()).unwrap_or(u32::MAX))
}

/// Returns the ids of the removed runs.
struct RemoveEnded {
    after: Uuid,
    before: Uuid,
    now: i64,
    kept: i64,
    limit: i64,
}

impl Call for RemoveEnded {
    type Answer = Vec<Uuid>;

    /// Uses two statements: a single one would miss events that were committed after it began and before it had the locks, and would
    /// leave them behind.
    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { after, before, now, kept, limit } = self;
        let mut transaction = connection.begin().await?;
        let runs = sqlx::query_file_scalar!("queries/lock_ended.sql", before, now, kept, limit, after)
            .fetch_all(&mut *transaction)
            .await?;
        if !runs.is_empty() {
            sqlx::query_file!("queries/remove_runs.sql", &runs).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(runs)
    }
}

/// Removes the sums of periods that began earlier, except the all-time sum.
struct RemoveSums {
    now: i64,
    kept: i64,
}

impl Call for RemoveSums {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file!("queries/remove_sums.sql", self.now, self.kept).execute(connection).await.map(drop)
    }
}
