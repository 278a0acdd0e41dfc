//! Objects of clients besides runs, and the secret of the deployment.

use async_trait::async_trait;
use podium_domain::ids::{RunId, TenantId};
use podium_domain::time::Timestamp;
use podium_ports::objects::{Object, Objects};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

#[async_trait]
impl Objects for Store {
    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        let secret = self.call(&ReadSecret).await?;
        let length = secret.len();
        secret.try_into().map_err(|_| {
            let value = format!("{length} bytes");
            Damage::Column { column: "deployment_secret.secret", value }.of(RunId::new(Uuid::nil()))
        })
    }

    async fn find_object(&self, tenant: &TenantId, id: &str) -> Result<Option<Object>, StoreError> {
        let found = self.call(&FindObject { tenant: tenant.as_str(), id }).await?;
        Ok(found.map(|row| Object { version: unsigned(row.version), body: row.body }))
    }

    async fn put_object(
        &self,
        tenant: &TenantId,
        id: &str,
        after: u64,
        body: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let at = stored(at.unix_ms());
        let put = PutObject { tenant: tenant.as_str(), id, after: stored(after), body, at };
        Ok(self.call(&put).await? > 0)
    }

    async fn remove_object(&self, tenant: &TenantId, id: &str) -> Result<bool, StoreError> {
        Ok(self.call(&RemoveObject { tenant: tenant.as_str(), id }).await? > 0)
    }
}

struct ReadSecret;

impl Call for ReadSecret {
    type Answer = Vec<u8>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_scalar!("queries/read_secret.sql").fetch_one(connection).await
    }
}

struct ObjectRow {
    version: i64,
    body: String,
}

struct FindObject<'a> {
    tenant: &'a str,
    id: &'a str,
}

impl Call for FindObject<'_> {
    type Answer = Option<ObjectRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(ObjectRow, "queries/find_object.sql", self.tenant, self.id)
            .fetch_optional(connection)
            .await
    }
}

struct PutObject<'a> {
    tenant: &'a str,
    id: &'a str,
    after: i64,
    body: &'a str,
    at: i64,
}

impl Call for PutObject<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let Self { tenant, id, after, body, at } = self;
        let put = if *after == 0 {
            sqlx::query_file!("queries/add_object.sql", tenant, id, body, at).execute(connection).await
        } else {
            sqlx::query_file!("queries/change_object.sql", tenant, id, body, at, after)
                .execute(connection)
                .await
        };
        Ok(put?.rows_affected())
    }
}

struct RemoveObject<'a> {
    tenant: &'a str,
    id: &'a str,
}

impl Call for RemoveObject<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let remove = sqlx::query_file!("queries/remove_object.sql", self.tenant, self.id);
        Ok(remove.execute(connection).await?.rows_affected())
    }
}

/// Removes objects that nobody changed for the time `kept`.
pub(crate) struct RemoveOldObjects {
    pub(crate) now: i64,
    pub(crate) kept: i64,
    pub(crate) limit: i64,
}

impl Call for RemoveOldObjects {
    type Answer = ();

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { now, kept, limit } = self;
        sqlx::query_file!("queries/remove_old_objects.sql", now, kept, limit)
            .execute(connection)
            .await
            .map(drop)
    }
}
