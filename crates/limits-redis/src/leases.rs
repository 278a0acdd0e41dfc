//! The leases of this process: which are held, and which were given back and Redis was not told yet.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_ports::limiter::Permit;
use tokio::sync::Notify;
use uuid::Uuid;

/// Most leases that wait to be given back. Beyond it they come back by running out. Only a Redis that is away lets them wait,
/// and what was granted meanwhile it never heard of, so this bounds what is held at the moment of its going.
const GIVEN_BACK_MAX: usize = 100_000;

/// All leases of this process, by the key of their worker.
#[derive(Debug)]
pub(crate) struct Leases {
    instance: Uuid,
    table: Mutex<Table>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    given_back: usize,
    workers: HashMap<Arc<str>, Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    held: BTreeMap<u64, Known>,
    given_back: Vec<u64>,
}

/// Who may know of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Here,
    Redis,
}

/// What Redis is to be told of one worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) key: Arc<str>,
    pub(crate) held: Vec<u64>,
    pub(crate) given_back: Vec<u64>,
}

impl Leases {
    /// None yet. `instance` tells this process's leases from all others'.
    pub(crate) fn new(instance: Uuid) -> Arc<Self> {
        Arc::new(Self { instance, table: Mutex::default(), woken: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease that nobody knows of yet.
    pub(crate) fn prepare(self: &Arc<Self>, key: String) -> Lease {
        let mut table = self.lock();
        table.next += 1;
        Lease { key: key.into(), number: table.next, stage: Stage::Prepared, leases: Arc::clone(self) }
    }

    /// The name that Redis knows a lease by.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.instance.simple())
    }

    /// Something random for each lease.
    pub(crate) fn seed(&self, number: u64) -> u64 {
        self.instance.as_u64_pair().1 ^ number
    }

    /// Waits until there is something to give back, or [`Self::wake`]. It may be there no longer.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Ends the wait of [`Self::woken`], now or the next time.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// All that is held, and what was given back. From now on Redis may know of it.
    pub(crate) fn take_everything(&self) -> Vec<Batch> {
        let mut table = self.lock();
        for known in table.workers.values_mut().flat_map(|calls| calls.held.values_mut()) {
            *known = Known::Redis;
        }
        table.take(|calls| calls.held.keys().copied().collect())
    }

    /// What was given back.
    pub(crate) fn take_given_back(&self) -> Vec<Batch> {
        self.lock().take(|_| Vec::new())
    }

    /// Redis was not told, or nobody knows whether it was.
    pub(crate) fn put_back(&self, batches: Vec<Batch>) {
        let mut table = self.lock();
        for batch in batches {
            for number in batch.given_back {
                table.give_back(&batch.key, number);
            }
        }
    }
}

impl Table {
    fn take(&mut self, held: impl Fn(&Calls) -> Vec<u64>) -> Vec<Batch> {
        let batch = |(key, calls): (&Arc<str>, &mut Calls)| Batch {
            key: Arc::clone(key),
            held: held(calls),
            given_back: mem::take(&mut calls.given_back),
        };
        let batches: Vec<_> = self.workers.iter_mut().map(batch).collect();
        self.given_back = 0;
        self.workers.retain(|_, calls| !calls.held.is_empty());
        batches.into_iter().filter(|batch| !batch.held.is_empty() || !batch.given_back.is_empty()).collect()
    }

    fn give_back(&mut self, key: &Arc<str>, number: u64) {
        if self.given_back < GIVEN_BACK_MAX {
            self.given_back += 1;
            self.calls(key).given_back.push(number);
        }
    }

    fn calls(&mut self, key: &Arc<str>) -> &mut Calls {
        self.workers.entry(Arc::clone(key)).or_default()
    }
}

/// One lease. It is given back when it is dropped, if somebody may know of it.
#[derive(Debug)]
pub(crate) struct Lease {
    key: Arc<str>,
    number: u64,
    stage: Stage,
    leases: Arc<Leases>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody knows of it.
    Prepared,
    /// Redis was asked for it.
    Asked,
    /// It is a permit.
    Held,
}

impl Lease {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn id(&self) -> String {
        self.leases.id(self.number)
    }

    /// Something random.
    pub(crate) fn seed(&self) -> u64 {
        self.leases.seed(self.number)
    }

    /// Redis is about to be asked for it. Dropped from now on, also because its caller gave up, it is given back.
    pub(crate) fn asked(&mut self) {
        self.stage = Stage::Asked;
    }

    /// Redis refused it, and so knows nothing of it.
    pub(crate) fn refused(mut self) {
        self.stage = Stage::Prepared;
    }

    /// Redis granted it.
    pub(crate) fn hold(mut self) -> Box<dyn Permit> {
        let leases = Arc::clone(&self.leases);
        self.enter(&mut leases.lock(), Known::Redis);
        Box::new(self)
    }

    /// Holds it without Redis if this process holds fewer than `bound` of its worker.
    pub(crate) fn hold_below(mut self, bound: u32) -> Result<Box<dyn Permit>, Self> {
        let leases = Arc::clone(&self.leases);
        let mut table = leases.lock();
        let held = table.workers.get(&self.key).map_or(0, |calls| calls.held.len());
        if u32::try_from(held).is_ok_and(|held| held < bound) {
            let known = if self.stage == Stage::Asked { Known::Redis } else { Known::Here };
            self.enter(&mut table, known);
            Ok(Box::new(self))
        } else {
            // Dropping a lease takes the lock.
            drop(table);
            Err(self)
        }
    }

    fn enter(&mut self, table: &mut Table, known: Known) {
        self.stage = Stage::Held;
        table.calls(&self.key).held.insert(self.number, known);
    }
}

impl Permit for Lease {}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.stage == Stage::Prepared {
            return;
        }
        let mut table = self.leases.lock();
        let known = match self.stage {
            Stage::Held => table.release(&self.key, self.number),
            Stage::Asked | Stage::Prepared => Some(Known::Redis),
        };
        if known == Some(Known::Redis) {
            table.give_back(&self.key, self.number);
            drop(table);
            self.leases.wake();
        }
    }
}

impl Table {
    fn release(&mut self, key: &Arc<str>, number: u64) -> Option<Known> {
        let calls = self.workers.get_mut(key)?;
        let known = calls.held.remove(&number);
        if calls.held.is_empty() && calls.given_back.is_empty() {
            self.workers.remove(key);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Arc<Leases> {
        Leases::new(Uuid::from_u128(7))
    }

    fn a_lease(leases: &Arc<Leases>) -> Lease {
        leases.prepare("k".to_owned())
    }

    fn granted(leases: &Arc<Leases>) -> Box<dyn Permit> {
        let mut lease = a_lease(leases);
        lease.asked();
        lease.hold()
    }

    fn batch(held: &[u64], given_back: &[u64]) -> Vec<Batch> {
        vec![Batch { key: "k".into(), held: held.to_vec(), given_back: given_back.to_vec() }]
    }

    #[test]
    fn a_dropped_permit_is_given_back_once() {
        let leases = leases();
        let (first, second) = (granted(&leases), granted(&leases));
        assert_eq!(leases.take_given_back(), []);
        drop(first);
        assert_eq!(leases.take_everything(), batch(&[2], &[1]));
        assert_eq!(leases.take_everything(), batch(&[2], &[]));
        drop(second);
        assert_eq!(leases.take_given_back(), batch(&[], &[2]));
        assert!(leases.lock().workers.is_empty(), "nothing is left behind");
    }

    #[test]
    fn what_redis_was_not_told_is_told_later() {
        let leases = leases();
        drop(granted(&leases));
        let batches = leases.take_given_back();
        leases.put_back(batches);
        assert_eq!(leases.take_given_back(), batch(&[], &[1]));
    }

    #[test]
    fn a_lease_is_given_back_if_redis_may_know_of_it() {
        let leases = leases();
        drop(a_lease(&leases));
        let mut refused = a_lease(&leases);
        refused.asked();
        refused.refused();
        drop(a_lease(&leases).hold_below(1).unwrap());
        assert_eq!(leases.take_given_back(), [], "Redis knows of none of them");

        let mut given_up = a_lease(&leases);
        given_up.asked();
        drop(given_up);
        assert_eq!(leases.take_given_back(), batch(&[], &[4]));

        let local = a_lease(&leases).hold_below(1).unwrap();
        assert_eq!(leases.take_everything(), batch(&[5], &[]));
        drop(local);
        assert_eq!(leases.take_given_back(), batch(&[], &[5]));
    }

    #[test]
    fn a_local_bound_counts_all_that_is_held() {
        let leases = leases();
        let shared = granted(&leases);
        let local = a_lease(&leases).hold_below(2).unwrap();
        assert!(a_lease(&leases).hold_below(2).is_err());
        assert!(leases.prepare("other".to_owned()).hold_below(1).is_ok());
        drop(shared);
        assert!(a_lease(&leases).hold_below(2).is_ok());
        drop(local);
    }

    #[test]
    fn what_waits_to_be_given_back_is_bounded() {
        let leases = leases();
        for _ in 0..=GIVEN_BACK_MAX {
            drop(granted(&leases));
        }
        let waiting: usize = leases.take_given_back().iter().map(|batch| batch.given_back.len()).sum();
        assert_eq!(waiting, GIVEN_BACK_MAX);
    }
}
