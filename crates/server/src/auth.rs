//! Who asks: a tenant, by the key that it shows.
//!
//! Keys are looked up by their hash, and what was found is remembered for a few seconds: a revoked key, or a changed budget, is
//! known everywhere that much later.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_api::{ApiError, ErrorCode};
use podium_domain::budget::{Budget, Payer};
use podium_domain::ids::{KeyId, TenantId};
use podium_domain::time::Timestamp;
use podium_ports::accounts::{Accounts, BudgetSum, KeyHash};
use podium_ports::clock::Clock;
use sha2::{Digest as _, Sha256};

use crate::error_mapping;

/// Whose runs they are that come without a key.
const LOCAL_TENANT: &str = "local";
/// How long what was found is remembered.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Most callers that are remembered, wrong keys included.
const KNOWN_MAX: usize = 10_000;
/// What every key of ours begins with.
const PREFIX: &str = "pdm_";
/// Longest header that is looked at.
const HEADER_BYTES_MAX: usize = 512;

/// A key, to be shown once.
pub struct ApiKey(String);

impl ApiKey {
    /// A key from 256 random bits.
    pub fn new(random: [u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", hex(&random)))
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> KeyHash {
        hash(&self.0)
    }

    /// Its public name: a tenth of its hash, from which nobody finds the key.
    pub fn id(&self) -> Result<KeyId, podium_domain::ids::InvalidName> {
        KeyId::new(format!("key_{}", hex(&self.hash().0[..6])))
    }
}

fn hash(key: &str) -> KeyHash {
    KeyHash(Sha256::digest(key.as_bytes()).into())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Who asks, and what its runs are charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose runs they are.
    pub tenant: TenantId,
    /// By which key.
    pub key: Option<KeyId>,
    /// The budgets of the two.
    pub budgets: Vec<Budget>,
}

impl Caller {
    /// Somebody without a key, on this machine, who has no budget.
    pub fn local() -> Result<Self, podium_domain::ids::InvalidName> {
        Ok(Self { tenant: TenantId::new(LOCAL_TENANT)?, key: None, budgets: Vec::new() })
    }
}

/// Finds out who asks. Clones are the same.
#[derive(Clone)]
pub struct Authenticator {
    accounts: Arc<dyn Accounts>,
    clock: Arc<dyn Clock>,
    keys_required: bool,
    known: Arc<Mutex<HashMap<Shown, Known>>>,
}

/// What a caller showed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shown {
    Nothing,
    Key(KeyHash),
}

struct Known {
    /// None: the key is worth nothing.
    caller: Option<Caller>,
    until: Timestamp,
}

impl Authenticator {
    /// With `keys_required`, who shows no key may ask nothing; else such callers are the tenant [`LOCAL_TENANT`].
    pub fn new(accounts: Arc<dyn Accounts>, clock: Arc<dyn Clock>, keys_required: bool) -> Self {
        Self { accounts, clock, keys_required, known: Arc::default() }
    }

    /// Whether callers must show a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.keys_required
    }

    /// Whether that `authorization` holds something that is looked up as a key.
    pub(crate) fn is_key(&self, authorization: Option<&str>) -> bool {
        matches!(self.shown(authorization), Ok(Shown::Key(_)))
    }

    /// The caller that sends this `authorization`.
    ///
    /// Where no key is required, a value that cannot be one of Podium's keys is ignored, since most clients must send something.
    pub(crate) async fn caller(&self, authorization: Option<&str>) -> Result<Caller, ApiError> {
        let shown = self.shown(authorization)?;
        let now = self.clock.now();
        if let Some(known) = self.lock().get(&shown).filter(|known| now < known.until) {
            return known.caller.clone().ok_or_else(invalid);
        }
        let caller = self.look_up(shown).await?;
        let mut table = self.lock();
        if table.len() >= KNOWN_MAX {
            table.retain(|_, known| now < known.until);
        }
        if table.len() < KNOWN_MAX {
            table.insert(shown, Known { caller: caller.clone(), until: now.after(KNOWN_FOR) });
        }
        caller.ok_or_else(invalid)
    }

    fn shown(&self, authorization: Option<&str>) -> Result<Shown, ApiError> {
        match authorization.map(bearer) {
            Some(Some(key)) if self.keys_required || key.starts_with(PREFIX) => Ok(Shown::Key(hash(key))),
            Some(None) if self.keys_required => Err(invalid()),
            None if self.keys_required => {
                let message = "an API key is required: send it as `authorization: Bearer KEY`";
                Err(ApiError::new(ErrorCode::MissingApiKey, message))
            }
            _ => Ok(Shown::Nothing),
        }
    }

    async fn look_up(&self, shown: Shown) -> Result<Option<Caller>, ApiError> {
        let (tenant, key) = match shown {
            Shown::Nothing => (TenantId::new(LOCAL_TENANT).map_err(|e| error_mapping::defect(&e))?, None),
            Shown::Key(hash) => {
                let found =
                    self.accounts.find_key(&hash).await.map_err(|e| error_mapping::store_error(&e))?;
                let Some(found) = found.filter(|found| found.revoked_at.is_none()) else { return Ok(None) };
                (found.tenant, Some(found.id))
            }
        };
        let mut budgets = self.accounts.budgets(&tenant).await.map_err(|e| error_mapping::store_error(&e))?;
        budgets.retain(|budget| match &budget.payer {
            Payer::Tenant(payer) => *payer == tenant,
            Payer::Key(payer) => Some(payer) == key.as_ref(),
        });
        Ok(Some(Caller { tenant, key, budgets }))
    }

    /// What stands in the budgets of a caller, as it is now.
    pub(crate) async fn sums(&self, caller: &Caller) -> Result<Vec<BudgetSum>, ApiError> {
        sums(&*self.accounts, caller.budgets.clone(), self.clock.now())
            .await
            .map_err(|e| error_mapping::store_error(&e))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shown, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands in budgets, in their periods at `now`.
pub async fn sums(
    accounts: &dyn Accounts,
    budgets: Vec<Budget>,
    now: Timestamp,
) -> Result<Vec<BudgetSum>, podium_ports::store::StoreError> {
    let periods: Vec<_> = budgets.iter().map(|budget| budget.at(now)).collect();
    let charges = accounts.charges(&periods).await?;
    let sums = budgets.into_iter().zip(periods).zip(charges);
    Ok(sums.map(|((budget, period), charge)| BudgetSum { budget, from: period.from, charge }).collect())
}

/// The key in an `authorization` of the right form.
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, key) = authorization.trim().split_once(' ')?;
    let key = key.trim();
    let is_right = scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && key.len() <= HEADER_BYTES_MAX;
    is_right.then_some(key)
}

fn invalid() -> ApiError {
    ApiError::new(ErrorCode::InvalidApiKey, "the API key is wrong or was revoked")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use podium_domain::budget::{BudgetRef, Charge, Period};
    use podium_domain::money::Cost;
    use podium_ports::accounts::{KeyAdded, KeyRecord};
    use podium_ports::store::StoreError;

    use super::*;

    /// A clock that stands still until it is moved.
    #[derive(Default)]
    struct Still(Mutex<u64>);

    #[async_trait]
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_ms(*self.0.lock().unwrap())
        }

        async fn sleep(&self, _span: Duration) {
            unreachable!("nobody sleeps here")
        }
    }

    /// One key of one tenant, which has a budget, beside another key's.
    #[derive(Default)]
    struct OneKey {
        revoked: Mutex<bool>,
        look_ups: AtomicUsize,
    }

    fn key() -> ApiKey {
        ApiKey::new([7; 32])
    }

    fn budget(payer: Payer) -> Budget {
        let tenant = TenantId::new("acme").unwrap();
        Budget { payer, tenant, period: Period::Day, cap: Some(Cost::ZERO) }
    }

    #[async_trait]
    impl Accounts for OneKey {
        async fn add_key(&self, _: &KeyRecord, _: &KeyHash) -> Result<KeyAdded, StoreError> {
            unreachable!()
        }

        async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRecord>, StoreError> {
            self.look_ups.fetch_add(1, Ordering::Relaxed);
            let revoked_at = self.revoked.lock().unwrap().then_some(Timestamp::default());
            let record = KeyRecord {
                id: key().id().unwrap(),
                tenant: TenantId::new("acme").unwrap(),
                created_at: Timestamp::default(),
                revoked_at,
            };
            Ok((*hash == key().hash()).then_some(record))
        }

        async fn keys(&self, _: &TenantId) -> Result<Vec<KeyRecord>, StoreError> {
            unreachable!()
        }

        async fn revoke_key(&self, _: &TenantId, _: &KeyId, _: Timestamp) -> Result<bool, StoreError> {
            unreachable!()
        }

        async fn set_budget(&self, _: &Budget) -> Result<(), StoreError> {
            unreachable!()
        }

        async fn remove_budget(&self, _: &Payer) -> Result<bool, StoreError> {
            unreachable!()
        }

        async fn budgets(&self, tenant: &TenantId) -> Result<Vec<Budget>, StoreError> {
            let other = KeyId::new("key_other").unwrap();
            let all = [Payer::Key(key().id().unwrap()), Payer::Key(other), Payer::Tenant(tenant.clone())];
            Ok(if tenant.as_str() == "acme" { all.map(budget).to_vec() } else { Vec::new() })
        }

        async fn correct_sum(&self, _: &BudgetRef, _: (i64, i64)) -> Result<Charge, StoreError> {
            unreachable!()
        }

        async fn charges(&self, _: &[BudgetRef]) -> Result<Vec<Charge>, StoreError> {
            unreachable!()
        }
    }

    fn access(keys_required: bool) -> (Authenticator, Arc<OneKey>, Arc<Still>) {
        let (accounts, clock) = (Arc::new(OneKey::default()), Arc::new(Still::default()));
        (Authenticator::new(accounts.clone(), clock.clone(), keys_required), accounts, clock)
    }

    fn code(outcome: Result<Caller, ApiError>) -> Result<String, &'static str> {
        outcome.map(|caller| caller.tenant.to_string()).map_err(|error| error.code.mapping().code)
    }

    #[tokio::test]
    async fn a_right_key_is_its_tenants_and_a_wrong_one_is_always_refused() {
        let right = format!("Bearer {}", key().reveal());
        let wrong = format!("bearer {}", ApiKey::new([8; 32]).reveal());
        for keys_required in [false, true] {
            let (access, ..) = access(keys_required);
            assert_eq!(code(access.caller(Some(&right)).await), Ok("acme".to_owned()));
            assert_eq!(code(access.caller(Some(&wrong)).await), Err("invalid_api_key"));
            let caller = access.caller(Some(&right)).await.unwrap();
            assert_eq!(caller.key, Some(key().id().unwrap()));
            let payers = [Payer::Key(key().id().unwrap()), Payer::Tenant(caller.tenant)];
            assert_eq!(caller.budgets, payers.map(budget), "its own and its tenant's, no other key's");
        }
    }

    #[tokio::test]
    async fn who_shows_no_key_is_local_or_refused() {
        let local = || Ok("local".to_owned());
        for (shown, optional, required) in [
            (None, local(), Err("missing_api_key")),
            (Some("Bearer unused"), local(), Err("invalid_api_key")),
            (Some("Basic eDp5"), local(), Err("invalid_api_key")),
            (Some(""), local(), Err("invalid_api_key")),
        ] {
            assert_eq!(code(access(false).0.caller(shown).await), optional, "{shown:?}");
            assert_eq!(code(access(true).0.caller(shown).await), required, "{shown:?}");
        }
    }

    #[tokio::test]
    async fn what_was_found_is_remembered_for_a_while_and_a_revoked_key_no_longer() {
        let (access, accounts, clock) = access(true);
        let right = format!("Bearer {}", key().reveal());
        let wrong = format!("Bearer {}", ApiKey::new([8; 32]).reveal());
        for _ in 0..5 {
            access.caller(Some(&right)).await.unwrap();
            access.caller(Some(&wrong)).await.unwrap_err();
        }
        assert_eq!(accounts.look_ups.load(Ordering::Relaxed), 2);
        *accounts.revoked.lock().unwrap() = true;
        access.caller(Some(&right)).await.unwrap();
        *clock.0.lock().unwrap() = u64::try_from(KNOWN_FOR.as_millis()).unwrap();
        assert_eq!(code(access.caller(Some(&right)).await), Err("invalid_api_key"));
    }
}
