//! Objects of clients besides runs, and the secret of the deployment.

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::time::Timestamp;
use podium_ports::objects::{Object, Objects};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, unsigned};
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::Store;
use crate::row::{column, execute, row, value};

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
        let secret = self.read(|connection| value::<Vec<u8>>(connection, READ_SECRET, [])).await?;
        let secret = secret.unwrap_or_default();
        let length = secret.len();
        secret.try_into().map_err(|_| {
            let value = format!("{length} bytes");
            Damage::Column { column: "deployment_secret.secret", value }.of(RunId::new(Uuid::nil()))
        })
    }

    async fn find_object(&self, tenant: &TenantId, id: &str) -> Result<Option<Object>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        let find = move |connection: &Connection| {
            row(connection, FIND_OBJECT, params![tenant.as_str(), id], |row| {
                Ok(Object { version: unsigned(column(row, "version")?), body: column(row, "body")? })
            })
        };
        self.read(find).await
    }

    async fn put_object(
        &self,
        tenant: &TenantId,
        id: &str,
        after: u64,
        body: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (tenant, id, body) = (tenant.clone(), id.to_owned(), body.to_owned());
        let put = move |connection: &Connection| {
            let (tenant, at) = (tenant.as_str(), stored(at.unix_ms()));
            let put = if after == 0 {
                execute(connection, ADD_OBJECT, params![tenant, id, body, at])
            } else {
                execute(connection, CHANGE_OBJECT, params![tenant, id, body, at, stored(after)])
            };
            Ok(put? > 0)
        };
        self.write(put).await
    }

    async fn remove_object(&self, tenant: &TenantId, id: &str) -> Result<bool, StoreError> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        let remove =
            move |connection: &Connection| execute(connection, REMOVE_OBJECT, params![tenant.as_str(), id]);
        Ok(self.write(remove).await? > 0)
    }
}

/// Removes objects that nobody changed after `changed_by`. Usually there are none, and no lock is taken.
pub(crate) async fn remove_old(store: &Store, changed_by: Timestamp, limit: u32) -> Result<(), StoreError> {
    let changed_by = stored(changed_by.unix_ms());
    let found: Option<i64> =
        store.read(move |connection| value(connection, FIND_OLD_OBJECT, [changed_by])).await?;
    if found.is_some() {
        store
            .write(move |connection| execute(connection, REMOVE_OLD_OBJECTS, params![changed_by, limit]))
            .await?;
    }
    Ok(())
}
