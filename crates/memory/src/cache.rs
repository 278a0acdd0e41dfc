//! Outputs that were answered in this process, and who is about to make one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::ClaimId;
use podium_domain::time::Timestamp;
use podium_ports::cache::{CacheError, CacheKey, CacheOptions, CachedOutput, GivenUp, Look, StepCache};
use podium_ports::clock::Clock;

/// Most leads that are remembered; who comes when there are more calls for itself.
const LEADS_MAX: usize = 16_384;

/// A step cache in this process. Clones are the same.
#[derive(Clone)]
pub struct MemoryCache {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    options: CacheOptions,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    known: HashMap<CacheKey, Known>,
    /// By when they were kept: the first is the oldest, and runs out first.
    order: BTreeMap<u64, CacheKey>,
    kept: u64,
    leads: HashMap<CacheKey, Lead>,
}

struct Known {
    output: CachedOutput,
    until: Timestamp,
    place: u64,
}

struct Lead {
    /// None: the last call failed, and everybody calls for themselves.
    holder: Option<ClaimId>,
    since: Timestamp,
    until: Timestamp,
}

impl MemoryCache {
    /// A cache that knows nothing yet.
    pub fn new(clock: Arc<dyn Clock>, options: CacheOptions) -> Self {
        Self { shared: Arc::new(Shared { clock, options, table: Mutex::default() }) }
    }

    fn lock(&self) -> (MutexGuard<'_, Table>, Timestamp, CacheOptions) {
        let Shared { clock, options, table } = &*self.shared;
        let now = clock.now();
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_old(now);
        (table, now, *options)
    }
}

impl Table {
    fn forget_old(&mut self, now: Timestamp) {
        while let Some((place, key)) = self.order.first_key_value().map(|(place, key)| (*place, *key)) {
            if self.known.get(&key).is_some_and(|known| now < known.until) {
                return;
            }
            self.order.remove(&place);
            self.known.remove(&key);
        }
    }

    fn look(&self, key: &CacheKey, now: Timestamp) -> Look {
        if let Some(known) = self.known.get(key) {
            return Look::Known(known.output.clone());
        }
        match self.leads.get(key) {
            Some(lead) if lead.holder.is_some() && now < lead.until => {
                Look::UnderWay { since: now.since(lead.since) }
            }
            _ => Look::Nothing,
        }
    }

    fn is_open(&self, key: &CacheKey, now: Timestamp) -> bool {
        self.leads.get(key).is_some_and(|lead| lead.holder.is_none() && now < lead.until)
    }

    fn set_lead(&mut self, key: &CacheKey, holder: Option<ClaimId>, now: Timestamp, ttl: Duration) {
        if self.leads.len() >= LEADS_MAX {
            self.leads.retain(|_, lead| now < lead.until);
        }
        if self.leads.len() < LEADS_MAX || self.leads.contains_key(key) {
            self.leads.insert(*key, Lead { holder, since: now, until: now.after(ttl) });
        }
    }

    fn is_led_by(&self, key: &CacheKey, lead: ClaimId, now: Timestamp) -> bool {
        self.leads.get(key).is_some_and(|found| found.holder == Some(lead) && now < found.until)
    }

    fn insert(&mut self, key: &CacheKey, output: CachedOutput, until: Timestamp) {
        self.kept += 1;
        let known = Known { output, until, place: self.kept };
        self.order.insert(self.kept, *key);
        if let Some(before) = self.known.insert(*key, known) {
            self.order.remove(&before.place);
        }
    }
}

#[async_trait]
impl StepCache for MemoryCache {
    async fn look_up(&self, key: &CacheKey) -> Result<Look, CacheError> {
        let (table, now, _) = self.lock();
        Ok(table.look(key, now))
    }

    async fn lead(&self, key: &CacheKey, lead: ClaimId) -> Result<Look, CacheError> {
        let (mut table, now, options) = self.lock();
        let look = table.look(key, now);
        if look == Look::Nothing && !table.is_open(key, now) {
            table.set_lead(key, Some(lead), now, options.lead_ttl);
        }
        Ok(look)
    }

    async fn extend(&self, key: &CacheKey, lead: ClaimId) -> Result<(), CacheError> {
        let (mut table, now, options) = self.lock();
        if table.is_led_by(key, lead, now)
            && let Some(found) = table.leads.get_mut(key)
        {
            found.until = now.after(options.lead_ttl);
        }
        Ok(())
    }

    async fn keep(&self, key: &CacheKey, lead: ClaimId, output: &CachedOutput) -> Result<(), CacheError> {
        let (mut table, now, options) = self.lock();
        if output.output.len() <= options.entry_bytes_max {
            table.insert(key, output.clone(), now.after(options.ttl));
            table.leads.remove(key);
        } else if table.is_led_by(key, lead, now) {
            // Who waits for it would wait for every other one, too.
            table.set_lead(key, None, now, options.lead_ttl);
        }
        while table.known.len() > options.entries_max {
            let Some((_, oldest)) = table.order.pop_first() else { break };
            table.known.remove(&oldest);
        }
        Ok(())
    }

    async fn give_up(&self, key: &CacheKey, lead: ClaimId, why: GivenUp) -> Result<(), CacheError> {
        let (mut table, now, options) = self.lock();
        match why {
            GivenUp::Failed => table.set_lead(key, None, now, options.lead_ttl),
            GivenUp::Stopped if table.is_led_by(key, lead, now) => {
                table.leads.remove(key);
            }
            GivenUp::Stopped => {}
        }
        Ok(())
    }

    fn extend_every(&self) -> Duration {
        self.shared.options.extend_every()
    }
}
