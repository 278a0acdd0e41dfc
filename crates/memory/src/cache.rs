//! The step cache of one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use podium_domain::time::Timestamp;
use podium_ports::cache::{CacheError, CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;

/// A step cache in this process. Clones share their entries.
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
    /// Keys by the order in which they were stored: the first is the oldest and expires first.
    order: BTreeMap<u64, CacheKey>,
    kept: u64,
}

struct Known {
    output: CachedOutput,
    until: Timestamp,
    place: u64,
}

impl MemoryCache {
    /// An empty cache.
    pub fn new(clock: Arc<dyn Clock>, options: CacheOptions) -> Self {
        Self { shared: Arc::new(Shared { clock, options, table: Mutex::default() }) }
    }

    /// The table without the entries that have expired at `now`.
    fn lock(&self, now: Timestamp) -> MutexGuard<'_, Table> {
        let mut table = self.shared.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_old(now);
        table
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
    async fn look_up(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CacheError> {
        let table = self.lock(self.shared.clock.now());
        Ok(table.known.get(key).map(|known| known.output.clone()))
    }

    async fn keep(&self, key: &CacheKey, output: &CachedOutput) -> Result<(), CacheError> {
        let (now, options) = (self.shared.clock.now(), &self.shared.options);
        let mut table = self.lock(now);
        if output.output.len() <= options.entry_bytes_max {
            table.insert(key, output.clone(), now.after(options.ttl));
        }
        while table.known.len() > options.entries_max {
            let Some((_, oldest)) = table.order.pop_first() else { break };
            table.known.remove(&oldest);
        }
        Ok(())
    }
}
