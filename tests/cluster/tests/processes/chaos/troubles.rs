//! The faults, one after another, in an order and at times that a seed decides.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use podium_harness::{Proxy, Service};
use podium_local_cluster::{Cluster, Disks, Proxies};
use podium_vendor_sim::{Behaviour, Fault, ScriptedFault};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::recovery::Recovery;
use crate::load::Lives;

/// The pause after each fault, or after its recovery if the test waits for it.
const PAUSE_MS: std::ops::Range<u64> = 300..1_500;
/// The time before the first fault, in which the baseline rate is measured.
const WARM_UP: Duration = Duration::from_secs(10);
/// Longest wait for a recovery. A slower one counts as none.
const RECOVERY_MAX: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The number of answers to lose, and the longest wait for as many commits. A planner commits twice for each run.
const ANSWERS: usize = 4;
const ANSWERS_MAX: Duration = Duration::from_secs(10);

/// How long a disk is full, and how often freed space is filled again.
const DISK_FULL: Duration = Duration::from_secs(6);
const FILL_EVERY: Duration = Duration::from_millis(100);
/// The errors of wrong clocks in seconds, and how long they last. Beyond half a minute, the process takes no work.
const CLOCK_OFF_S: std::ops::RangeInclusive<i64> = -600..=600;
const CLOCK_OFF: Duration = Duration::from_secs(6);
/// The delay of each answer of a slow Postgres.
const POSTGRES_DELAY: Duration = Duration::from_millis(50);
/// How long two processes cannot read a third of the runs.
const UNREADABLE: Duration = Duration::from_secs(6);
/// The user to whom Postgres shows only the first events of every third run. Its processes see that there are more, and cannot read
/// the run, as if a newer version had written them.
const PREVIOUS: &str = "previous";
const HIDE: &str = "CREATE ROLE previous LOGIN;
    GRANT ALL ON SCHEMA public TO previous;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO previous;
    ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
    CREATE POLICY readable ON run_events FOR SELECT TO previous
        USING (first_sequence = 1 OR get_byte(uuid_send(run_id), 15) % 3 > 0);
    CREATE POLICY writable ON run_events FOR INSERT TO previous WITH CHECK (true);";
const SHOW: &str = "DROP POLICY readable ON run_events;
    DROP POLICY writable ON run_events;
    ALTER TABLE run_events DISABLE ROW LEVEL SECURITY;
    DROP OWNED BY previous;
    DROP ROLE previous;";
/// How long the workers reject calls.
const REFUSING: Duration = Duration::from_secs(6);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    GatewayKilled,
    PlannerKilled,
    ExecutorKilled,
    ExecutorFrozen,
    NatsKilled,
    NatsWiped,
    NatsAway,
    RedisFlushed,
    RedisAway,
    PostgresCrashed,
    PostgresSlow,
    GatewayAnswersLost,
    PlannerAnswersLost,
    ExecutorAnswersLost,
    ExecutorHalfOpen,
    VendorRefuses,
    PoolChanged,
    RunsUnreadable,
    ClockOff,
    NatsDiskFull,
    PostgresDiskFull,
}

impl Kind {
    pub(crate) const ALL: [Self; 21] = [
        Self::GatewayKilled,
        Self::PlannerKilled,
        Self::ExecutorKilled,
        Self::ExecutorFrozen,
        Self::NatsKilled,
        Self::NatsWiped,
        Self::NatsAway,
        Self::RedisFlushed,
        Self::RedisAway,
        Self::PostgresCrashed,
        Self::PostgresSlow,
        Self::GatewayAnswersLost,
        Self::PlannerAnswersLost,
        Self::ExecutorAnswersLost,
        Self::ExecutorHalfOpen,
        Self::VendorRefuses,
        Self::PoolChanged,
        Self::RunsUnreadable,
        Self::ClockOff,
        Self::NatsDiskFull,
        Self::PostgresDiskFull,
    ];

    /// The kinds that are possible with these disks.
    pub(crate) fn possible(disks: Disks) -> Vec<Self> {
        let can_be_made = |kind: &Self| disks == Disks::Small || !kind.needs_small_disks();
        Self::ALL.into_iter().filter(can_be_made).collect()
    }

    const fn needs_small_disks(self) -> bool {
        matches!(self, Self::NatsDiskFull | Self::PostgresDiskFull)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::GatewayKilled => "a gateway killed (-9)",
            Self::PlannerKilled => "a planner killed (-9)",
            Self::ExecutorKilled => "an executor killed (-9)",
            Self::ExecutorFrozen => "an executor frozen past its lease",
            Self::NatsKilled => "NATS killed (-9)",
            Self::NatsWiped => "NATS wiped clean",
            Self::NatsAway => "NATS unreachable",
            Self::RedisFlushed => "Redis flushed",
            Self::RedisAway => "Redis away",
            Self::PostgresCrashed => "Postgres crashed",
            Self::PostgresSlow => "Postgres answers in 50 ms",
            Self::GatewayAnswersLost => "commit answers lost: gateways",
            Self::PlannerAnswersLost => "commit answers lost: planners",
            Self::ExecutorAnswersLost => "commit answers lost: executors",
            Self::ExecutorHalfOpen => "executors half open to Postgres",
            Self::VendorRefuses => "a third of calls 429, a third 500",
            Self::PoolChanged => "another pool file, rolled out",
            Self::RunsUnreadable => "runs unreadable to two processes",
            Self::ClockOff => "a process with a wrong clock",
            Self::NatsDiskFull => "NATS' disk full",
            Self::PostgresDiskFull => "Postgres' disk full",
        }
    }
}

/// The number of faults.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kinds: Vec<Kind>,
    /// The reason why some kinds are left out.
    pub(crate) left_out: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) seed: u64,
    pub(crate) redis_away: Duration,
    pub(crate) nats_away: Duration,
    pub(crate) postgres_slow: Duration,
    /// Longer than the cluster's lease.
    pub(crate) frozen: Duration,
}

/// A fault that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// Whether the next fault waited for its recovery.
    pub(crate) is_measured: bool,
}

/// All faults that happened.
pub(crate) struct Made {
    pub(crate) plan: Plan,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) answers_lost: usize,
    /// The killed or frozen executors' processes.
    pub(crate) hit_executors: BTreeSet<u32>,
}

impl Made {
    fn new(plan: Plan) -> Self {
        Self { plan, troubles: Vec::new(), answers_lost: 0, hit_executors: BTreeSet::new() }
    }
}

/// Causes faults and ends them.
pub(crate) struct Troubles {
    cluster: Cluster,
    plan: Plan,
    lives: Lives,
    dice: StdRng,
    made: Made,
    /// The number of pool files after the first.
    pools: usize,
}

impl Troubles {
    pub(crate) fn new(cluster: Cluster, plan: Plan, lives: Lives) -> Self {
        let (made, dice) = (Made::new(plan.clone()), StdRng::seed_from_u64(plan.seed));
        Self { cluster, plan, lives, dice, made, pools: 0 }
    }

    /// Causes every kind of fault in each round. Leaves the cluster intact.
    pub(crate) async fn make_all(&mut self) -> Result<()> {
        crate::pause(WARM_UP).await;
        for round in 0..self.plan.rounds {
            for kind in self.shuffled() {
                self.pause().await;
                let trouble = self.make(kind).await?;
                self.recover(trouble).await;
                self.made.troubles.push(Trouble { is_measured: true, ..trouble });
            }
            if round > 0 {
                for kind in self.shuffled() {
                    self.pause().await;
                    let trouble = self.make(kind).await?;
                    self.made.troubles.push(trouble);
                }
                // The next round needs a baseline rate.
                crate::pause(WARM_UP).await;
            }
        }
        Ok(())
    }

    /// The cluster, and the faults that happened.
    pub(crate) fn end(self) -> (Cluster, Made) {
        (self.cluster, self.made)
    }

    fn shuffled(&mut self) -> Vec<Kind> {
        let mut kinds = self.plan.kinds.clone();
        kinds.shuffle(&mut self.dice);
        kinds
    }

    async fn pause(&mut self) {
        crate::pause(Duration::from_millis(self.dice.random_range(PAUSE_MS))).await;
    }

    async fn recover(&self, trouble: Trouble) {
        while trouble.ended.elapsed() < RECOVERY_MAX {
            crate::pause(LOOK_EVERY).await;
            if Recovery::of(&self.lives.so_far(), trouble.began, trouble.ended).rate_back.is_some() {
                return;
            }
        }
    }

    async fn make(&mut self, kind: Kind) -> Result<Trouble> {
        let began = Instant::now();
        let (cluster, plan, dice) = (&mut self.cluster, &self.plan, &mut self.dice);
        match kind {
            Kind::GatewayKilled => one_of(&mut cluster.gateways, dice).start_again().await?,
            Kind::PlannerKilled => one_of(&mut cluster.planners, dice).start_again().await?,
            Kind::ExecutorKilled => {
                let executor = one_of(&mut cluster.executors, dice);
                self.made.hit_executors.extend(executor.pid());
                executor.start_again().await?;
            }
            Kind::ExecutorFrozen => {
                let executor = one_of(&mut cluster.executors, dice);
                self.made.hit_executors.extend(executor.pid());
                executor.freeze()?;
                crate::pause(plan.frozen).await;
                executor.thaw()?;
            }
            Kind::NatsKilled => cluster.nats.start_again().await?,
            Kind::NatsWiped => cluster.nats.wipe().await?,
            Kind::NatsAway => {
                cluster.nats.kill().await;
                crate::pause(plan.nats_away).await;
                cluster.nats.start_again().await?;
            }
            Kind::RedisFlushed => cluster.redis.flush().await?,
            Kind::RedisAway => {
                cluster.redis.kill().await;
                crate::pause(plan.redis_away).await;
                cluster.redis.start_again().await?;
            }
            Kind::PostgresCrashed => cluster.postgres.restart().await?,
            Kind::PostgresSlow => {
                let proxies = self.proxies()?;
                for proxy in [&proxies.gateways, &proxies.planners, &proxies.executors] {
                    proxy.answer_after(POSTGRES_DELAY);
                }
                crate::pause(self.plan.postgres_slow).await;
                let proxies = self.proxies()?;
                for proxy in [&proxies.gateways, &proxies.planners, &proxies.executors] {
                    proxy.answer_after(Duration::ZERO);
                }
            }
            Kind::GatewayAnswersLost => self.lose_answers(|proxies| &proxies.gateways).await?,
            Kind::PlannerAnswersLost => self.lose_answers(|proxies| &proxies.planners).await?,
            Kind::ExecutorAnswersLost => self.lose_answers(|proxies| &proxies.executors).await?,
            Kind::ExecutorHalfOpen => self.hold_executors().await?,
            Kind::VendorRefuses => self.refuse_calls().await?,
            Kind::PoolChanged => self.change_pool().await?,
            Kind::RunsUnreadable => self.hide_runs().await?,
            Kind::ClockOff => self.set_a_clock_off().await?,
            Kind::NatsDiskFull => self.fill_disk_of_nats().await?,
            Kind::PostgresDiskFull => self.fill_disk_of_postgres().await?,
        }
        Ok(Trouble { kind, began, ended: Instant::now(), is_measured: false })
    }

    /// No byte passes between the executors and Postgres, and the connections stay open. All leases of the executors expire
    /// meanwhile.
    async fn hold_executors(&mut self) -> Result<()> {
        let proxies = self.proxies()?;
        proxies.executors.hold();
        crate::pause(self.plan.frozen).await;
        self.proxies()?.executors.release();
        self.made.hit_executors.extend(self.cluster.executors.iter().filter_map(Service::pid));
        Ok(())
    }

    /// The workers answer a third of the calls with 429, half of these without `Retry-After`, and a third with 500.
    async fn refuse_calls(&mut self) -> Result<()> {
        let workers = &self.cluster.workers;
        for (model, behaviour) in crate::chaos::behaviours() {
            // Each probability applies to the calls that the earlier faults left.
            let fault = ScriptedFault::with_probability;
            let faults = vec![
                fault(Fault::RateLimitBare, 1.0 / 6.0),
                fault(Fault::RateLimit { retry_after_s: 1 }, 1.0 / 5.0),
                fault(Fault::ServerError, 1.0 / 2.0),
            ];
            workers.set_behaviour(model, Behaviour { faults, ..behaviour })?;
        }
        crate::pause(REFUSING).await;
        for (model, behaviour) in crate::chaos::behaviours() {
            workers.set_behaviour(model, behaviour)?;
        }
        Ok(())
    }

    /// Restarts every process with a pool file that has one more worker. Executors come first, so that no plan names a worker that
    /// an executor does not know.
    async fn change_pool(&mut self) -> Result<()> {
        self.pools += 1;
        self.cluster.add_worker(&format!("sim-added-{}", self.pools))?;
        let Cluster { executors, planners, gateways, .. } = &mut self.cluster;
        for service in executors.iter_mut().chain(planners).chain(gateways) {
            end_well(service).await?;
            service.start_again().await?;
        }
        Ok(())
    }

    /// Restarts one of two planners and one of three executors as [`PREVIOUS`], and after a while as they were.
    async fn hide_runs(&mut self) -> Result<()> {
        let user = self.cluster.database_user().context("the database's address has no user")?.to_owned();
        self.cluster.execute(HIDE).await?;
        self.start_two_as(PREVIOUS).await?;
        crate::pause(UNREADABLE).await;
        let log = self.cluster.executors.first().map(Service::log).unwrap_or_default();
        anyhow::ensure!(log.contains("a run cannot be read"), "the executor could read every run");
        self.start_two_as(&user).await?;
        self.cluster.execute(SHOW).await
    }

    async fn start_two_as(&mut self, user: &str) -> Result<()> {
        let urls = [self.proxies()?.planners.address(), self.proxies()?.executors.address()]
            .map(|address| self.cluster.database_url(user, address));
        let Cluster { planners, executors, .. } = &mut self.cluster;
        for (service, url) in planners.iter_mut().take(1).chain(executors.iter_mut().take(1)).zip(urls) {
            end_well(service).await?;
            // Of two settings of one key the later one holds.
            service.add_arguments(["--set".to_owned(), format!("postgres={url}")]);
            service.start_again().await?;
        }
        Ok(())
    }

    /// Restarts a process with a wrong clock, and after a while with the right one.
    async fn set_a_clock_off(&mut self) -> Result<()> {
        let service = self.dice.random_range(0..self.cluster.services().count());
        let off = self.dice.random_range(CLOCK_OFF_S);
        let service = self.cluster.services().nth(service).context("there is no process")?;
        end_well(service).await?;
        service.set_clock_off(off)?;
        // A process whose clock is far off never becomes ready.
        service.start_unready().await?;
        crate::pause(CLOCK_OFF).await;
        end_well(service).await?;
        service.set_clock_off(0)?;
        service.start_again().await
    }

    /// nats-server 2.9 hangs on a full disk and does not notice free space, so the test kills it, as docs/cluster.md advises.
    async fn fill_disk_of_nats(&mut self) -> Result<()> {
        let nats = &mut self.cluster.nats;
        let began = Instant::now();
        while began.elapsed() < DISK_FULL {
            nats.fill_disk()?;
            crate::pause(FILL_EVERY).await;
        }
        nats.free_disk()?;
        nats.start_again().await
    }

    async fn fill_disk_of_postgres(&mut self) -> Result<()> {
        let postgres = &mut self.cluster.postgres;
        let began = Instant::now();
        while began.elapsed() < DISK_FULL {
            postgres.fill_disk()?;
            crate::pause(FILL_EVERY).await;
        }
        postgres.free_disk().await
    }

    fn proxies(&self) -> Result<&Proxies> {
        self.cluster.proxies.as_ref().context("there is no proxy between the processes and Postgres")
    }

    async fn lose_answers(&mut self, of: fn(&Proxies) -> &Proxy) -> Result<()> {
        let lost = of(self.proxies()?).lose_answers(ANSWERS, ANSWERS_MAX).await;
        anyhow::ensure!(
            lost == ANSWERS,
            "only {lost} of {ANSWERS} answers could be lost: the load is too low"
        );
        self.made.answers_lost += lost;
        Ok(())
    }
}

async fn end_well(service: &mut Service) -> Result<()> {
    let code = service.terminate().await?;
    anyhow::ensure!(code == 0, "a process ended with exit code {code}: {}", service.log_end());
    Ok(())
}

fn one_of<'s>(services: &'s mut [Service], dice: &mut StdRng) -> &'s mut Service {
    let index = dice.random_range(0..services.len());
    &mut services[index]
}
