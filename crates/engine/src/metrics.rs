//! The engine's metrics. `docs/metrics.md` describes each, and a test compares the two.
//!
//! The process that commits events counts runs, plans and steps by them, after they are durable. So a repeated try is counted once. A
//! commit whose answer was lost is not counted. Everything else is measured where it happens.
//!
//! Times are those of the port `Clock`, in milliseconds. No attribute contains a key or run, whose number is unbounded. Tenants are an
//! attribute of one metric, which bounds their number.

mod cache;
pub(crate) mod cache_counts;
mod call;
mod events;
mod instruments;
mod lanes;
mod loads;
mod log_lines;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Gauge, Histogram};
use opentelemetry::{KeyValue, global};
use podium_domain::budget::{Payer, Shortage};
use podium_domain::ids::WorkerId;
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_domain::run::{Run, SequencedEvent};
use podium_domain::time::Timestamp;
use podium_ports::limiter::RefusalReason;
use podium_ports::run_traces::RunTraces;
use podium_ports::store::LaneLoad;

pub(crate) use cache::{Cache, CacheUse};
pub(crate) use call::{CallMeter, Calls};
use events::{Counting, Events};
use instruments::{Names, OUTCOME, WAITS_S, seconds, tier_of};
pub(crate) use lanes::Lanes;
use loads::LaneLoads;
use tenants::TenantCosts;

/// The scope of the instruments.
const SCOPE: &str = "podium.engine";
/// Histogram bounds of commit times, in seconds.
const COMMITS_S: [f64; 11] = [0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0];
/// Histogram bounds of batch sizes.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Values that the process shows at each export. It outlives the parts that the engine works on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observed {
    loads: LaneLoads,
    tenants: TenantCosts,
}

impl Observed {
    /// Creates the instruments. The process' meter must be set before.
    pub(crate) fn new() -> Self {
        let (meter, loads, tenants) = (global::meter(SCOPE), LaneLoads::default(), TenantCosts::default());
        loads.observe(&meter);
        tenants.observe(&meter);
        Self { loads, tenants }
    }
}

/// The engine's instruments. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Arc<Pool>,
    traces: Option<Arc<dyn RunTraces>>,
    observed: Observed,
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

/// When a budget lacked capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// When a request was submitted.
    Accept,
    /// During a run; then the run ended or had no follow-up round.
    Run,
}

/// The number of tasks and runs that a sweep found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) ready: usize,
    pub(crate) expired: usize,
    pub(crate) overdue: usize,
}

impl Metrics {
    /// Creates the instruments. The process' meter must be set before.
    pub(crate) fn new(pool: &Arc<Pool>, traces: Option<Arc<dyn RunTraces>>, observed: Observed) -> Self {
        let meter = &global::meter(SCOPE);
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        let inner = Inner {
            pool: Arc::clone(pool),
            traces,
            observed,
            names: Names::of(pool),
            events: Events::new(meter),
            calls: Calls::new(meter, pool),
            lanes: Lanes::new(meter, pool),
            cache: Cache::new(meter),
            permits: counter("podium.permit.asked", "{permit}", "Requests to the limiter for a permit"),
            breakers: meter
                .u64_gauge("podium.breaker.open")
                .with_unit("{breaker}")
                .with_description(
                    "1 while the worker's circuit breaker is open, by the limiter's last answer",
                )
                .build(),
            waits: seconds(
                meter,
                "podium.step.wait",
                "Time from when a step could begin until its call was permitted",
                &WAITS_S,
            ),
            budget_refusals: counter(
                "podium.budget.refusals",
                "{refusal}",
                "Requests and runs that a budget lacked the capacity for",
            ),
            sweeps: counter("podium.sweep.count", "{sweep}", "Searches of the store for lost tasks"),
            swept: counter("podium.sweep.found", "{task}", "Tasks and runs that sweeps found"),
            commit_duration: seconds(
                meter,
                "podium.commit.duration",
                "Duration of one commit of a batch",
                &COMMITS_S,
            ),
            commit_commands: meter
                .u64_histogram("podium.commit.commands")
                .with_unit("{command}")
                .with_description("Commands in one commit")
                .with_boundaries(BATCHES.to_vec())
                .build(),
            commit_conflicts: counter(
                "podium.commit.conflicts",
                "{command}",
                "Commands decided again because another process had committed first",
            ),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The instruments of calls.
    pub(crate) fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    /// The instruments of lanes.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.inner.lanes
    }

    /// The instruments of the step cache.
    pub(crate) fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Counts durable events and logs a line for each run and attempt that ended; `run` is the run after the events. A run that ended with them is recorded as a trace.
    pub(crate) fn happened(&self, run: &Run, events: &[SequencedEvent]) {
        let (instruments, names) = (&self.inner.events, &self.inner.names);
        let counting = Counting { instruments, names, tenants: &self.inner.observed.tenants, run };
        counting.count_all(events);
        if let Some(traces) = &self.inner.traces
            && events.iter().any(|event| event.event.is_final())
        {
            traces.ended(run, &self.inner.pool);
        }
    }

    /// Counts a request to the limiter. The error has no reason if the limiter failed.
    pub(crate) fn asked(&self, worker: &WorkerId, granted: Result<(), Option<RefusalReason>>) {
        let outcome = match granted {
            Ok(()) => "granted",
            Err(Some(RefusalReason::Busy)) => "busy",
            Err(Some(RefusalReason::Rate)) => "rate",
            Err(Some(RefusalReason::Blocked)) => "blocked",
            Err(Some(RefusalReason::Broken)) => "broken",
            Err(Some(RefusalReason::Unreachable)) => "away",
            Err(None) => "failed",
        };
        let worker = self.inner.names.worker(worker);
        match granted {
            Ok(()) => self.inner.breakers.record(0, std::slice::from_ref(&worker)),
            Err(Some(RefusalReason::Broken)) => self.inner.breakers.record(1, std::slice::from_ref(&worker)),
            Err(_) => {}
        }
        self.inner.permits.add(1, &[worker, KeyValue::new(OUTCOME, outcome)]);
    }

    /// Measures the wait of a step for its permit.
    pub(crate) fn waited(&self, tier: Tier, wait: Duration) {
        self.inner.waits.record(wait.as_secs_f64(), &[tier_of(tier)]);
    }

    /// Counts a refusal by a budget.
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

    /// Counts a sweep; `None` if it failed.
    pub(crate) fn swept(&self, found: Option<Found>) {
        let outcome = if found.is_some() { "done" } else { "failed" };
        self.inner.sweeps.add(1, &[KeyValue::new(OUTCOME, outcome)]);
        let Some(Found { ready, expired, overdue }) = found else { return };
        // Zero, so that the first unreadable run is an increase of the series.
        for (kind, count) in [("ready", ready), ("expired", expired), ("overdue", overdue), ("unreadable", 0)]
        {
            self.inner.swept.add(count as u64, &[KeyValue::new("podium.kind", kind)]);
        }
    }

    /// Notes the open tasks of all lanes.
    pub(crate) fn loaded(&self, loads: &[LaneLoad], now: Timestamp) {
        self.inner.observed.loads.note(&self.inner.pool, loads, now);
    }

    /// Notes that this process no longer knows the open tasks of lanes.
    pub(crate) fn loads_unknown(&self) {
        self.inner.observed.loads.forget();
    }

    /// Counts a run that this process cannot read.
    pub(crate) fn unreadable(&self) {
        self.inner.swept.add(1, &[KeyValue::new("podium.kind", "unreadable")]);
    }

    /// Measures a commit of `commands`, of which `again` have to be decided again.
    pub(crate) fn committed(&self, commands: usize, again: usize, took: Duration) {
        self.inner.commit_duration.record(took.as_secs_f64(), &[]);
        self.inner.commit_commands.record(commands as u64, &[]);
        self.inner.commit_conflicts.add(again as u64, &[]);
    }
}
