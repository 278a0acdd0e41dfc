//! The leases of this process: those that are held, and those that ended and are not settled in Redis yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_domain::limits::{Ask, Drawn, Granted, Refusal, Settled, Share, TokenEstimate};
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use podium_ports::limiter::{Permit, Settlement};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::limits::keys::WorkerKeys;
use crate::limits::meters::{Counted, InFlight, Meters};
use crate::limits::script::milliseconds;

/// Most leases that wait to be settled; others have to expire. They wait only while Redis is unreachable. Leases that were granted
/// in that time are unknown to Redis and do not wait, so this bounds the leases held when Redis became unreachable.
const ENDED_MAX: usize = 100_000;

/// All leases of this process, by their worker.
pub(crate) struct Leases {
    instance: Uuid,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    ended: usize,
    workers: HashMap<Arc<str>, Calls>,
    /// They decide while Redis is unreachable.
    meters: Meters,
}

#[derive(Debug)]
struct Calls {
    keys: Arc<WorkerKeys>,
    held: BTreeMap<u64, Known>,
    ended: Vec<Ended>,
}

/// Where a lease is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It was never named in Redis.
    Here,
    /// Redis may know it. It has to be named there.
    PerhapsRedis,
    /// It was granted or named in Redis.
    Redis,
}

/// A lease to settle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) settled: Settled,
}

/// Leases of one worker: the ended ones to settle, or the numbers of held ones to name.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) keys: Arc<WorkerKeys>,
    pub(crate) leases: Vec<T>,
}

impl Leases {
    /// No leases yet. `instance` distinguishes the leases of this process from all others.
    pub(crate) fn new(instance: Uuid, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { instance, clock, table: Mutex::default(), woken: Notify::new() })
    }

    /// The id of this process in Redis.
    pub(crate) fn instance(&self) -> String {
        self.instance.simple().to_string()
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
    fn now(&self) -> f64 {
        milliseconds(self.clock.now().since(Timestamp::default())) as f64
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease that is known nowhere yet.
    pub(crate) fn prepare(self: &Arc<Self>, keys: WorkerKeys, estimate: TokenEstimate) -> Lease {
        let mut table = self.lock();
        table.next += 1;
        let settled = Settled { reserved: None, estimate, granted: None, settlement: Settlement::default() };
        Lease {
            keys: Arc::new(keys),
            number: table.next,
            stage: Stage::Prepared,
            settled,
            counted: None,
            leases: Arc::clone(self),
        }
    }

    /// The id of a lease in Redis.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.instance.simple())
    }

    /// A random number for each lease.
    pub(crate) fn seed(&self, number: u64) -> u64 {
        self.instance.as_u64_pair().1 ^ number
    }

    /// Waits for a lease to settle, or for [`Self::wake`]. The lease may be settled already.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Ends the wait of [`Self::woken`], now or the next time.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// The workers of which this process holds leases.
    pub(crate) fn holding(&self) -> Vec<Arc<WorkerKeys>> {
        let table = self.lock();
        let holding = table.workers.values().filter(|calls| !calls.held.is_empty());
        holding.map(|calls| Arc::clone(&calls.keys)).collect()
    }

    /// Takes leases that ended, at most `most`.
    pub(crate) fn take_ended(&self, most: usize) -> Vec<Batch<Ended>> {
        let mut table = self.lock();
        let (mut batches, mut left) = (Vec::new(), most);
        for calls in table.workers.values_mut() {
            let leases: Vec<Ended> = calls.ended.drain(..left.min(calls.ended.len())).collect();
            if !leases.is_empty() {
                left -= leases.len();
                batches.push(Batch { keys: Arc::clone(&calls.keys), leases });
            }
        }
        table.ended -= most - left;
        table.workers.retain(|_, calls| !calls.held.is_empty() || !calls.ended.is_empty());
        batches
    }

    /// Returns ended leases that Redis may not have received.
    pub(crate) fn put_back(&self, batches: Vec<Batch<Ended>>) {
        let mut table = self.lock();
        for batch in batches {
            for ended in batch.leases {
                table.end(&batch.keys, &ended);
            }
        }
    }

    /// Redis may have lost the held leases of these workers: they have to be named again.
    pub(crate) fn doubt(&self, of: impl Fn(&WorkerKeys) -> bool) {
        let mut table = self.lock();
        let doubted = table.workers.values_mut().filter(|calls| of(&calls.keys));
        for known in doubted.flat_map(|calls| calls.held.values_mut()) {
            *known = if *known == Known::Here { Known::Here } else { Known::PerhapsRedis };
        }
    }

    /// Lists held leases that have to be named in Redis, at most `most`. From now on, Redis may know these.
    pub(crate) fn to_name(&self, most: usize) -> Vec<Batch<u64>> {
        let mut table = self.lock();
        let (mut batches, mut left) = (Vec::new(), most);
        for calls in table.workers.values_mut() {
            let unknown = calls.held.iter_mut().filter(|(_, known)| **known != Known::Redis).take(left);
            let name = |(number, known): (&u64, &mut Known)| {
                *known = Known::PerhapsRedis;
                *number
            };
            let leases: Vec<u64> = unknown.map(name).collect();
            if !leases.is_empty() {
                left -= leases.len();
                batches.push(Batch { keys: Arc::clone(&calls.keys), leases });
            }
        }
        batches
    }

    /// Redis knows these leases now.
    pub(crate) fn named(&self, batches: &[Batch<u64>]) {
        let mut table = self.lock();
        for Batch { keys, leases } in batches {
            let Some(calls) = table.workers.get_mut(keys.name()) else { continue };
            for number in leases {
                calls.held.entry(*number).and_modify(|known| *known = Known::Redis);
            }
        }
    }
}

impl Table {
    fn end(&mut self, keys: &Arc<WorkerKeys>, ended: &Ended) {
        if self.ended < ENDED_MAX {
            self.ended += 1;
            self.calls(keys).ended.push(*ended);
        }
    }

    fn calls(&mut self, keys: &Arc<WorkerKeys>) -> &mut Calls {
        let calls = self.workers.entry(keys.name().into()).or_insert_with(|| Calls {
            keys: Arc::clone(keys),
            held: BTreeMap::new(),
            ended: Vec::new(),
        });
        // The newest limits apply.
        calls.keys = Arc::clone(keys);
        calls
    }

    /// The number of leases that are held of workers for which `of` is true.
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer calls than 2^53")]
    fn held(&self, of: impl Fn(&WorkerKeys) -> bool) -> f64 {
        let calls = self.workers.values().filter(|calls| of(&calls.keys));
        calls.map(|calls| calls.held.len()).sum::<usize>() as f64
    }
}

/// One lease. When it is dropped, it is settled in Redis if Redis may know it.
pub(crate) struct Lease {
    keys: Arc<WorkerKeys>,
    number: u64,
    stage: Stage,
    settled: Settled,
    /// The call as the meters of this process have counted it.
    counted: Option<Counted>,
    leases: Arc<Leases>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is known nowhere.
    Prepared,
    /// It was requested from Redis.
    Asked,
    /// It is a permit.
    Held,
    /// It is a permit that was granted without Redis.
    HeldHere,
}

impl Lease {
    pub(crate) fn keys(&self) -> &Arc<WorkerKeys> {
        &self.keys
    }

    pub(crate) fn id(&self) -> String {
        self.leases.id(self.number)
    }

    /// A random number.
    pub(crate) fn seed(&self) -> u64 {
        self.leases.seed(self.number)
    }

    /// It is about to be requested from Redis. If it is dropped from now on, also because its caller gave up, it is released.
    pub(crate) fn asked(&mut self) {
        self.stage = Stage::Asked;
    }

    /// Redis refused it, so it is unknown there.
    pub(crate) fn refused(mut self) {
        self.stage = Stage::Prepared;
    }

    /// Redis granted it. With `noted` the meters of this process count it as well, by that share.
    pub(crate) fn hold(
        mut self,
        reserved: Drawn,
        granted: Granted,
        noted: Option<(Option<Share>, Ask<'_>)>,
    ) -> Box<dyn Permit> {
        let leases = Arc::clone(&self.leases);
        self.stage = Stage::Held;
        (self.settled.reserved, self.settled.granted) = (Some(reserved), Some(granted));
        let now = leases.now();
        let mut table = leases.lock();
        if let Some((share, ask)) = noted {
            let in_flight = table.in_flight(&self.keys);
            let share = share.unwrap_or(Share::Fixed(1.0));
            self.counted = Some(table.meters.note(&self.keys, now, in_flight, share, &ask));
        }
        table.calls(&self.keys).held.insert(self.number, Known::Redis);
        drop(table);
        Box::new(self)
    }

    /// Grants it without Redis if the share of this process has capacity. All leases that the process holds count.
    pub(crate) fn hold_here(mut self, share: Share, ask: &Ask<'_>) -> Result<Box<dyn Permit>, Refusal> {
        let leases = Arc::clone(&self.leases);
        let now = leases.now();
        let mut table = leases.lock();
        let in_flight = table.in_flight(&self.keys);
        let asked = table.meters.ask(&self.keys, now, in_flight, share, ask, self.settled.estimate);
        match asked {
            Ok(counted) => {
                self.counted = Some(counted);
                let known = if self.stage == Stage::Asked { Known::PerhapsRedis } else { Known::Here };
                self.stage = Stage::HeldHere;
                table.calls(&self.keys).held.insert(self.number, known);
                Ok(Box::new(self))
            }
            Err(refusal) => {
                // Dropping a lease takes the lock.
                drop(table);
                Err(refusal)
            }
        }
    }
}

impl Table {
    fn in_flight(&self, keys: &WorkerKeys) -> InFlight {
        let account_name = keys.account_name();
        InFlight {
            worker: self.held(|other| other.name() == keys.name()),
            account: self.held(|other| account_name.is_some() && other.account_name() == account_name),
        }
    }

    fn release(&mut self, keys: &WorkerKeys, number: u64) -> Option<Known> {
        let calls = self.workers.get_mut(keys.name())?;
        let known = calls.held.remove(&number);
        if calls.held.is_empty() && calls.ended.is_empty() {
            self.workers.remove(keys.name());
        }
        known
    }
}

impl Permit for Lease {
    fn settle(mut self: Box<Self>, settlement: Settlement) {
        self.settled.settlement = settlement;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.stage == Stage::Prepared {
            return;
        }
        let now = self.leases.now();
        let mut table = self.leases.lock();
        if let Some(counted) = self.counted {
            let in_flight = table.in_flight(&self.keys);
            table.meters.settle(&self.keys, now, in_flight, counted, &self.settled);
        }
        let known = match self.stage {
            Stage::Held | Stage::HeldHere => table.release(&self.keys, self.number),
            Stage::Asked | Stage::Prepared => Some(Known::PerhapsRedis),
        };
        if known.is_some_and(|known| known != Known::Here) {
            table.end(&self.keys, &Ended { number: self.number, settled: self.settled });
            drop(table);
            self.leases.wake();
        }
    }
}

#[cfg(test)]
mod tests;
