//! Keys and budgets of tenants.

use async_trait::async_trait;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer, Period};
use podium_domain::ids::{KeyId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;
use podium_ports::accounts::{Accounts, KEYS_MAX, KeyAdded, KeyHash, KeyRecord};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, time, unsigned};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Store;
use crate::call::Call;

#[async_trait]
impl Accounts for Store {
    async fn add_key(&self, key: &KeyRecord, hash: &KeyHash) -> Result<KeyAdded, StoreError> {
        if self.call(&AddKey { key, hash }).await? > 0 || self.find_key(hash).await?.is_some() {
            Ok(KeyAdded::Added)
        } else {
            Ok(KeyAdded::TooMany)
        }
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
        self.call(&FindKey(hash)).await?.map(KeyRow::read).transpose()
    }

    async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRecord>, StoreError> {
        self.call(&ListKeys(tenant.as_str())).await?.into_iter().map(KeyRow::read).collect()
    }

    async fn revoke_key(&self, tenant: &TenantId, id: &KeyId, at: Timestamp) -> Result<bool, StoreError> {
        let revoke = RevokeKey { tenant: tenant.as_str(), id: id.as_str(), at: stored(at.unix_ms()) };
        Ok(self.call(&revoke).await? > 0)
    }

    async fn set_budget(&self, budget: &Budget) -> Result<(), StoreError> {
        self.call(&SetBudget(budget)).await.map(drop)
    }

    async fn remove_budget(&self, payer: &Payer) -> Result<bool, StoreError> {
        Ok(self.call(&RemoveBudget(payer.to_string())).await? > 0)
    }

    async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError> {
        self.call(&ListBudgets(tenant.as_str())).await?.into_iter().map(BudgetRow::read).collect()
    }

    async fn charges(&self, budgets: &[BudgetRef]) -> Result<Vec<Charge>, StoreError> {
        let read = ReadSums {
            payers: budgets.iter().map(|budget| budget.payer.to_string()).collect(),
            from_ms: budgets.iter().map(|budget| stored(budget.from.unix_ms())).collect(),
        };
        self.call(&read).await
    }

    async fn correct_sum(&self, budget: &BudgetRef, spent: i64, reserved: i64) -> Result<Charge, StoreError> {
        let (payer, from_ms) = (budget.payer.to_string(), stored(budget.from.unix_ms()));
        self.call(&CorrectSum { payer, from_ms, spent, reserved }).await
    }
}

/// The error for a damaged row that belongs to no run.
fn damaged(column: &'static str, value: String) -> StoreError {
    Damage::Column { column, value }.of(RunId::new(Uuid::nil()))
}

fn tenant(name: String) -> Result<TenantId, StoreError> {
    TenantId::new(name).map_err(|e| damaged("keys.tenant", e.name))
}

struct KeyRow {
    id: String,
    tenant: String,
    created_ms: i64,
    revoked_ms: Option<i64>,
}

impl KeyRow {
    fn read(self) -> Result<KeyRecord, StoreError> {
        Ok(KeyRecord {
            id: KeyId::new(self.id).map_err(|e| damaged("keys.id", e.name))?,
            tenant: tenant(self.tenant)?,
            created_at: time(self.created_ms),
            revoked_at: self.revoked_ms.map(time),
        })
    }
}

struct BudgetRow {
    payer: String,
    tenant: String,
    period: String,
    cap: Option<i64>,
}

impl BudgetRow {
    fn read(self) -> Result<Budget, StoreError> {
        let Self { payer, period, cap, .. } = self;
        Ok(Budget {
            tenant: tenant(self.tenant)?,
            period: Period::from_name(&period).ok_or_else(|| damaged("budgets.period", period))?,
            payer: payer.parse().map_err(|_| damaged("budgets.payer", payer))?,
            cap: cap.map(|cap| Cost::from_nano_usd(unsigned(cap))),
        })
    }
}

struct AddKey<'a> {
    key: &'a KeyRecord,
    hash: &'a KeyHash,
}

impl Call for AddKey<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let Self { key, hash } = self;
        let add = sqlx::query_file!(
            "queries/add_key.sql",
            key.id.as_str(),
            key.tenant.as_str(),
            hash.0.as_slice(),
            stored(key.created_at.unix_ms()),
            i64::from(KEYS_MAX),
        );
        Ok(add.execute(connection).await?.rows_affected())
    }
}

struct FindKey<'a>(&'a KeyHash);

impl Call for FindKey<'_> {
    type Answer = Option<KeyRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(KeyRow, "queries/find_key.sql", self.0.0.as_slice())
            .fetch_optional(connection)
            .await
    }
}

struct ListKeys<'a>(&'a str);

impl Call for ListKeys<'_> {
    type Answer = Vec<KeyRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        sqlx::query_file_as!(KeyRow, "queries/list_keys.sql", self.0, i64::from(KEYS_MAX))
            .fetch_all(connection)
            .await
    }
}

struct RevokeKey<'a> {
    tenant: &'a str,
    id: &'a str,
    at: i64,
}

impl Call for RevokeKey<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let revoke = sqlx::query_file!("queries/revoke_key.sql", self.id, self.tenant, self.at);
        Ok(revoke.execute(connection).await?.rows_affected())
    }
}

struct SetBudget<'a>(&'a Budget);

impl Call for SetBudget<'_> {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        let set = sqlx::query_file!(
            "queries/set_budget.sql",
            self.0.payer.to_string(),
            self.0.tenant.as_str(),
            self.0.period.as_str(),
            self.0.cap.map(|cap| stored(cap.nano_usd())),
        );
        Ok(set.execute(connection).await?.rows_affected())
    }
}

struct RemoveBudget(String);

impl Call for RemoveBudget {
    type Answer = u64;

    async fn ask(&self, connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
        Ok(sqlx::query_file!("queries/remove_budget.sql", self.0).execute(connection).await?.rows_affected())
    }
}

struct ListBudgets<'a>(&'a str);

impl Call for ListBudgets<'_> {
    type Answer = Vec<BudgetRow>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        // At most one budget of the tenant itself and one of each key.
        let limit = i64::from(KEYS_MAX) + 1;
        sqlx::query_file_as!(BudgetRow, "queries/list_budgets.sql", self.0, limit).fetch_all(connection).await
    }
}

struct ReadSums {
    payers: Vec<String>,
    from_ms: Vec<i64>,
}

impl Call for ReadSums {
    type Answer = Vec<Charge>;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let rows = sqlx::query_file!("queries/read_sums.sql", &self.payers, &self.from_ms);
        let cost = |nano: Option<i64>| Cost::from_nano_usd(unsigned(nano.unwrap_or_default()));
        let rows = rows.fetch_all(connection).await?;
        Ok(rows
            .into_iter()
            .map(|row| Charge { spent: cost(row.spent), reserved: cost(row.reserved) })
            .collect())
    }
}

struct CorrectSum {
    payer: String,
    from_ms: i64,
    spent: i64,
    reserved: i64,
}

impl Call for CorrectSum {
    type Answer = Charge;

    async fn ask(&self, connection: &mut PgConnection) -> Result<Self::Answer, sqlx::Error> {
        let Self { payer, from_ms, spent, reserved } = self;
        let correct = sqlx::query_file!("queries/correct_sum.sql", payer, from_ms, spent, reserved);
        let row = correct.fetch_one(connection).await?;
        let cost = |nano| Cost::from_nano_usd(unsigned(nano));
        Ok(Charge { spent: cost(row.spent_nano_usd), reserved: cost(row.reserved_nano_usd) })
    }
}
