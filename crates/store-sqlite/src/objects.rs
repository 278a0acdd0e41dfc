//! Objects of clients besides runs, and the secret of the deployment.

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::time::Timestamp;
use podium_ports::objects::{Object, Objects};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, unsigned};
use sqlx::Row as _;
use uuid::Uuid;

use crate::Store;
use crate::row::unavailable;

pub(crate) const READ_SECRET: &str = "-- read_secret
SELECT secret FROM deployment_secret WHERE id = 1";

pub(crate) const FIND_OBJECT: &str = "-- find_object
SELECT version, body FROM objects WHERE tenant = ?1 AND id = ?2";

pub(crate) const ADD_OBJECT: &str = "-- add_object
INSERT INTO objects (tenant, id, version, body, changed_ms) VALUES (?1, ?2, 1, ?3, ?4) ON CONFLICT DO NOTHING";

pub(crate) const CHANGE_OBJECT: &str = "-- change_object
UPDATE objects SET version = version + 1, body = ?3, changed_ms = ?4 WHERE tenant = ?1 AND id = ?2 AND version = ?5";

pub(crate) const REMOVE_OBJECT: &str = "-- remove_object
DELETE FROM objects WHERE tenant = ?1 AND id = ?2";

pub(crate) const FIND_OLD_OBJECT: &str = "-- find_old_object
SELECT changed_ms FROM objects WHERE changed_ms <= ?1 LIMIT 1";

pub(crate) const REMOVE_OLD_OBJECTS: &str = "-- remove_old_objects
DELETE FROM objects WHERE rowid IN (
    SELECT rowid FROM objects WHERE changed_ms <= ?1 ORDER BY changed_ms LIMIT ?2
)";

#[async_trait]
impl Objects for Store {
    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        let row = sqlx::query(READ_SECRET).fetch_one(&self.readers).await.map_err(unavailable)?;
        let secret: Vec<u8> = row.try_get("secret").map_err(unavailable)?;
        let length = secret.len();
        secret.try_into().map_err(|_| {
            let value = format!("{length} bytes");
            Damage::Column { column: "deployment_secret.secret", value }.of(RunId::new(Uuid::nil()))
        })
    }

    async fn find_object(&self, tenant: &TenantId, id: &str) -> Result<Option<Object>, StoreError> {
        let find = sqlx::query(FIND_OBJECT).bind(tenant.as_str()).bind(id);
        let Some(row) = find.fetch_optional(&self.readers).await.map_err(unavailable)? else {
            return Ok(None);
        };
        let version: i64 = row.try_get("version").map_err(unavailable)?;
        Ok(Some(Object { version: unsigned(version), body: row.try_get("body").map_err(unavailable)? }))
    }

    async fn put_object(
        &self,
        tenant: &TenantId,
        id: &str,
        after: u64,
        body: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let put = sqlx::query(if after == 0 { ADD_OBJECT } else { CHANGE_OBJECT });
        let put = put.bind(tenant.as_str()).bind(id).bind(body).bind(stored(at.unix_ms()));
        let put = if after == 0 { put } else { put.bind(stored(after)) };
        Ok(put.execute(&self.writer).await.map_err(unavailable)?.rows_affected() > 0)
    }

    async fn remove_object(&self, tenant: &TenantId, id: &str) -> Result<bool, StoreError> {
        let remove = sqlx::query(REMOVE_OBJECT).bind(tenant.as_str()).bind(id);
        Ok(remove.execute(&self.writer).await.map_err(unavailable)?.rows_affected() > 0)
    }
}

/// Removes objects that nobody changed after `changed_by`. Usually there are none, and no lock is taken.
pub(crate) async fn remove_old(store: &Store, changed_by: Timestamp, limit: u32) -> Result<(), StoreError> {
    let changed_by = stored(changed_by.unix_ms());
    let find = sqlx::query_scalar::<_, i64>(FIND_OLD_OBJECT).bind(changed_by);
    if find.fetch_optional(&store.readers).await.map_err(unavailable)?.is_some() {
        let remove = sqlx::query(REMOVE_OLD_OBJECTS).bind(changed_by).bind(limit);
        remove.execute(&store.writer).await.map_err(unavailable)?;
    }
    Ok(())
}
