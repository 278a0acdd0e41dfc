//! The faults of a world and their times, drawn from its seed. Each world has only some kinds of fault, so that a kind which hides
//! a defect is absent from other worlds.

use std::time::Duration;

use podium_engine::Options;

use crate::clocks::{AHEAD_MS_MAX, WallClock};
use crate::dice::Dice;
use crate::simulation::Order;
use crate::world::Service;

/// The rates of small faults, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) slow: u64,
    pub(crate) refused: u64,
    pub(crate) request_lost: u64,
    pub(crate) answer_lost: u64,
    pub(crate) message_lost: u64,
    pub(crate) message_twice: u64,
    pub(crate) message_late: u64,
    pub(crate) signal_lost: u64,
    pub(crate) signal_late: u64,
    pub(crate) vendor_fault: u64,
    pub(crate) conductor_fault: u64,
    pub(crate) limiter_refuses: u64,
    pub(crate) row_locked: u64,
}

/// The work of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    pub(crate) plan: bool,
    pub(crate) execute: bool,
}

impl Roles {
    const ALL: Self = Self { plan: true, execute: true };
    const GATEWAY: Self = Self { plan: false, execute: false };
    const PLANNER: Self = Self { plan: true, execute: false };
    const EXECUTOR: Self = Self { plan: false, execute: true };
}

/// The configuration and the faults of one world.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The roles of each node. A single node contains the queue, as the embedded system does.
    pub(crate) nodes: Vec<Roles>,
    pub(crate) rates: Rates,
    pub(crate) ahead_ms: Vec<u64>,
    /// A node whose wall clock is far off until the world is healed.
    pub(crate) wall_clock: Option<WallClock>,
    pub(crate) asks: usize,
    pub(crate) heals_at: u64,
    /// The faults of nodes and services, and their times.
    pub(crate) orders: Vec<(u64, Order)>,
    pub(crate) options: Options,
    pub(crate) ack_wait_ms: u64,
    pub(crate) lane_messages_max: usize,
    /// Most concurrent calls of a worker, if limited.
    pub(crate) calls_max: Option<usize>,
    /// The node of an older version. Each role has another node.
    pub(crate) old: Option<usize>,
    /// Whether the world has a step cache.
    pub(crate) has_cache: bool,
}

impl Scenario {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let nodes = a_cluster(dice);
        let heals_at = dice.between(8_000, 22_000);
        let rates = some_rates(dice);
        let is_ahead = dice.chance(300);
        let ahead_ms = nodes.iter().map(|_| if is_ahead { dice.below(AHEAD_MS_MAX) } else { 0 }).collect();
        let mut orders = some_orders(dice, nodes.len(), heals_at);
        let old = (nodes.len() > 1 && dice.chance(300)).then(|| nodes.len() - 1);
        let is_off = nodes.len() > 1 && dice.chance(200);
        let wall_clock = is_off.then(|| WallClock::draw(dice, nodes.len()));
        let calls_max = dice.chance(300).then(|| dice.index(3) + 1);
        let has_cache = dice.chance(500);
        if has_cache {
            orders.extend(cache_orders(dice, heals_at));
        }
        Self {
            ahead_ms,
            wall_clock,
            asks: usize::try_from(dice.between(6, 24)).unwrap_or(6),
            lane_messages_max: if dice.chance(300) { dice.index(4) + 1 } else { 1_000 },
            ack_wait_ms: dice.between(3_000, 6_000),
            options: some_options(dice),
            nodes,
            rates,
            calls_max,
            old,
            has_cache,
            heals_at,
            orders,
        }
    }
}

/// A single node, several nodes with all roles, or a gateway with planners and executors.
fn a_cluster(dice: &mut Dice) -> Vec<Roles> {
    match dice.below(8) {
        0 => vec![Roles::ALL],
        1..5 => vec![Roles::ALL; dice.index(3) + 2],
        _ => {
            let mut nodes = vec![Roles::GATEWAY, Roles::PLANNER, Roles::EXECUTOR, Roles::EXECUTOR];
            if dice.chance(500) {
                nodes.push(Roles::PLANNER);
            }
            nodes
        }
    }
}

fn some_rates(dice: &mut Dice) -> Rates {
    let mut rate = |most| if dice.chance(500) { dice.between(1, most) } else { 0 };
    Rates {
        slow: rate(150),
        refused: rate(40),
        request_lost: rate(30),
        answer_lost: rate(60),
        message_lost: rate(250),
        message_twice: rate(250),
        message_late: rate(250),
        signal_lost: rate(200),
        signal_late: rate(300),
        vendor_fault: rate(500),
        conductor_fault: rate(250),
        limiter_refuses: rate(250),
        row_locked: rate(40),
    }
}

fn some_orders(dice: &mut Dice, nodes: usize, heals_at: u64) -> Vec<(u64, Order)> {
    let mut orders = vec![(heals_at, Order::Heal)];
    let mut plenty = |dice: &mut Dice, most, order: &dyn Fn(&mut Dice) -> Order| {
        let count = if dice.chance(500) { dice.between(1, most) } else { 0 };
        for _ in 0..count {
            orders.push((dice.below(heals_at), order(dice)));
        }
    };
    plenty(dice, 5, &|dice| {
        let down_ms = dice.between(1, 6_000);
        Order::Kill { node: dice.index(nodes), turns: dice.below(40), down_ms }
    });
    plenty(dice, 2, &|dice| Order::Stop(dice.index(nodes)));
    plenty(dice, 4, &|dice| Order::Freeze { node: dice.index(nodes), ms: dice.between(500, 10_000) });
    plenty(dice, 2, &|dice| Order::Outage { service: Service::Store, ms: dice.between(100, 9_000) });
    plenty(dice, 2, &|dice| Order::Outage { service: Service::Queue, ms: dice.between(100, 9_000) });
    plenty(dice, 2, &|dice| Order::Outage { service: Service::Limiter, ms: dice.between(100, 9_000) });
    plenty(dice, 3, &|_| Order::WipeQueue);
    plenty(dice, 2, &|_| Order::WipeLive);
    plenty(dice, 3, &|dice| {
        let service = [Service::Store, Service::Queue, Service::Live, Service::Limiter][dice.index(4)];
        Order::Cut { node: dice.index(nodes), service, ms: dice.between(500, 12_000) }
    });
    orders
}

fn cache_orders(dice: &mut Dice, heals_at: u64) -> Vec<(u64, Order)> {
    let mut orders = Vec::new();
    for _ in 0..dice.below(3) {
        let ms = dice.between(100, 9_000);
        orders.push((dice.below(heals_at), Order::Outage { service: Service::Cache, ms }));
    }
    orders.extend((0..dice.below(3)).map(|_| (dice.below(heals_at), Order::WipeCache)));
    orders
}

fn some_options(dice: &mut Dice) -> Options {
    let lease = dice.between(2_000, 5_000);
    Options {
        executor: String::new(),
        lease: Duration::from_millis(lease),
        sweep_every: Duration::from_millis(dice.between(400, 1_500)),
        dispatch_grace: Duration::from_millis(dice.between(500, 3_000)),
        dispatch_every: Duration::from_millis(dice.between(20, 300)),
        sweep_tasks_max: if dice.chance(300) { 3 } else { 256 },
        // The checker needs all runs until the world ends.
        runs_kept: None,
        plan_slots: dice.index(3) + 1,
        step_slots: dice.index(4) + 1,
        fetch_wait: Duration::from_millis(dice.between(2_000, 8_000)),
        plan_time_max: Duration::from_secs(10),
        retry_pause: Duration::from_millis(500),
        retry_pause_max: Duration::from_secs(3),
        batch_commands_max: dice.index(16) + 1,
        batches_max: dice.index(3) + 1,
        waiting_commands_max: 64,
        run_cache_runs_max: if dice.chance(300) { 3 } else { 4096 },
        run_cache_bytes_max: 64 << 20,
        drain: Duration::from_millis(dice.between(0, 4_000)),
        ..Options::default()
    }
}
