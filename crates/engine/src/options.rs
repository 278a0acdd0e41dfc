//! The engine's options: every bound that is not part of a policy.

use std::time::Duration;

use podium_domain::retry::RetryLimits;

/// The options of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The process' name in claims.
    pub executor: String,
    /// Length of a process' lease: its claims hold for this time after its last heartbeat. While it holds claims, it sends four
    /// heartbeats in this time.
    pub lease: Duration,
    /// Interval between sweeps.
    pub sweep_every: Duration,
    /// How long a published task may stay unclaimed before it is published again.
    pub dispatch_grace: Duration,
    /// Interval between refills of a lane with a backlog. The messages in the lane have to last for this time.
    pub dispatch_every: Duration,
    /// Most tasks of a kind that one sweep acts on, and most tasks of a lane that are published together.
    pub sweep_tasks_max: u32,
    /// How long a run is kept after its end; `None` keeps it forever.
    pub runs_kept: Option<Duration>,
    /// Interval between removals of old runs.
    pub remove_every: Duration,
    /// Interval between searches for ended runs with reservations for calls whose executor never reported.
    pub settle_every: Duration,
    /// The time that an attempt may take in addition to its call, from its claim to the commit of its result. After that, the
    /// reservation of an ended run for the attempt is released.
    pub report_margin: Duration,
    /// Most runs that are removed together.
    pub remove_runs_max: u32,
    /// Concurrent plans of each tier.
    pub plan_slots: usize,
    /// Concurrent steps of each vendor and tier.
    pub step_slots: usize,
    /// How long one fetch waits for a message.
    pub fetch_wait: Duration,
    /// Longest time for one plan.
    pub plan_time_max: Duration,
    /// Pause after the first failed attempt; it doubles with each later one.
    pub retry_pause: Duration,
    /// Longest such pause, unless the vendor asks for a longer one.
    pub retry_pause_max: Duration,
    /// Bounds on the retries of each worker.
    pub retries: RetryLimits,
    /// Most commands that are decided and committed together, and most runs that are created together.
    pub batch_commands_max: usize,
    /// Most concurrent batches of commands, each of other runs. More than one helps if the store syncs several commits together,
    /// as Postgres does.
    pub batches_max: usize,
    /// Most commands that wait for a batch, and most runs that wait to be created. Beyond it, callers wait.
    pub waiting_commands_max: usize,
    /// Most runs in the run cache.
    pub run_cache_runs_max: usize,
    /// Most bytes of the run cache, estimated.
    pub run_cache_bytes_max: usize,
    /// How long work in flight may continue after the order to stop, before it is released.
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
            run_cache_runs_max: 4096,
            run_cache_bytes_max: 64 << 20,
            drain: Duration::from_secs(10),
        }
    }
}
