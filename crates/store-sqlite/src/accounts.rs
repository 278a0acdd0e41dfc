//! Keys and budgets of tenants.

use async_trait::async_trait;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer, Period};
use podium_domain::ids::{KeyId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;
use podium_ports::accounts::{Accounts, KEYS_MAX, KeyAdded, KeyHash, KeyRecord};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, time, unsigned};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use crate::Store;
use crate::charged::correct;
use crate::row::unavailable;
use crate::write::begin;

pub(crate) const ADD_KEY: &str = "-- add_key
INSERT INTO keys (id, tenant, hash, created_ms)
SELECT ?1, ?2, ?3, ?4
WHERE (SELECT count(*) FROM (SELECT id FROM keys WHERE tenant = ?2 LIMIT ?5)) < ?5
ON CONFLICT DO NOTHING";

pub(crate) const FIND_KEY: &str = "-- find_key
SELECT id, tenant, created_ms, revoked_ms FROM keys WHERE hash = ?1";

pub(crate) const LIST_KEYS: &str = "-- list_keys
SELECT id, tenant, created_ms, revoked_ms FROM keys WHERE tenant = ?1 ORDER BY created_ms, id LIMIT ?2";

pub(crate) const REVOKE_KEY: &str = "-- revoke_key
UPDATE keys SET revoked_ms = coalesce(revoked_ms, ?3) WHERE id = ?1 AND tenant = ?2";

pub(crate) const SET_BUDGET: &str = "-- set_budget
INSERT INTO budgets (payer, tenant, period, cap_nano_usd) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (payer) DO UPDATE SET period = excluded.period, cap_nano_usd = excluded.cap_nano_usd";

pub(crate) const REMOVE_BUDGET: &str = "-- remove_budget
DELETE FROM budgets WHERE payer = ?1";

pub(crate) const LIST_BUDGETS: &str = "-- list_budgets
SELECT payer, tenant, period, cap_nano_usd FROM budgets WHERE tenant = ?1 ORDER BY payer LIMIT ?2";

pub(crate) const READ_SUM: &str = "-- read_sum
SELECT spent_nano_usd, reserved_nano_usd FROM budget_sums WHERE payer = ?1 AND from_ms = ?2";

#[async_trait]
impl Accounts for Store {
    async fn add_key(&self, key: &KeyRecord, hash: &KeyHash) -> Result<KeyAdded, StoreError> {
        let add = sqlx::query(ADD_KEY)
            .bind(key.id.as_str())
            .bind(key.tenant.as_str())
            .bind(hash.0.as_slice())
            .bind(stored(key.created_at.unix_ms()))
            .bind(KEYS_MAX);
        let added = add.execute(&self.writer).await.map_err(unavailable)?.rows_affected();
        let is_there = added > 0 || self.find_key(hash).await?.is_some();
        Ok(if is_there { KeyAdded::Added } else { KeyAdded::TooMany })
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
        let find = sqlx::query(FIND_KEY).bind(hash.0.as_slice());
        find.fetch_optional(&self.readers).await.map_err(unavailable)?.as_ref().map(key).transpose()
    }

    async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRecord>, StoreError> {
        let list = sqlx::query(LIST_KEYS).bind(tenant.as_str()).bind(KEYS_MAX);
        list.fetch_all(&self.readers).await.map_err(unavailable)?.iter().map(key).collect()
    }

    async fn revoke_key(&self, tenant: &TenantId, id: &KeyId, at: Timestamp) -> Result<bool, StoreError> {
        let revoke =
            sqlx::query(REVOKE_KEY).bind(id.as_str()).bind(tenant.as_str()).bind(stored(at.unix_ms()));
        Ok(revoke.execute(&self.writer).await.map_err(unavailable)?.rows_affected() > 0)
    }

    async fn set_budget(&self, budget: &Budget) -> Result<(), StoreError> {
        sqlx::query(SET_BUDGET)
            .bind(budget.payer.to_string())
            .bind(budget.tenant.as_str())
            .bind(budget.period.as_str())
            .bind(budget.cap.map(|cap| stored(cap.nano_usd())))
            .execute(&self.writer)
            .await
            .map_err(unavailable)?;
        Ok(())
    }

    async fn remove_budget(&self, payer: &Payer) -> Result<bool, StoreError> {
        let remove = sqlx::query(REMOVE_BUDGET).bind(payer.to_string());
        Ok(remove.execute(&self.writer).await.map_err(unavailable)?.rows_affected() > 0)
    }

    async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError> {
        // At most one budget of the tenant itself and one of each key.
        let list = sqlx::query(LIST_BUDGETS).bind(tenant.as_str()).bind(KEYS_MAX + 1);
        list.fetch_all(&self.readers).await.map_err(unavailable)?.iter().map(budget).collect()
    }

    async fn charges(&self, budgets: &[BudgetRef]) -> Result<Vec<Charge>, StoreError> {
        let mut charges = Vec::with_capacity(budgets.len());
        for budget in budgets {
            let read =
                sqlx::query(READ_SUM).bind(budget.payer.to_string()).bind(stored(budget.from.unix_ms()));
            let row = read.fetch_optional(&self.readers).await.map_err(unavailable)?;
            let cost = |column: &str| match &row {
                Some(row) => number(row, column).map(|nano| Cost::from_nano_usd(unsigned(nano))),
                None => Ok(Cost::ZERO),
            };
            charges.push(Charge { spent: cost("spent_nano_usd")?, reserved: cost("reserved_nano_usd")? });
        }
        Ok(charges)
    }

    async fn correct_sum(&self, budget: &BudgetRef, spent: i64, reserved: i64) -> Result<Charge, StoreError> {
        let mut transaction = begin(self).await?;
        let corrected = correct(&mut transaction, budget, spent, reserved).await?;
        transaction.commit().await.map_err(unavailable)?;
        Ok(corrected)
    }
}

fn text(row: &SqliteRow, column: &str) -> Result<String, StoreError> {
    row.try_get(column).map_err(unavailable)
}

fn number(row: &SqliteRow, column: &str) -> Result<i64, StoreError> {
    row.try_get(column).map_err(unavailable)
}

/// The error for a damaged row that belongs to no run.
fn damaged(column: &'static str, value: String) -> StoreError {
    Damage::Column { column, value }.of(RunId::new(Uuid::nil()))
}

fn tenant(row: &SqliteRow) -> Result<TenantId, StoreError> {
    TenantId::new(text(row, "tenant")?).map_err(|e| damaged("keys.tenant", e.name))
}

fn key(row: &SqliteRow) -> Result<KeyRecord, StoreError> {
    let revoked_ms: Option<i64> = row.try_get("revoked_ms").map_err(unavailable)?;
    Ok(KeyRecord {
        id: KeyId::new(text(row, "id")?).map_err(|e| damaged("keys.id", e.name))?,
        tenant: tenant(row)?,
        created_at: time(number(row, "created_ms")?),
        revoked_at: revoked_ms.map(time),
    })
}

fn budget(row: &SqliteRow) -> Result<Budget, StoreError> {
    let (payer, period) = (text(row, "payer")?, text(row, "period")?);
    let cap: Option<i64> = row.try_get("cap_nano_usd").map_err(unavailable)?;
    Ok(Budget {
        tenant: tenant(row)?,
        period: Period::from_name(&period).ok_or_else(|| damaged("budgets.period", period))?,
        payer: payer.parse().map_err(|_| damaged("budgets.payer", payer))?,
        cap: cap.map(|cap| Cost::from_nano_usd(unsigned(cap))),
    })
}
