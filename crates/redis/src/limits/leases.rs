//! The leases of this process: which are held, and which ended and Redis was not told yet.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_domain::limits::{Ask, Drawn, Granted, Refusal, Settled, Share, TokenEstimate};
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use podium_ports::limiter::{Permit, Settlement};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::limits::keys::Place;
use crate::limits::meters::{Counted, InFlight, Meters};
use crate::limits::script::milliseconds;

/// Most leases that wait to be settled. Beyond it they come back by running out. Only a Redis that is away lets them wait,
/// and what was granted meanwhile it never heard of, so this bounds what is held at the moment of its going.
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
    /// What is known of workers and accounts without Redis.
    meters: Meters,
}

#[derive(Debug)]
struct Calls {
    place: Arc<Place>,
    held: BTreeMap<u64, Known>,
    ended: Vec<Ended>,
}

/// Who may know of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Here,
    Redis,
}

/// A lease that is to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) settled: Settled,
}

/// What Redis is to be told of one worker.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) place: Arc<Place>,
    pub(crate) held: Vec<u64>,
    pub(crate) ended: Vec<Ended>,
}

impl Leases {
    /// None yet. `instance` tells this process's leases from all others'.
    pub(crate) fn new(instance: Uuid, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { instance, clock, table: Mutex::default(), woken: Notify::new() })
    }

    /// The name that Redis knows this process by.
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

    /// A lease that nobody knows of yet.
    pub(crate) fn prepare(self: &Arc<Self>, place: Place, estimate: TokenEstimate) -> Lease {
        let mut table = self.lock();
        table.next += 1;
        let settled = Settled { reserved: None, estimate, granted: None, settlement: Settlement::default() };
        Lease {
            place: Arc::new(place),
            number: table.next,
            stage: Stage::Prepared,
            settled,
            counted: None,
            leases: Arc::clone(self),
        }
    }

    /// The name that Redis knows a lease by.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.instance.simple())
    }

    /// Something random for each lease.
    pub(crate) fn seed(&self, number: u64) -> u64 {
        self.instance.as_u64_pair().1 ^ number
    }

    /// Waits until there is something to settle, or [`Self::wake`]. It may be there no longer.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Ends the wait of [`Self::woken`], now or the next time.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// All that is held, and what ended. From now on Redis may know of it.
    pub(crate) fn take_everything(&self) -> Vec<Batch> {
        let mut table = self.lock();
        for known in table.workers.values_mut().flat_map(|calls| calls.held.values_mut()) {
            *known = Known::Redis;
        }
        table.take(|calls| calls.held.keys().copied().collect())
    }

    /// What ended.
    pub(crate) fn take_ended(&self) -> Vec<Batch> {
        self.lock().take(|_| Vec::new())
    }

    /// Redis was not told, or nobody knows whether it was.
    pub(crate) fn put_back(&self, batches: Vec<Batch>) {
        let mut table = self.lock();
        for batch in batches {
            for ended in batch.ended {
                table.end(&batch.place, &ended);
            }
        }
    }
}

impl Table {
    fn take(&mut self, held: impl Fn(&Calls) -> Vec<u64>) -> Vec<Batch> {
        let batch = |calls: &mut Calls| Batch {
            place: Arc::clone(&calls.place),
            held: held(calls),
            ended: mem::take(&mut calls.ended),
        };
        let batches: Vec<_> = self.workers.values_mut().map(batch).collect();
        self.ended = 0;
        self.workers.retain(|_, calls| !calls.held.is_empty());
        batches.into_iter().filter(|batch| !batch.held.is_empty() || !batch.ended.is_empty()).collect()
    }

    fn end(&mut self, place: &Arc<Place>, ended: &Ended) {
        if self.ended < ENDED_MAX {
            self.ended += 1;
            self.calls(place).ended.push(*ended);
        }
    }

    fn calls(&mut self, place: &Arc<Place>) -> &mut Calls {
        let calls = self.workers.entry(place.name().into()).or_insert_with(|| Calls {
            place: Arc::clone(place),
            held: BTreeMap::new(),
            ended: Vec::new(),
        });
        // The newest limits count.
        calls.place = Arc::clone(place);
        calls
    }

    /// How many leases of a worker are held, or of all workers of its account.
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer calls than 2^53")]
    fn held(&self, of: impl Fn(&Place) -> bool) -> f64 {
        let calls = self.workers.values().filter(|calls| of(&calls.place));
        calls.map(|calls| calls.held.len()).sum::<usize>() as f64
    }
}

/// One lease. It is settled when it is dropped, if somebody may know of it.
pub(crate) struct Lease {
    place: Arc<Place>,
    number: u64,
    stage: Stage,
    settled: Settled,
    /// As what the meters of this process know it.
    counted: Option<Counted>,
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
    /// It is a permit that was granted without Redis.
    HeldHere,
}

impl Lease {
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
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

    /// Redis granted it. With `noted` it is counted in the meters of this process as well, by that share.
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
            let in_flight = table.in_flight(&self.place);
            let share = share.unwrap_or(Share::Fixed(1.0));
            self.counted = Some(table.meters.note(&self.place, now, in_flight, share, &ask));
        }
        table.calls(&self.place).held.insert(self.number, Known::Redis);
        drop(table);
        Box::new(self)
    }

    /// Holds it without Redis if the process' share has capacity for it. All leases that the process holds count.
    pub(crate) fn hold_here(mut self, share: Share, ask: &Ask<'_>) -> Result<Box<dyn Permit>, Refusal> {
        let leases = Arc::clone(&self.leases);
        let now = leases.now();
        let mut table = leases.lock();
        let in_flight = table.in_flight(&self.place);
        let asked = table.meters.ask(&self.place, now, in_flight, share, (ask, self.settled.estimate));
        match asked {
            Ok(counted) => {
                self.counted = Some(counted);
                let known = if self.stage == Stage::Asked { Known::Redis } else { Known::Here };
                self.stage = Stage::HeldHere;
                table.calls(&self.place).held.insert(self.number, known);
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
    fn in_flight(&self, place: &Place) -> InFlight {
        let account_name = place.account_name();
        InFlight {
            worker: self.held(|other| other.name() == place.name()),
            account: self.held(|other| account_name.is_some() && other.account_name() == account_name),
        }
    }

    fn release(&mut self, place: &Place, number: u64) -> Option<Known> {
        let calls = self.workers.get_mut(place.name())?;
        let known = calls.held.remove(&number);
        if calls.held.is_empty() && calls.ended.is_empty() {
            self.workers.remove(place.name());
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
            let in_flight = table.in_flight(&self.place);
            table.meters.settle(&self.place, now, in_flight, counted, &self.settled);
        }
        let known = match self.stage {
            Stage::Held | Stage::HeldHere => table.release(&self.place, self.number),
            Stage::Asked | Stage::Prepared => Some(Known::Redis),
        };
        if known == Some(Known::Redis) {
            table.end(&self.place, &Ended { number: self.number, settled: self.settled });
            drop(table);
            self.leases.wake();
        }
    }
}

#[cfg(test)]
mod tests;
