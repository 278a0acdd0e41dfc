//! Keys and budgets of tenants.

use async_trait::async_trait;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer, Period};
use podium_domain::ids::{KeyId, RunId, TenantId};
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;
use podium_ports::accounts::{Accounts, KEYS_MAX, KeyAdded, KeyHash, KeyRecord};
use podium_ports::store::StoreError;
use podium_store_format::{Damage, stored, time, unsigned};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::Store;
use crate::charged::{charge, correct};
use crate::row::{column, execute, row, rows};

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
        let (key, hash) = (key.clone(), *hash);
        let add = move |connection: &Connection| {
            let (id, tenant, created_ms) =
                (key.id.as_str(), key.tenant.as_str(), stored(key.created_at.unix_ms()));
            let added = execute(connection, ADD_KEY, params![id, tenant, hash.0, created_ms, KEYS_MAX])?;
            let is_there = added > 0 || find_key(connection, &hash)?.is_some();
            Ok(if is_there { KeyAdded::Added } else { KeyAdded::TooMany })
        };
        self.write(add).await
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
        let hash = *hash;
        self.read(move |connection| find_key(connection, &hash)).await
    }

    async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRecord>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |connection| rows(connection, LIST_KEYS, params![tenant.as_str(), KEYS_MAX], key))
            .await
    }

    async fn revoke_key(&self, tenant: &TenantId, id: &KeyId, at: Timestamp) -> Result<bool, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        let revoke = move |connection: &Connection| {
            execute(connection, REVOKE_KEY, params![id.as_str(), tenant.as_str(), stored(at.unix_ms())])
        };
        Ok(self.write(revoke).await? > 0)
    }

    async fn set_budget(&self, budget: &Budget) -> Result<(), StoreError> {
        let Budget { payer, tenant, period, cap } = budget.clone();
        let set = move |connection: &Connection| {
            let cap = cap.map(|cap| stored(cap.nano_usd()));
            let columns = params![payer.to_string(), tenant.as_str(), period.as_str(), cap];
            execute(connection, SET_BUDGET, columns)
        };
        self.write(set).await.map(drop)
    }

    async fn remove_budget(&self, payer: &Payer) -> Result<bool, StoreError> {
        let payer = payer.to_string();
        Ok(self.write(move |connection| execute(connection, REMOVE_BUDGET, [payer])).await? > 0)
    }

    async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError> {
        let tenant = tenant.clone();
        // At most one budget of the tenant itself and one of each key.
        let list = move |connection: &Connection| {
            rows(connection, LIST_BUDGETS, params![tenant.as_str(), KEYS_MAX + 1], budget)
        };
        self.read(list).await
    }

    async fn charges(&self, budgets: &[BudgetRef]) -> Result<Vec<Charge>, StoreError> {
        let budgets = budgets.to_vec();
        let read = |connection: &Connection, budget: &BudgetRef| {
            let sum = params![budget.payer.to_string(), stored(budget.from.unix_ms())];
            row(connection, READ_SUM, sum, charge).map(Option::unwrap_or_default)
        };
        self.read(move |connection| budgets.iter().map(|budget| read(connection, budget)).collect()).await
    }

    async fn correct_sum(&self, budget: &BudgetRef, spent: i64, reserved: i64) -> Result<Charge, StoreError> {
        let budget = budget.clone();
        self.write(move |connection| correct(connection, &budget, spent, reserved)).await
    }
}

fn find_key(connection: &Connection, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
    row(connection, FIND_KEY, [hash.0], key)
}

/// The error for a damaged row that belongs to no run.
fn damaged(column: &'static str, value: String) -> StoreError {
    Damage::Column { column, value }.of(RunId::new(Uuid::nil()))
}

fn tenant(row: &Row<'_>) -> Result<TenantId, StoreError> {
    TenantId::new(column::<String>(row, "tenant")?).map_err(|e| damaged("keys.tenant", e.name))
}

fn key(row: &Row<'_>) -> Result<KeyRecord, StoreError> {
    Ok(KeyRecord {
        id: KeyId::new(column::<String>(row, "id")?).map_err(|e| damaged("keys.id", e.name))?,
        tenant: tenant(row)?,
        created_at: time(column(row, "created_ms")?),
        revoked_at: column::<Option<i64>>(row, "revoked_ms")?.map(time),
    })
}

fn budget(row: &Row<'_>) -> Result<Budget, StoreError> {
    let (payer, period): (String, String) = (column(row, "payer")?, column(row, "period")?);
    let cap: Option<i64> = column(row, "cap_nano_usd")?;
    Ok(Budget {
        tenant: tenant(row)?,
        period: Period::from_name(&period).ok_or_else(|| damaged("budgets.period", period))?,
        payer: payer.parse().map_err(|_| damaged("budgets.payer", payer))?,
        cap: cap.map(|cap| Cost::from_nano_usd(unsigned(cap))),
    })
}
