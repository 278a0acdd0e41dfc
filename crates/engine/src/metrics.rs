//! What the engine measures. `docs/metrics.md` says what each of it means, and a test compares the two.
//!
//! What happens to runs is measured by their events, in the process that commits them, once they are durable: so each is counted
//! once, whatever is tried twice. A commit whose answer was lost is not counted. All else is measured where it happens.
//!
//! Times are taken from the port `Clock`, to a millisecond. No tenant, key or run stands in an attribute: there may be any number
//! of them.

mod cache;
pub(crate) mod cache_counts;
mod call;
mod events;
mod lanes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use opentelemetry::{KeyValue, StringValue, global};
use podium_domain::budget::{Payer, Shortage};
use podium_domain::ids::WorkerId;
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_ports::limiter::Why;

pub(crate) use cache::{Cache, CacheUse};
pub(crate) use call::{CallMeter, Calls};
pub(crate) use events::Events;
pub(crate) use lanes::Lanes;

/// The name of the instruments' scope.
const SCOPE: &str = "podium.engine";
/// Bounds of times of whole runs and of waits, in seconds: from what nobody notices to the longest deadlines.
const WAITS_S: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];
/// Bounds of times of commits, in seconds.
const COMMITS_S: [f64; 11] = [0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0];
/// Bounds of sizes of batches.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// In place of a worker whom the pool does not have (any more): old runs may name any number of them.
const OTHER: &str = "_OTHER";

const OUTCOME: &str = "podium.outcome";
const WORKER: &str = "podium.worker";
const TIER: &str = "podium.tier";

/// Everything that an engine measures. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    names: Names,
    events: Events,
    calls: Calls,
    lanes: Lanes,
    cache: Cache,
    permits: Counter<u64>,
    breakers: Gauge<u64>,
    waits: Histogram<f64>,
    budget_refusals: Counter<u64>,
    sweeps: Counter<u64>,
    swept: Counter<u64>,
    commit_duration: Histogram<f64>,
    commit_commands: Histogram<u64>,
    commit_conflicts: Counter<u64>,
}

/// The workers' names, made once.
pub(crate) struct Names {
    workers: HashMap<WorkerId, StringValue>,
}

/// At which point a budget had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request was not accepted.
    Accept,
    /// The run ended, or went without a further round.
    Run,
}

/// What a sweep finds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) ready: usize,
    pub(crate) expired: usize,
    pub(crate) overdue: usize,
}

impl Metrics {
    /// On the process' meter: what that is has to be settled before.
    pub(crate) fn new(pool: &Pool) -> Self {
        let meter = &global::meter(SCOPE);
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        let inner = Inner {
            names: Names::of(pool),
            events: Events::new(meter),
            calls: Calls::new(meter, pool),
            lanes: Lanes::new(meter, pool),
            cache: Cache::new(meter),
            permits: counter(
                "podium.permit.asked",
                "{permit}",
                "Times that the limiter was asked for a call",
            ),
            breakers: meter
                .u64_gauge("podium.breaker.open")
                .with_unit("{breaker}")
                .with_description("1 while the worker's circuit breaker is open, as the limiter said last")
                .build(),
            waits: seconds(
                meter,
                "podium.step.wait",
                "From when a step could begin until its call was permitted",
                &WAITS_S,
            ),
            budget_refusals: counter(
                "podium.budget.refusals",
                "{refusal}",
                "Times that a budget had no room for what a run would spend",
            ),
            sweeps: counter("podium.sweep.count", "{sweep}", "Looks at the store for what was lost"),
            swept: counter("podium.sweep.found", "{task}", "What such looks found"),
            commit_duration: seconds(meter, "podium.commit.duration", "One commit of a batch", &COMMITS_S),
            commit_commands: meter
                .u64_histogram("podium.commit.commands")
                .with_unit("{command}")
                .with_description("Commands in one commit")
                .with_boundaries(BATCHES.to_vec())
                .build(),
            commit_conflicts: counter(
                "podium.commit.conflicts",
                "{command}",
                "Commands decided anew because another process had committed first",
            ),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What is measured of calls.
    pub(crate) fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    /// What is measured of lanes.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.inner.lanes
    }

    /// What is measured of the step cache.
    pub(crate) fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// What is measured of events, and the names that it needs.
    pub(crate) fn events(&self) -> (&Events, &Names) {
        (&self.inner.events, &self.inner.names)
    }

    /// The limiter was asked for a call; `Ok`: it was granted. No reason: the limiter failed.
    pub(crate) fn asked(&self, worker: &WorkerId, granted: Result<(), Option<Why>>) {
        let outcome = match granted {
            Ok(()) => "granted",
            Err(Some(Why::Busy)) => "busy",
            Err(Some(Why::Rate)) => "rate",
            Err(Some(Why::Blocked)) => "blocked",
            Err(Some(Why::Broken)) => "broken",
            Err(Some(Why::Away)) => "away",
            Err(None) => "failed",
        };
        let worker = self.inner.names.worker(worker);
        match granted {
            Ok(()) => self.inner.breakers.record(0, std::slice::from_ref(&worker)),
            Err(Some(Why::Broken)) => self.inner.breakers.record(1, std::slice::from_ref(&worker)),
            Err(_) => {}
        }
        self.inner.permits.add(1, &[worker, KeyValue::new(OUTCOME, outcome)]);
    }

    /// A step waited so long until its call was permitted.
    pub(crate) fn waited(&self, tier: Tier, wait: Duration) {
        self.inner.waits.record(wait.as_secs_f64(), &[tier_of(tier)]);
    }

    /// A budget had no room.
    pub(crate) fn refused(&self, stage: Stage, shortage: &Shortage) {
        let stage = match stage {
            Stage::Accept => "accept",
            Stage::Run => "run",
        };
        let payer = match shortage.payer {
            Payer::Tenant(_) => "tenant",
            Payer::Key(_) => "key",
        };
        let attributes = [KeyValue::new("podium.stage", stage), KeyValue::new("podium.payer", payer)];
        self.inner.budget_refusals.add(1, &attributes);
    }

    /// A sweep ended; nothing: it failed.
    pub(crate) fn swept(&self, found: Option<Found>) {
        let outcome = if found.is_some() { "done" } else { "failed" };
        self.inner.sweeps.add(1, &[KeyValue::new(OUTCOME, outcome)]);
        let Some(Found { ready, expired, overdue }) = found else { return };
        for (kind, count) in [("ready", ready), ("expired", expired), ("overdue", overdue)] {
            self.inner.swept.add(count as u64, &[KeyValue::new("podium.kind", kind)]);
        }
    }

    /// A run was found that this process cannot read.
    pub(crate) fn unreadable(&self) {
        self.inner.swept.add(1, &[KeyValue::new("podium.kind", "unreadable")]);
    }

    /// A batch of so many commands was committed, of which some have to be decided anew.
    pub(crate) fn committed(&self, commands: usize, anew: usize, took: Duration) {
        self.inner.commit_duration.record(took.as_secs_f64(), &[]);
        self.inner.commit_commands.record(commands as u64, &[]);
        self.inner.commit_conflicts.add(anew as u64, &[]);
    }
}

impl Names {
    fn of(pool: &Pool) -> Self {
        let name = |worker: &podium_domain::pool::Worker| {
            (worker.id.clone(), StringValue::from(Arc::<str>::from(worker.id.as_str())))
        };
        Self { workers: pool.workers().iter().map(name).collect() }
    }

    /// A worker as an attribute.
    fn worker(&self, id: &WorkerId) -> KeyValue {
        match self.workers.get(id) {
            Some(name) => KeyValue::new(WORKER, name.clone()),
            None => KeyValue::new(WORKER, OTHER),
        }
    }
}

fn tier_of(tier: Tier) -> KeyValue {
    KeyValue::new(TIER, tier.as_str())
}

fn seconds(meter: &Meter, name: &'static str, what: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_description(what).with_boundaries(bounds.to_vec()).build()
}
