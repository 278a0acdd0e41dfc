//! The loop of a world, from its beginning through its faults to its rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use podium_domain::plan::PlanHead;
use podium_domain::run::{AttemptOutcome, FailReason, Round, Run, RunState};
use podium_ports::store::RunFilter;
use podium_testkit::a_pool_with_tools;

use crate::cache::CacheState;
use crate::checker::{Invariant, Violation};
use crate::clients::{ClientAction, Clients, UnderWay};
use crate::dice::Dice;
use crate::limits::LimitsState;
use crate::mutation::Mutation;
use crate::node::{Node, NodeConfig, PanicWatch, Reach, TurnOutcome, take_panic};
use crate::queue::QueueState;
use crate::store::StoreState;
use crate::trace::{Trace, Tracing, note};
use crate::troubles::{Rates, Scenario};
use crate::world::{Beginning, Core, Service, World};

/// Longest time from the end of all faults to the end of all runs.
const RECOVERY_MS: u64 = 300_000;
/// How long the world must stay at rest.
const REST_MS: u64 = 9_000;
/// Most turns of a world. A world that needs more is in a loop.
const TURNS_MAX: u64 = 3_000_000;

/// An order that only the loop can carry out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Start(usize),
    Kill { node: usize, turns: u64, down_ms: u64 },
    Stop(usize),
    Stopped { node: usize, life: u64 },
    Freeze { node: usize, ms: u64 },
    Thaw { node: usize, life: u64 },
    Outage { service: Service, ms: u64 },
    Cut { node: usize, service: Service, ms: u64 },
    WipeQueue,
    WipeLive,
    WipeCache,
    Client(ClientAction),
    Heal,
}

/// The settings of a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// How the trace is kept.
    pub tracing: Tracing,
    /// The promise that the world breaks.
    pub mutation: Option<Mutation>,
}

/// The result of a world.
#[derive(Debug)]
pub struct Report {
    /// The seed of the world.
    pub seed: u64,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The number of each event, by name.
    pub counts: Vec<(&'static str, u64)>,
    /// The kept lines of the trace.
    pub trace: String,
    /// The hash of all lines; meaningless if tracing was off.
    pub trace_hash: u64,
    /// The duration in the world's time.
    pub lasted: Duration,
}

/// Runs the world of a seed, to its rest or to the first violation.
pub fn simulate(seed: u64, settings: Settings) -> anyhow::Result<Report> {
    let _watch = PanicWatch::begin();
    let mut simulation = Simulation::new(seed, settings)?;
    simulation.run()?;
    simulation.report()
}

/// How much has happened in a simulation: it is at rest while this stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) writes: u64,
    pub(crate) calls: usize,
    pub(crate) plans: u64,
}

struct Simulation {
    seed: u64,
    world: World,
    nodes: Vec<Node>,
    heals_at: u64,
    /// The time since when the world is at rest, and its progress by then.
    rests: Option<(u64, Progress)>,
}

impl Simulation {
    fn new(seed: u64, settings: Settings) -> anyhow::Result<Self> {
        let mut dice = Dice::new(seed);
        let scenario = Scenario::draw(&mut dice);
        let (clients, submits) = Clients::draw(&mut dice, scenario.asks, scenario.heals_at / 2);
        let mut store = StoreState::new(scenario.options.dispatch_grace, settings.mutation);
        store.budgets.caps = clients.caps();
        let mut core = Core::new(Beginning {
            dice,
            trace: Trace::new(settings.tracing),
            rates: scenario.rates,
            mutation: settings.mutation,
            store,
            queue: QueueState::new(scenario.ack_wait_ms, scenario.lane_messages_max),
            cache: CacheState::default(),
            clients,
            limits: LimitsState::new(scenario.calls_max),
            old: scenario.old,
            ahead_ms: scenario.ahead_ms,
            wall_clock: scenario.wall_clock,
        });
        for (at, order) in scenario.orders.into_iter().chain(submits) {
            core.order_after(at, order);
        }
        note!(core, "seed {seed}: {} nodes, heals at {} ms", scenario.nodes.len(), scenario.heals_at);
        let (world, pool) = (World::new(core), Arc::new(a_pool_with_tools()));
        let is_alone = scenario.nodes.len() == 1;
        let mut nodes = Vec::new();
        for (index, roles) in scenario.nodes.into_iter().enumerate() {
            let (options, pool, has_cache) =
                (scenario.options.clone(), Arc::clone(&pool), scenario.has_cache);
            let config = NodeConfig { roles, options, is_alone, pool, seed, has_cache };
            let mut node = Node::new(world.clone(), index, config);
            node.start()?;
            nodes.push(node);
        }
        Ok(Self { seed, world, nodes, heals_at: scenario.heals_at, rests: None })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        for _ in 0..TURNS_MAX {
            let order = {
                let mut core = self.world.lock();
                if let Some(panic) = take_panic() {
                    core.checker.violated(Invariant::NoPanic, panic);
                }
                if core.checker.violation().is_some() {
                    return Ok(());
                }
                core.settle();
                core.orders.pop_front()
            };
            match order {
                Some(order) => self.carry_out(order)?,
                None if self.go_on() => {}
                None => return Ok(()),
            }
        }
        self.world.lock().checker.violated(Invariant::Rest, "the world is in a loop");
        Ok(())
    }

    /// Runs an event or a node's turn, or lets time pass. Returns false at the end of the world.
    fn go_on(&mut self) -> bool {
        let mut core = self.world.lock();
        let able = |node: &usize| self.nodes.get(*node).is_some_and(|node| node.is_up() && !node.is_frozen);
        let ready: Vec<_> = core.ready.iter().copied().filter(able).collect();
        let next = core.next_event_ms();
        let is_due = next.is_some_and(|at| at <= core.now_ms);
        if is_due && (ready.is_empty() || core.dice.chance(500)) {
            core.happen();
        } else if !ready.is_empty() {
            let node = ready[core.dice.index(ready.len())];
            // A dying node gets a short turn, so that it dies in the middle of its work.
            let is_short = self.nodes[node].is_dying() || core.dice.chance(400);
            let reach = if is_short { Reach::Polls(core.dice.between(1, 8)) } else { Reach::Idle };
            // Some work takes time.
            if core.dice.chance(10) {
                core.now_ms += 1;
            }
            drop(core);
            self.turn(node, reach);
        } else if let Some(at) = next {
            core.now_ms = at;
            drop(core);
            return !self.is_over();
        } else {
            core.checker.violated(Invariant::Ends, "no event is left, but the world is not at rest");
        }
        true
    }

    fn turn(&mut self, node: usize, reach: Reach) {
        match self.nodes[node].turn(reach) {
            TurnOutcome::Busy => {}
            TurnOutcome::Idle => drop(self.world.lock().ready.remove(&node)),
            TurnOutcome::Died { down_ms } => self.node_died(node, down_ms),
        }
    }

    /// Records a node's death and schedules its next start.
    fn node_died(&self, node: usize, down_ms: u64) {
        let mut core = self.world.lock();
        note!(core, "node {node} is dead for {down_ms} ms");
        core.count("node died");
        core.ready.remove(&node);
        if self.nodes.len() == 1 {
            // The embedded queue, live stream and step cache die with their process.
            core.queue.wipe();
            core.live.wipe();
            core.cache.wipe();
        }
        core.order_after(down_ms, Order::Start(node));
    }

    fn carry_out(&mut self, order: Order) -> anyhow::Result<()> {
        note!(self.world.lock(), "{order:?}");
        match order {
            Order::Start(node) => self.nodes[node].start()?,
            Order::Kill { node, turns, down_ms } => self.nodes[node].kill_after(turns, down_ms),
            Order::Stop(node) => self.nodes[node].stop(),
            Order::Stopped { node, life } if self.nodes[node].lives() == life => {
                self.nodes[node].kill();
                self.node_died(node, 100);
            }
            Order::Freeze { node, ms } if self.nodes[node].is_up() => {
                self.nodes[node].is_frozen = true;
                let life = self.nodes[node].lives();
                let mut core = self.world.lock();
                core.count("node froze");
                core.order_after(ms, Order::Thaw { node, life });
            }
            Order::Thaw { node, life } if self.nodes[node].lives() == life => {
                self.nodes[node].is_frozen = false;
            }
            // The process of the order has ended.
            Order::Stopped { .. } | Order::Freeze { .. } | Order::Thaw { .. } => {}
            Order::Client(action) => self.receive(action),
            Order::Heal => self.heal()?,
            Order::Outage { .. }
            | Order::Cut { .. }
            | Order::WipeQueue
            | Order::WipeLive
            | Order::WipeCache => {
                self.world.lock().apply_fault(order);
            }
        }
        Ok(())
    }

    /// Serves a client's action at some node.
    fn receive(&self, action: ClientAction) {
        let up: Vec<_> = self.nodes.iter().filter(|node| node.is_up()).collect();
        let chosen = self.world.lock().dice.index(up.len());
        match up.get(chosen) {
            Some(node) => node.serve(action),
            None => drop(UnderWay::new(self.world.clone(), action)),
        }
    }

    fn heal(&mut self) -> anyhow::Result<()> {
        {
            let mut core = self.world.lock();
            core.rates = Rates::default();
            if core.wall_clock.take().is_some() {
                core.count("wall clock off");
            }
            core.away_until.clear();
            core.cut_until.clear();
        }
        for node in &mut self.nodes {
            node.cancel_faults();
            node.start()?;
        }
        Ok(())
    }

    /// Whether the world has been at rest for long enough.
    fn is_over(&mut self) -> bool {
        let mut core = self.world.lock();
        if core.now_ms <= self.heals_at {
            return false;
        }
        let progress = core.checker.progress();
        match self.rests {
            // A node may learn from its next heartbeat that its run has ended, cancel the call and record its cost. That is
            // permitted, but the rest starts again after it.
            Some((_, before)) if before != progress || !core.is_at_rest() => self.rests = None,
            Some((since, _)) if core.now_ms > since + REST_MS => {
                core.check_what_is_left();
                return true;
            }
            None if core.now_ms > self.heals_at + RECOVERY_MS => core.never_rests(),
            None if core.is_at_rest() => self.rests = Some((core.now_ms, progress)),
            _ => {}
        }
        false
    }

    fn report(mut self) -> anyhow::Result<Report> {
        self.nodes.iter_mut().for_each(Node::kill);
        self.nodes.clear();
        {
            let mut core = self.world.lock();
            core.summarize();
            let violation = core.checker.violation().map(ToString::to_string);
            note!(core, "the end: {}", violation.as_deref().unwrap_or("all is well"));
        }
        let core = self.world.into_core().context("the world is still referenced")?;
        let violation = core.checker.violation().cloned();
        let counts = core.counts.into_iter().collect();
        let lasted = Duration::from_millis(core.now_ms);
        let (trace, trace_hash) = core.trace.into_text();
        Ok(Report { seed: self.seed, violation, counts, trace, trace_hash, lasted })
    }
}

impl Core {
    fn apply_fault(&mut self, order: Order) {
        match order {
            Order::Outage { service, ms } => {
                self.count(match service {
                    Service::Store => "store unreachable",
                    Service::Queue => "queue unreachable",
                    Service::Live => "live stream unreachable",
                    Service::Cache => "cache unreachable",
                    Service::Limiter => "limiter unreachable",
                });
                self.away_until.insert(service, self.now_ms + ms);
            }
            Order::Cut { node, service, ms } => {
                self.count("wire cut");
                self.cut_until.insert((node, service), self.now_ms + ms);
            }
            Order::WipeQueue => {
                self.count("queue wiped");
                self.queue.wipe();
            }
            Order::WipeCache => {
                self.count("cache wiped");
                self.cache.wipe();
            }
            _ => self.live.wipe(),
        }
    }

    fn is_at_rest(&self) -> bool {
        self.queue.len() == 0
            && self.calls_under_way == 0
            && self.permits == 0
            && self.clients.pending().is_empty()
            && self.checker.unfinished().next().is_none()
    }

    fn never_rests(&mut self) {
        let unfinished: Vec<_> = self.checker.unfinished().map(|run| run.to_string()).collect();
        if unfinished.is_empty() {
            let (messages, calls, permits) = (self.queue.len(), self.calls_under_way, self.permits);
            let pending = self.clients.pending().clone();
            let what = format!("{messages} messages, {calls} calls, {permits} permits, {pending:?} are left");
            self.checker.violated(Invariant::Rest, what);
        } else {
            self.checker.violated(Invariant::Ends, format!("runs without an end: {}", unfinished.join(", ")));
        }
    }

    /// Counts the outcomes of the runs.
    fn summarize(&mut self) {
        let mut seen = Vec::new();
        for run in self.checker.runs() {
            seen.push(match run.state() {
                RunState::Active => "run active",
                RunState::Suspended => "run suspended",
                RunState::Succeeded { .. } => "run succeeded",
                RunState::Cancelled => "run cancelled",
                RunState::Failed { reason: FailReason::DeadlineExceeded { .. } } => "run too late",
                RunState::Failed {
                    reason: FailReason::CostCapReached { .. } | FailReason::BudgetExhausted { .. },
                } => "run too expensive",
                RunState::Failed { reason: FailReason::SuspensionExpired { .. } } => "run without results",
                RunState::Failed { reason: FailReason::PlanningFailed { .. } } => "run without a plan",
                RunState::Failed { reason: FailReason::FinalStepFailed { .. } } => "run without an answer",
            });
            if run.rounds().len() > 1 {
                seen.push("second round");
            }
            if run.rounds().len() > 2 {
                seen.push("third round");
            }
            seen.extend(run.rounds().iter().flat_map(seen_of_round));
            for attempt in run.tasks().flat_map(|(_, task)| &task.attempts) {
                seen.push(match attempt.outcome {
                    AttemptOutcome::Running => "attempt running",
                    AttemptOutcome::Accepted => "attempt accepted",
                    AttemptOutcome::Failed(_) => "attempt failed",
                    AttemptOutcome::HandedBack => "attempt handed back",
                    AttemptOutcome::Lost => "attempt lost",
                    AttemptOutcome::Unused => "attempt unused",
                });
                seen.extend(attempt.saved.map(|_| "answered from the cache"));
            }
        }
        for what in seen {
            self.count(what);
        }
    }

    fn check_what_is_left(&mut self) {
        let ids: Vec<_> = self.checker.runs().map(Run::id).collect();
        let tenants: BTreeSet<_> = self.checker.runs().map(|run| run.spec().tenant.clone()).collect();
        let listed: Vec<_> = tenants
            .iter()
            .flat_map(|tenant| self.store.list(tenant, &RunFilter::default(), None, u32::MAX))
            .collect();
        for id in ids {
            let sums = listed.iter().find(|summary| summary.id == id).map(|summary| summary.sums);
            let row = self.store.rows.get(&id);
            self.checker.stored_in_the_end(id, row.map(|row| row.events.as_slice()).zip(sums));
        }
        self.checker.charged_in_the_end(&self.store.budgets);
        if listed.len() != self.checker.runs().count() {
            self.checker.violated(Invariant::RequestId, "the store has other runs than were created");
        }
    }
}

/// The events of a round, by name.
fn seen_of_round(round: &Round) -> Vec<&'static str> {
    let mut seen = Vec::new();
    if let Some(reason) = &round.abandoned {
        seen.push(match reason {
            FailReason::PlanningFailed { .. } => "abandoned without a plan",
            FailReason::FinalStepFailed { .. } => "abandoned without an answer",
            FailReason::DeadlineExceeded { .. } => "abandoned too late",
            FailReason::CostCapReached { .. } => "abandoned as too expensive",
            FailReason::BudgetExhausted { .. } => "abandoned without a budget",
            FailReason::SuspensionExpired { .. } => "abandoned without results",
        });
        if round.head.is_some() && round.planned.is_none() {
            seen.push("abandoned with steps begun");
        }
    }
    let steps = round.planned.iter().flat_map(|planned| planned.plan.steps());
    if steps.clone().any(|step| step.sees_earlier_round) {
        seen.push("round before seen");
    }
    let begun = round.head.as_ref().map_or(0, PlanHead::len);
    let is_substitute = round.planned.as_ref().is_some_and(|planned| planned.fallback.is_some());
    let plannings = round.planning.attempts.len();
    if begun > 0 {
        seen.push("begun early");
    }
    if begun > 1 {
        seen.push("begun further");
    }
    if round.superseded > 0 {
        seen.push("superseded");
    } else if begun > 0 && is_substitute {
        seen.push("completed by a substitute");
    } else if begun > 0 && plannings > 1 && round.planned.is_some() {
        seen.push("kept by another planner");
    }
    seen
}
