//! Tenants' keys and budgets: who may ask, and how much it may cost.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::budget::{Budget, BudgetRef, Charge, Payer};
use podium_domain::ids::{KeyId, TenantId};
use podium_domain::time::Timestamp;

use crate::store::StoreError;

/// Most keys of a tenant, revoked ones included.
pub const KEYS_MAX: u32 = 1000;

/// How much longer than runs the sums of a period are kept, from its beginning: 400 days, a year and a month. The sum of all time
/// is never removed.
pub const SUMS_KEPT: Duration = Duration::from_hours(400 * 24);

/// The SHA-256 of a key. A key has 256 random bits, so that nothing slower is needed to keep it from being guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// A key as it is kept: not the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its public name.
    pub id: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it is worth nothing any more.
    pub revoked_at: Option<Timestamp>,
}

/// What became of a key to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAdded {
    /// It is there.
    Added,
    /// The tenant has [`KEYS_MAX`] keys.
    TooMany,
}

/// What was spent and reserved of a budget in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSum {
    /// The budget.
    pub budget: Budget,
    /// The beginning of the period.
    pub from: Timestamp,
    /// What runs that were accepted in the period cost it.
    pub charge: Charge,
}

/// Keeps keys and budgets. The sums of budgets are written by the run store, in the commits that change them, and outlive the
/// runs.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Keeps a key. Repeating it changes nothing.
    async fn add_key(&self, key: &KeyRecord, hash: &KeyHash) -> Result<KeyAdded, StoreError>;

    /// The key of that hash, also if it was revoked.
    async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError>;

    /// A tenant's keys, the oldest first; at most [`KEYS_MAX`].
    async fn keys(&self, tenant: &TenantId) -> Result<Vec<KeyRecord>, StoreError>;

    /// Makes a key of the tenant worthless from `at` on; whether there is such a key. One that was revoked stays as it was.
    async fn revoke_key(&self, tenant: &TenantId, id: &KeyId, at: Timestamp) -> Result<bool, StoreError>;

    /// Replaces a payer's budget. Runs under way stay charged to the periods that they were accepted in. A new cap for the same
    /// period holds for them, too; if the budget has another period now, they are counted and no longer bounded.
    async fn set_budget(&self, budget: &Budget) -> Result<(), StoreError>;

    /// Takes a payer's budget away; whether there was one. What was spent stays known.
    async fn remove_budget(&self, payer: &Payer) -> Result<bool, StoreError>;

    /// The budgets of a tenant and of all its keys, by payer.
    async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError>;

    /// What stands in each of these budgets, in the order asked; nothing where nothing was charged yet.
    async fn charges(&self, budgets: &[BudgetRef]) -> Result<Vec<Charge>, StoreError>;

    /// Adds to what is spent and reserved of a budget, in billionths of a US dollar; negative amounts take away. Neither sum is
    /// negative afterwards. Returns the sums. For operators: repeating it corrects twice.
    async fn correct_sum(&self, budget: &BudgetRef, amounts: (i64, i64)) -> Result<Charge, StoreError>;
}

impl std::fmt::Debug for KeyHash {
    /// Shows nothing that could be looked for.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash(..)")
    }
}
