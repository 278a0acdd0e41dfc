//! What the engine is built from, and how it is tuned.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::pool::Pool;
use podium_domain::retry::RetryLimits;
use podium_ports::cache::StepCache;
use podium_ports::clock::{Clock, Ids};
use podium_ports::conductor::Conductors;
use podium_ports::limiter::Limiter;
use podium_ports::live::LiveStream;
use podium_ports::queue::StepQueue;
use podium_ports::store::RunStore;
use podium_ports::vendor::Vendors;

/// Everything from outside that the engine needs.
#[derive(Clone)]
pub struct Parts {
    /// The truth.
    pub store: Arc<dyn RunStore>,
    /// The wake-up window.
    pub queue: Arc<dyn StepQueue>,
    /// What happens right now.
    pub live: Arc<dyn LiveStream>,
    /// How hard workers may be used.
    pub limiter: Arc<dyn Limiter>,
    /// What workers answered before, where that may be used again.
    pub cache: Option<Arc<dyn StepCache>>,
    /// Those who serve the workers.
    pub vendors: Arc<dyn Vendors>,
    /// The model that plans, or two while one takes over from the other.
    pub conductors: Conductors,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn Ids>,
    /// The workers.
    pub pool: Arc<Pool>,
}

/// What a process does besides accepting, watching and sweeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// It asks the conductor.
    pub plan: bool,
    /// It calls workers.
    pub execute: bool,
}

impl Roles {
    /// Everything, as an embedded engine does.
    pub const ALL: Self = Self { plan: true, execute: true };
    /// Nothing: a gateway.
    pub const NONE: Self = Self { plan: false, execute: false };
    /// A planner.
    pub const PLANNER: Self = Self { plan: true, execute: false };
    /// An executor.
    pub const EXECUTOR: Self = Self { plan: false, execute: true };
}

/// How the engine is tuned. Every bound that is not a policy's.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this process in claims.
    pub executor: String,
    /// How long the claims of a process hold after its last heartbeat. While it holds claims, its heart beats every quarter of this.
    pub lease: Duration,
    /// How often the sweeper looks.
    pub sweep_every: Duration,
    /// How long a told task may stay unclaimed before its message is taken for lost.
    pub dispatch_grace: Duration,
    /// How often a lane with a backlog is looked after. What its window holds beyond the slots has to last for so long.
    pub dispatch_every: Duration,
    /// Most tasks of a kind that one sweep acts on, and of a lane that are dispatched together.
    pub sweep_tasks_max: u32,
    /// For how long runs are kept after their end; none: for ever.
    pub runs_kept: Option<Duration>,
    /// How often runs that were kept for long enough are looked for.
    pub remove_every: Duration,
    /// How often reservations are released of ended runs whose executor never reported: 30 s.
    pub settle_every: Duration,
    /// How much longer than the limit of its call an attempt may take to be reported, from its claim to the commit of its result:
    /// 1 min. After that an ended run's reservation for it is released.
    pub report_margin: Duration,
    /// Most runs removed at a time.
    pub remove_runs_max: u32,
    /// Plans made at the same time, for each tier.
    pub plan_slots: usize,
    /// Steps run at the same time, for each vendor and tier.
    pub step_slots: usize,
    /// How long one fetch waits for a message.
    pub fetch_wait: Duration,
    /// Longest time for one plan.
    pub plan_time_max: Duration,
    /// Pause after a first failed attempt; doubled for each further one.
    pub retry_pause: Duration,
    /// Longest such pause that is not the vendor's own wish.
    pub retry_pause_max: Duration,
    /// How many retries each worker is asked for.
    pub retries: RetryLimits,
    /// Most commands decided and committed together, and most runs created together.
    pub batch_commands_max: usize,
    /// Most such batches under way at the same time, each of other runs. A store that syncs several commits together, such as
    /// Postgres, gains from more than one.
    pub batches_max: usize,
    /// Most commands waiting to be decided, and most runs waiting to be created; further ones wait with their callers.
    pub waiting_commands_max: usize,
    /// Most runs that are remembered, so that they need not be loaded for each command.
    pub known_runs_max: usize,
    /// Most bytes that remembered runs take, roughly.
    pub known_bytes_max: usize,
    /// How long work under way may go on after the order to stop, before it is handed back.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            executor: "embedded".to_owned(),
            lease: Duration::from_secs(4),
            sweep_every: Duration::from_millis(500),
            dispatch_grace: Duration::from_secs(2),
            dispatch_every: Duration::from_millis(50),
            sweep_tasks_max: 256,
            runs_kept: Some(Duration::from_hours(30 * 24)),
            remove_every: Duration::from_mins(1),
            settle_every: Duration::from_secs(30),
            report_margin: Duration::from_mins(1),
            remove_runs_max: 64,
            plan_slots: 4,
            step_slots: 32,
            fetch_wait: Duration::from_secs(5),
            plan_time_max: Duration::from_mins(2),
            retry_pause: Duration::from_millis(500),
            retry_pause_max: Duration::from_secs(30),
            retries: RetryLimits::default(),
            batch_commands_max: 256,
            batches_max: 1,
            waiting_commands_max: 4096,
            known_runs_max: 4096,
            known_bytes_max: 64 << 20,
            drain: Duration::from_secs(10),
        }
    }
}
