//! Authentication: finds the tenant of an API key.
//!
//! Keys are looked up by their hash. Each result is cached for ten seconds, so a revoked key or a changed budget takes effect
//! everywhere within that time.

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

/// The tenant of callers without a key.
const LOCAL_TENANT: &str = "local";
/// How long a result is cached.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// Most cached results, those of invalid keys included.
const CACHED_MAX: usize = 10_000;
/// The prefix of every key.
const PREFIX: &str = "pdm_";
/// Longest key that is looked up.
const HEADER_BYTES_MAX: usize = 512;

/// A new key, which is shown once.
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

    /// The hash, which is all that is stored.
    pub fn hash(&self) -> KeyHash {
        hash(&self.0)
    }

    /// Its public id: the first 6 bytes of the hash, which do not reveal the key.
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

/// The caller of a request, and the budgets that its runs are charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant that owns the caller's runs.
    pub tenant: TenantId,
    /// The key that the caller sent.
    pub key: Option<KeyId>,
    /// The budgets of the tenant and of the key.
    pub budgets: Vec<Budget>,
}

impl Caller {
    /// A caller on this machine without a key or a budget.
    pub fn local() -> Result<Self, podium_domain::ids::InvalidName> {
        Ok(Self { tenant: TenantId::new(LOCAL_TENANT)?, key: None, budgets: Vec::new() })
    }
}

/// Authenticates callers. Clones share one cache.
#[derive(Clone)]
pub struct Authenticator {
    accounts: Arc<dyn Accounts>,
    clock: Arc<dyn Clock>,
    keys_required: bool,
    cache: Arc<Mutex<HashMap<Credential, CachedCaller>>>,
}

/// The credential of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Credential {
    Nothing,
    Key(KeyHash),
}

struct CachedCaller {
    /// None: the key is invalid.
    caller: Option<Caller>,
    until: Timestamp,
}

impl Authenticator {
    /// With `keys_required`, callers without a key are rejected; otherwise they are the tenant `local`.
    pub fn new(accounts: Arc<dyn Accounts>, clock: Arc<dyn Clock>, keys_required: bool) -> Self {
        Self { accounts, clock, keys_required, cache: Arc::default() }
    }

    /// Whether callers must send a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.keys_required
    }

    /// Whether the header `authorization` holds a key that is looked up.
    pub(crate) fn is_key(&self, authorization: Option<&str>) -> bool {
        matches!(self.credential(authorization), Ok(Credential::Key(_)))
    }

    /// The caller that sends this `authorization`.
    ///
    /// If no key is required, a value without the prefix of Podium's keys is ignored, since most clients must send some value.
    pub(crate) async fn caller(&self, authorization: Option<&str>) -> Result<Caller, ApiError> {
        let credential = self.credential(authorization)?;
        let now = self.clock.now();
        if let Some(cached) = self.lock().get(&credential).filter(|cached| now < cached.until) {
            return cached.caller.clone().ok_or_else(invalid);
        }
        let caller = self.look_up(credential).await?;
        let mut table = self.lock();
        if table.len() >= CACHED_MAX {
            table.retain(|_, cached| now < cached.until);
        }
        if table.len() < CACHED_MAX {
            table.insert(credential, CachedCaller { caller: caller.clone(), until: now.after(CACHED_FOR) });
        }
        caller.ok_or_else(invalid)
    }

    fn credential(&self, authorization: Option<&str>) -> Result<Credential, ApiError> {
        match authorization.map(bearer) {
            Some(Some(key)) if self.keys_required || key.starts_with(PREFIX) => {
                Ok(Credential::Key(hash(key)))
            }
            Some(None) if self.keys_required => Err(invalid()),
            None if self.keys_required => {
                let message = "an API key is required: send it as `authorization: Bearer KEY`, or over HTTP as `x-api-key: KEY`";
                Err(ApiError::new(ErrorCode::MissingApiKey, message))
            }
            _ => Ok(Credential::Nothing),
        }
    }

    async fn look_up(&self, credential: Credential) -> Result<Option<Caller>, ApiError> {
        let (tenant, key) = match credential {
            Credential::Nothing => {
                (TenantId::new(LOCAL_TENANT).map_err(|e| error_mapping::defect(&e))?, None)
            }
            Credential::Key(hash) => {
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

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The sums of the caller's budgets in their current periods.
    pub(crate) async fn sums(&self, caller: &Caller) -> Result<Vec<BudgetSum>, ApiError> {
        sums(&*self.accounts, caller.budgets.clone(), self.clock.now())
            .await
            .map_err(|e| error_mapping::store_error(&e))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Credential, CachedCaller>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sums of budgets in their periods at `now`.
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

/// The key of an `authorization` of the form `Bearer KEY`.
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, key) = authorization.trim().split_once(' ')?;
    let key = key.trim();
    let is_valid = scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && key.len() <= HEADER_BYTES_MAX;
    is_valid.then_some(key)
}

fn invalid() -> ApiError {
    ApiError::new(
        ErrorCode::InvalidApiKey,
        "the API key is unknown or was revoked; send a valid one as `authorization: Bearer KEY`, or over HTTP as `x-api-key: KEY`",
    )
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

    /// A clock that a test moves.
    #[derive(Default)]
    struct Still(Mutex<u64>);

    #[async_trait]
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_ms(*self.0.lock().unwrap())
        }

        async fn sleep(&self, _span: Duration) {
            unreachable!("nothing sleeps here")
        }
    }

    /// One key of one tenant with budgets: the tenant's, the key's, and another key's.
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

        async fn correct_sum(&self, _: &BudgetRef, _: i64, _: i64) -> Result<Charge, StoreError> {
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
    async fn a_valid_key_names_its_tenant_and_an_unknown_one_is_rejected() {
        let valid = format!("Bearer {}", key().reveal());
        let unknown = format!("bearer {}", ApiKey::new([8; 32]).reveal());
        for keys_required in [false, true] {
            let (access, ..) = access(keys_required);
            assert_eq!(code(access.caller(Some(&valid)).await), Ok("acme".to_owned()));
            assert_eq!(code(access.caller(Some(&unknown)).await), Err("invalid_api_key"));
            let caller = access.caller(Some(&valid)).await.unwrap();
            assert_eq!(caller.key, Some(key().id().unwrap()));
            let payers = [Payer::Key(key().id().unwrap()), Payer::Tenant(caller.tenant)];
            assert_eq!(caller.budgets, payers.map(budget), "its own and its tenant's, no other key's");
        }
    }

    #[tokio::test]
    async fn a_caller_without_a_key_is_local_or_rejected() {
        let local = || Ok("local".to_owned());
        for (header, optional, required) in [
            (None, local(), Err("missing_api_key")),
            (Some("Bearer unused"), local(), Err("invalid_api_key")),
            (Some("Basic eDp5"), local(), Err("invalid_api_key")),
            (Some(""), local(), Err("invalid_api_key")),
        ] {
            assert_eq!(code(access(false).0.caller(header).await), optional, "{header:?}");
            assert_eq!(code(access(true).0.caller(header).await), required, "{header:?}");
        }
    }

    #[tokio::test]
    async fn results_are_cached_until_they_expire() {
        let (access, accounts, clock) = access(true);
        let valid = format!("Bearer {}", key().reveal());
        let unknown = format!("Bearer {}", ApiKey::new([8; 32]).reveal());
        for _ in 0..5 {
            access.caller(Some(&valid)).await.unwrap();
            access.caller(Some(&unknown)).await.unwrap_err();
        }
        assert_eq!(accounts.look_ups.load(Ordering::Relaxed), 2);
        *accounts.revoked.lock().unwrap() = true;
        access.caller(Some(&valid)).await.unwrap();
        *clock.0.lock().unwrap() = u64::try_from(CACHED_FOR.as_millis()).unwrap();
        assert_eq!(code(access.caller(Some(&valid)).await), Err("invalid_api_key"));
    }
}
