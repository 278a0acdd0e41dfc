//! The step cache: it is late, loses what it is told, forgets all at times, and remembers who is about to call whom.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::ClaimId;
use podium_ports::cache::{CacheError, CacheKey, CachedOutput, GivenUp, Look, StepCache};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Core, Link, Service};

/// How long an output is kept.
const OUTPUT_TTL_MS: u64 = 20_000;

/// What the cache holds.
#[derive(Debug)]
pub(crate) struct CacheState {
    lead_ttl_ms: u64,
    known: BTreeMap<CacheKey, Known>,
    leads: BTreeMap<CacheKey, Lead>,
}

#[derive(Debug)]
struct Known {
    output: CachedOutput,
    until_ms: u64,
}

#[derive(Debug)]
struct Lead {
    /// None: the last call failed, and everybody calls for themselves.
    holder: Option<ClaimId>,
    since_ms: u64,
    until_ms: u64,
}

impl CacheState {
    pub(crate) fn new(lead_ttl_ms: u64) -> Self {
        Self { lead_ttl_ms, known: BTreeMap::new(), leads: BTreeMap::new() }
    }

    pub(crate) fn wipe(&mut self) {
        self.known.clear();
        self.leads.clear();
    }
}

impl Core {
    fn look(&mut self, key: CacheKey) -> Look {
        let now_ms = self.now_ms;
        self.cache.known.retain(|_, known| now_ms < known.until_ms);
        let is_eternal = self.is_mutated(Mutation::EternalLead);
        let ran_out = |lead: &Lead| now_ms >= lead.until_ms && !(is_eternal && lead.holder.is_some());
        if self.cache.leads.get(&key).is_some_and(ran_out) {
            let lead = self.cache.leads.remove(&key);
            if lead.is_some_and(|lead| lead.holder.is_some()) {
                self.count("lead ran out");
            }
        }
        let is_mixed = self.is_mutated(Mutation::MixOutputs);
        let found = self.cache.known.iter().find(|(known, _)| (**known == key) != is_mixed);
        if let Some(output) = found.map(|(_, known)| known.output.clone()) {
            self.count("output known");
            return Look::Known(output);
        }
        match self.cache.leads.get(&key) {
            Some(Lead { holder: Some(_), since_ms, .. }) => {
                let since = Duration::from_millis(now_ms - since_ms);
                self.count("call under way");
                Look::UnderWay { since }
            }
            _ => Look::Nothing,
        }
    }

    fn set_lead(&mut self, key: CacheKey, holder: Option<ClaimId>) {
        let (since_ms, until_ms) = (self.now_ms, self.now_ms + self.cache.lead_ttl_ms);
        self.cache.leads.insert(key, Lead { holder, since_ms, until_ms });
    }

    fn is_led_by(&self, key: CacheKey, lead: ClaimId) -> bool {
        self.cache.leads.get(&key).is_some_and(|found| found.holder == Some(lead))
    }

    fn lead(&mut self, key: CacheKey, lead: ClaimId) -> Look {
        let look = self.look(key);
        if look == Look::Nothing && !self.cache.leads.contains_key(&key) {
            self.set_lead(key, Some(lead));
        }
        look
    }

    fn extend(&mut self, key: CacheKey, lead: ClaimId) {
        let until_ms = self.now_ms + self.cache.lead_ttl_ms;
        if let Some(found) = self.cache.leads.get_mut(&key).filter(|found| found.holder == Some(lead)) {
            found.until_ms = until_ms;
        }
    }

    fn keep(&mut self, key: CacheKey, output: CachedOutput) {
        let until_ms = self.now_ms + OUTPUT_TTL_MS;
        note!(self, "the cache keeps `{}`", output.output);
        self.cache.known.insert(key, Known { output, until_ms });
        self.cache.leads.remove(&key);
    }

    fn give_up(&mut self, key: CacheKey, lead: ClaimId, why: GivenUp) {
        match why {
            GivenUp::Failed => self.set_lead(key, None),
            GivenUp::Stopped if self.is_led_by(key, lead) => drop(self.cache.leads.remove(&key)),
            GivenUp::Stopped => {}
        }
    }
}

/// A node's way to the cache.
pub(crate) struct SimCache {
    pub(crate) link: Link,
    pub(crate) extend_every: Duration,
}

impl SimCache {
    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, CacheError> {
        self.link.ask(Service::Cache, effect).await.map_err(|broken| CacheError(broken.into()))
    }
}

#[async_trait]
impl StepCache for SimCache {
    async fn look_up(&self, key: &CacheKey) -> Result<Look, CacheError> {
        let key = *key;
        self.ask(move |core| core.look(key)).await
    }

    async fn lead(&self, key: &CacheKey, lead: ClaimId) -> Result<Look, CacheError> {
        let key = *key;
        self.ask(move |core| core.lead(key, lead)).await
    }

    async fn extend(&self, key: &CacheKey, lead: ClaimId) -> Result<(), CacheError> {
        let key = *key;
        self.ask(move |core| core.extend(key, lead)).await
    }

    async fn keep(&self, key: &CacheKey, _: ClaimId, output: &CachedOutput) -> Result<(), CacheError> {
        let (key, output) = (*key, output.clone());
        self.ask(move |core| core.keep(key, output)).await
    }

    async fn give_up(&self, key: &CacheKey, lead: ClaimId, why: GivenUp) -> Result<(), CacheError> {
        let key = *key;
        self.ask(move |core| core.give_up(key, lead, why)).await
    }

    fn extend_every(&self) -> Duration {
        self.extend_every
    }
}
