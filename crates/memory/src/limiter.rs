//! The limiter of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{VendorId, WorkerId};
use podium_domain::limits::{Ask, Drawn, Granted, Meter, Settled, Terms, scatter};
use podium_domain::pool::Worker;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError, Permit, Settlement, TokenEstimate};

/// Longest delay after which a refused call must ask again.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// Grants calls within the limits of workers and of their vendors' accounts, in this process.
#[derive(Clone)]
pub struct MemoryLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    ask_again_max: Duration,
    table: Mutex<Table>,
}

/// The meters; at most as many as the pool has workers and vendors.
#[derive(Default)]
struct Table {
    workers: HashMap<(VendorId, WorkerId), Meter>,
    accounts: HashMap<VendorId, Meter>,
    /// The number of refusals; the seed of each one's random delay.
    refusals: u64,
}

impl MemoryLimiter {
    /// A limiter that has granted nothing yet. Each limit per minute begins with capacity for one call.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::asking_again_within(clock, ASK_AGAIN_MAX)
    }

    /// The same, with another longest delay after which a refused call must ask again.
    pub fn asking_again_within(clock: Arc<dyn Clock>, ask_again_max: Duration) -> Self {
        Self { shared: Arc::new(Shared { clock, ask_again_max, table: Mutex::default() }) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        milliseconds(self.clock.now().since(Timestamp::default()))
    }
}

#[async_trait]
impl Limiter for MemoryLimiter {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        let shared = &self.shared;
        let (worker, now) = (request.worker, shared.now());
        let mut table = shared.lock();
        let table = &mut *table;
        let meter = table.workers.entry(key(worker)).or_default();
        let takes = meter.expects(request.estimate);
        let mut scopes = vec![(meter, Terms::of_worker(&worker.limits))];
        if let Some(terms) = Terms::of_account(&worker.limits.account) {
            scopes.push((table.accounts.entry(worker.vendor.clone()).or_default(), terms));
        }
        let ask = Ask {
            who: &request.who(),
            tier: request.tier,
            tenant: request.tenant.as_str(),
            takes,
            ask_again_ms_max: milliseconds(shared.ask_again_max),
        };
        match Meter::ask(now, &mut scopes, &ask) {
            Ok(granted) => Ok(Grant::Permit(Box::new(CallPermit {
                worker: worker.clone(),
                reserved: takes,
                estimate: request.estimate,
                granted,
                shared: Arc::clone(shared),
                settlement: Settlement::default(),
            }))),
            Err(refusal) => {
                table.refusals += 1;
                Ok(Grant::AskAgain { after: scatter(refusal, table.refusals), why: refusal.why })
            }
        }
    }
}

/// Settles when it is dropped, with the data known by then.
struct CallPermit {
    worker: Worker,
    reserved: Drawn,
    estimate: TokenEstimate,
    granted: Granted,
    shared: Arc<Shared>,
    settlement: Settlement,
}

impl Permit for CallPermit {
    fn settle(mut self: Box<Self>, settlement: Settlement) {
        self.settlement = settlement;
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let now = self.shared.now();
        let Self { reserved, estimate, granted, settlement, worker, .. } = self;
        let settled = Settled {
            reserved: Some(*reserved),
            estimate: *estimate,
            granted: Some(*granted),
            settlement: *settlement,
        };
        let mut table = self.shared.lock();
        if let Some(meter) = table.workers.get_mut(&key(worker)) {
            meter.settle_worker(now, &Terms::of_worker(&worker.limits), &settled);
        }
        let account = table.accounts.get_mut(&worker.vendor);
        if let Some((meter, terms)) = account.zip(Terms::of_account(&worker.limits.account)) {
            meter.settle_account(now, &terms, &settled);
        }
    }
}

fn key(worker: &Worker) -> (VendorId, WorkerId) {
    (worker.vendor.clone(), worker.id.clone())
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
fn milliseconds(span: Duration) -> f64 {
    span.as_millis() as f64
}
