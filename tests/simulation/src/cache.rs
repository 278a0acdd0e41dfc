//! The step cache: slow, lossy, and wiped at times.

use std::collections::BTreeMap;

use async_trait::async_trait;
use podium_ports::cache::{CacheError, CacheKey, CachedOutput, StepCache};

use crate::mutation::Mutation;
use crate::trace::note;
use crate::world::{Core, Link, Service};

/// How long an output is kept.
const OUTPUT_TTL_MS: u64 = 20_000;

/// The contents of the cache.
#[derive(Debug, Default)]
pub(crate) struct CacheState {
    known: BTreeMap<CacheKey, Known>,
}

#[derive(Debug)]
struct Known {
    output: CachedOutput,
    until_ms: u64,
}

impl CacheState {
    pub(crate) fn wipe(&mut self) {
        self.known.clear();
    }
}

impl Core {
    fn look_up(&mut self, key: CacheKey) -> Option<CachedOutput> {
        let now_ms = self.now_ms;
        self.cache.known.retain(|_, known| now_ms < known.until_ms);
        let is_mixed = self.is_mutated(Mutation::MixOutputs);
        let found = self.cache.known.iter().find(|(known, _)| (**known == key) != is_mixed);
        let output = found.map(|(_, known)| known.output.clone())?;
        self.count("output known");
        Some(output)
    }

    fn keep(&mut self, key: CacheKey, output: CachedOutput) {
        let until_ms = self.now_ms + OUTPUT_TTL_MS;
        note!(self, "the cache keeps `{}`", output.output);
        self.cache.known.insert(key, Known { output, until_ms });
    }
}

/// A node's connection to the cache.
pub(crate) struct SimCache(pub(crate) Link);

impl SimCache {
    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, CacheError> {
        self.0.ask(Service::Cache, effect).await.map_err(|broken| CacheError(broken.into()))
    }
}

#[async_trait]
impl StepCache for SimCache {
    async fn look_up(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CacheError> {
        let key = *key;
        self.ask(move |core| core.look_up(key)).await
    }

    async fn keep(&self, key: &CacheKey, output: &CachedOutput) -> Result<(), CacheError> {
        let (key, output) = (*key, output.clone());
        self.ask(move |core| core.keep(key, output)).await
    }
}
