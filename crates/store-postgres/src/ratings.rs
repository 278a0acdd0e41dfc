//! Tenants' ratings of their runs.

use podium_domain::ids::{RunId, TenantId};
use podium_domain::rating::Rating;
use podium_domain::time::Timestamp;
use podium_ports::store::{RatedRun, StoreError};
use podium_store_format::{Damage, stored, time};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

pub(crate) async fn rate(
    store: &Store,
    tenant: &TenantId,
    run: RunId,
    rating: &Rating,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let rate = Rate { run: *run.as_uuid(), tenant: tenant.as_str(), rating, at: stored(at.unix_ms()) };
    Ok(store.call(&rate).await? > 0)
}

pub(crate) async fn rated(
    store: &Store,
    tenant: &TenantId,
    after: Option<RunId>,
    before: RunId,
    limit: u32,
) -> Result<Vec<RatedRun>, StoreError> {
    // No run has the nil UUID, whose version does not exist.
    let after = after.map_or(Uuid::nil(), |run| *run.as_uuid());
    let list = ListRated { tenant: tenant.as_str(), after, before: *before.as_uuid(), limit: limit.into() };
    store.call(&list).await?.into_iter().map(RatedRow::read).collect()
}

struct RatedRow {
    run_id: Uuid,
    score: f64,
    comment: Option<String>,
    rated_ms: i64,
}

impl RatedRow {
    fn read(self) -> Result<RatedRun, StoreError> {
        let Self { run_id, score, comment, rated_ms } = self;
        let run = RunId::new(run_id);
        let rating = Rating::new(score, comment)
            .map_err(|_| Damage::Column { column: "ratings.score", value: score.to_string() }.of(run))?;
        Ok(RatedRun { run, rating, rated_at: time(rated_ms) })
    }
}

struct Rate<'a> {
    run: Uuid,
    tenant: &'a str,
    rating: &'a Rating,
    at: i64,
}

impl Call for Rate<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let Self { run, tenant, rating, at } = self;
        let rate =
            sqlx::query_file!("queries/rate_run.sql", run, tenant, rating.score(), rating.comment(), at);
        Ok(rate.execute(connection).await?.rows_affected())
    }
}

struct ListRated<'a> {
    tenant: &'a str,
    after: Uuid,
    before: Uuid,
    limit: i64,
}

impl Call for ListRated<'_> {
    type Answer = Vec<RatedRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { tenant, after, before, limit } = self;
        sqlx::query_file_as!(RatedRow, "queries/list_rated.sql", tenant, after, before, limit)
            .fetch_all(connection)
            .await
    }
}
