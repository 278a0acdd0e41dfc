//! Tenants with one key each; some ask much more often than others.

use anyhow::{Context as _, Result, ensure};
use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_ports::accounts::{Accounts as _, KeyAdded, KeyRecord};
use podium_ports::clock::Clock as _;
use podium_server::ApiKey;
use podium_setup::SystemClock;
use podium_store_postgres::{Options, Store};
use rand::Rng;
use serde::{Deserialize, Serialize};

/// One tenant in this many has a budget.
const BUDGET_EVERY: usize = 5;
/// The cap of each budget in billionths of a US dollar: a million dollars, which no measurement spends.
const BUDGET_NANO_USD: u64 = 1_000_000_000_000_000;

/// The keys of the tenants, and the share of each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tenants {
    keys: Vec<String>,
    /// Sums of the shares up to each tenant. The share of the tenant of rank `n` is proportional to `1 / n` (Zipf's law).
    shares: Vec<f64>,
}

impl Tenants {
    /// Creates `count` tenants in the database.
    pub(crate) async fn create(database: &str, count: usize) -> Result<Self> {
        let accounts = Store::open(database, Options::default()).await?;
        let now = SystemClock.now();
        let (mut keys, mut shares, mut sum) = (Vec::with_capacity(count), Vec::with_capacity(count), 0.0);
        for number in 0..count {
            let tenant = TenantId::new(format!("tenant-{number}"))?;
            if number % BUDGET_EVERY == 0 {
                let payer = Payer::Tenant(tenant.clone());
                let cap = Some(Cost::from_nano_usd(BUDGET_NANO_USD));
                let budget = Budget { payer, tenant: tenant.clone(), period: Period::Month, cap };
                accounts.set_budget(&budget).await?;
            }
            let key = ApiKey::new(rand::rng().random());
            let record = KeyRecord { id: key.id()?, tenant, created_at: now, revoked_at: None };
            ensure!(accounts.add_key(&record, &key.hash()).await? == KeyAdded::Added, "a key was refused");
            keys.push(key.reveal().to_owned());
            sum += 1.0 / f64::from(u32::try_from(number + 1)?);
            shares.push(sum);
        }
        Ok(Self { keys, shares })
    }

    /// The key of the next request, drawn by the shares.
    pub(crate) fn next_key(&self, dice: &mut impl Rng) -> Result<&str> {
        let sum = self.shares.last().copied().context("there are no tenants")?;
        let drawn = dice.random_range(0.0..sum);
        let place = self.shares.partition_point(|share| *share <= drawn);
        Ok(&self.keys[place.min(self.keys.len() - 1)])
    }
}
