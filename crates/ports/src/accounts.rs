//! Tenants' keys and budgets: which tenant a request belongs to, and how much it may cost.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer};
use podium_domain::ids::{KeyId, TenantId};
use podium_domain::time::Timestamp;

use crate::store::StoreError;

/// Most keys of a tenant, including revoked ones.
pub const KEYS_MAX: u32 = 1000;

/// How long the sums of a budget period are kept, counted from its beginning: 400 days. The all-time sum is never removed.
pub const SUMS_KEPT: Duration = Duration::from_hours(400 * 24);

/// The SHA-256 of a key. A key has 256 random bits, so a slow hash would not make it harder to guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// The stored record of a key. It does not contain the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The public id, safe to show and to log.
    pub id: KeyId,
    /// The tenant whose requests the key authenticates.
    pub tenant: TenantId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was revoked; from then on it authenticates nothing.
    pub revoked_at: Option<Timestamp>,
}

/// The result of adding a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAdded {
    /// The key is stored.
    Added,
    /// The tenant already has [`KEYS_MAX`] keys; nothing was stored.
    TooMany,
}

/// The amounts spent and reserved of a budget in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSum {
    /// The budget, with its cap.
    pub budget: Budget,
    /// The beginning of the period.
    pub from: Timestamp,
    /// The charges of the runs that were accepted in the period.
    pub charge: Charge,
}

/// Stores keys and budgets. The run store writes the sums of budgets, in the commits that change them. They outlive the runs.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Stores a key. Repeating it changes nothing.
    async fn add_key(&self, key: &KeyRecord, hash: &KeyHash) -> Result<KeyAdded, StoreError>;

    /// The key with that hash, including a revoked one.
    async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError>;

    /// A tenant's keys, oldest first; at most [`KEYS_MAX`].
    async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRecord>, StoreError>;

    /// Revokes a key of the tenant as of `at`. Returns whether the key exists. A key that was already revoked keeps its time.
    async fn revoke_key(&self, tenant: &TenantId, id: &KeyId, at: Timestamp) -> Result<bool, StoreError>;

    /// Replaces a payer's budget. Active runs stay charged to the periods in which they were accepted. A new cap for the same period
    /// applies to them too. If the new budget has another period, they are still counted, but no longer bounded.
    async fn set_budget(&self, budget: &Budget) -> Result<(), StoreError>;

    /// Removes a payer's budget. Returns whether there was one. Its sums are kept.
    async fn remove_budget(&self, payer: &Payer) -> Result<bool, StoreError>;

    /// The budgets of a tenant and of all its keys, by payer.
    async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError>;

    /// The charges of these budgets, in the order given; zero for a budget without charges.
    async fn charges(&self, budgets: &[BudgetRef]) -> Result<Vec<Charge>, StoreError>;

    /// Adds to the spent and reserved sums of a budget, in billionths of a US dollar; negative amounts subtract. Neither sum
    /// becomes negative. Returns the new sums. For operators; repeating it applies the correction twice.
    async fn correct_sum(&self, budget: &BudgetRef, spent: i64, reserved: i64) -> Result<Charge, StoreError>;
}

impl std::fmt::Debug for KeyHash {
    /// Hides the hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash(..)")
    }
}
