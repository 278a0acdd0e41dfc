//! The connections of a process: Postgres, NATS and, if it calls models, Redis.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::pool::Pool;
use podium_engine::{CallParts, Engine, Options, Parts, Readiness as EngineReadiness};
use podium_planning::Callees;
use podium_ports::accounts::Accounts;
use podium_ports::cache::{CacheOptions, StepCache};
use podium_ports::clock::{Clock, Ids as _};
use podium_ports::conductor_profile::ConductorProfiles;
use podium_ports::limiter::Limiter;
use podium_ports::objects::Objects;
use podium_ports::queue::Lane;
use podium_ports::run_traces::RunTraces;
use podium_ports::vendor::Vendors;
use podium_queue_nats::{AtStart, ConnectionOptions, LiveOptions, NatsLive, NatsQueue, QueueOptions, SignIn};
use podium_redis::cache::{RedisCache, RedisOptions};
use podium_redis::limits::{
    Away as RedisAway, Options as LimitOptions, RedisLimiter, Server, SeveralRedisLimiters,
};
use podium_setup::{AnchoredClock, CellIds, RandomIds};
use podium_vendors::{EnvironmentKeys, HttpVendors};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::ClusterError;
use crate::monitor::Monitor;
use crate::open_store::{self, Store, open_store};
use crate::server_urls::{self, secret};
use crate::settings::urls::redis_name;
use crate::settings::{Away, ClusterSettings, NatsSettings, NatsUser, RedisSettings};
use crate::{limiter_state, monitor, redis_diagnostics};

/// Extensions of a permit's lease within its duration.
const LEASE_EXTENSIONS: u32 = 4;

/// Postgres, NATS and, if the process calls models, Redis.
pub struct Connections {
    store: Store,
    queue: Arc<NatsQueue>,
    live: Arc<NatsLive>,
    /// Only in processes that call workers, or a model that plans.
    limiter: Option<SeveralRedisLimiters>,
    /// Only in processes that call workers.
    cache: Option<RedisCache>,
    workers: Workers,
    /// The database's time.
    clock: Arc<AnchoredClock>,
    /// Where traces of ended runs go, if anywhere.
    traces: Option<Arc<dyn RunTraces>>,
    background: Background,
}

/// The pool and the vendors that serve its workers, which change together.
#[derive(Clone)]
struct Workers {
    /// As the file has it.
    file: Arc<Pool>,
    /// With the workers that earlier files had.
    pool: Arc<Pool>,
    vendors: Arc<dyn Vendors>,
}

/// The workers before a change, to return to.
pub(crate) struct EarlierWorkers(Workers);

/// The tasks that keep the connections, until `stop`.
struct Background {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Background {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), stop: CancellationToken::new() }
    }
}

/// The kinds of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts and watches runs.
    Gateway,
    /// Asks the conductor.
    Planner,
    /// Calls workers.
    Executor,
}

/// The state of a process's connections.
#[derive(Clone)]
pub(crate) struct Readiness {
    engine: Engine,
    limiter: Option<SeveralRedisLimiters>,
}

impl Readiness {
    /// Checks the connections. Without Redis a process is ready if the setting `redis_away` lets it call models.
    pub(crate) async fn check(&self) -> EngineReadiness {
        let mut readiness = self.engine.readiness().await;
        if let Some(limiter) = &self.limiter {
            readiness.parts.extend(limiter_state::parts(limiter, &self.engine.pool()));
        }
        readiness
    }
}

impl Connections {
    /// Connects. Only Postgres must answer: connections to NATS and Redis are retried without end, and readiness reports them.
    pub async fn open(settings: &ClusterSettings, role: Role) -> Result<Self, ClusterError> {
        let pool = Arc::clone(&settings.pool);
        let vendors = http_vendors(&pool)?;
        let store = open_store(&settings.postgres, &options(settings)).await?;
        let clock = monitor::clock_of(&store, settings.clock_skew_max).await.map_err(open_store::unusable)?;
        let clock = Arc::new(clock);
        let (queue, live) = nats(settings).await?;
        if let Some(version) = queue.server_version() {
            info!(%version, "nats-server");
        }
        if role == Role::Executor {
            warn_about_workers(&vendors, &pool, &*clock);
        }
        let mut background = Background::new();
        let calls = role == Role::Executor || (role == Role::Planner && settings.conductors.call_a_model());
        let limiter = calls.then(|| limits(settings, &clock, &mut background)).transpose()?;
        if let Some(limiter) = &limiter {
            limiter_state::observe(limiter);
        }
        let step_cache = settings.step_cache.filter(|_| role == Role::Executor);
        let cache = step_cache.map(|options| cache(&settings.redis, clock.clone(), options)).transpose()?;
        let queue = Arc::new(queue);
        let monitor = Monitor::new(store.clone(), Arc::clone(&queue), (*clock).clone());
        monitor.observe(limiter.as_ref());
        background.tasks.spawn(monitor.run(background.stop.clone()));
        Ok(Self {
            store,
            queue,
            live: Arc::new(live),
            limiter,
            cache,
            workers: Workers { file: Arc::clone(&pool), pool, vendors: Arc::new(vendors) },
            clock,
            traces: None,
            background,
        })
    }

    /// The time of all runs: the database's.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Waits until a background task panics.
    pub async fn failure(&mut self) -> ClusterError {
        while let Some(ended) = self.background.tasks.join_next().await {
            if let Err(panic) = ended {
                return ClusterError::Failed(panic.into());
            }
        }
        std::future::pending().await
    }

    /// The keys and budgets.
    pub fn accounts(&self) -> Arc<dyn Accounts> {
        Arc::new(self.store.clone())
    }

    /// The objects of clients besides runs.
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.store.clone())
    }

    /// The workers.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.workers.pool
    }

    /// Whether the pool is this file's.
    pub(crate) fn is_of(&self, file: &Pool) -> bool {
        *self.workers.file == *file
    }

    /// Uses a changed pool for the parts that are built from now on. Workers that it lacks stay callable. Returns the workers before.
    pub(crate) fn use_pool(&mut self, file: Arc<Pool>) -> Result<EarlierWorkers, ClusterError> {
        let pool = Arc::new((*file).clone().succeeding(&self.workers.pool));
        let vendors = http_vendors(&pool)?;
        if self.limiter.is_some() {
            warn_about_workers(&vendors, &file, &*self.clock);
        }
        let workers = Workers { file, pool, vendors: Arc::new(vendors) };
        Ok(EarlierWorkers(std::mem::replace(&mut self.workers, workers)))
    }

    /// Returns to earlier workers, because something else refused the changed pool.
    pub(crate) fn return_to(&mut self, EarlierWorkers(earlier): EarlierWorkers) {
        self.workers = earlier;
    }

    /// The services that a conductor needs to call a remote model.
    pub fn callees(&self) -> Callees {
        Callees { vendors: Arc::clone(&self.workers.vendors), limiter: self.limiter() }
    }

    fn limiter(&self) -> Option<Arc<dyn Limiter>> {
        self.limiter.clone().map(|limiter| Arc::new(limiter) as Arc<dyn Limiter>)
    }

    /// An engine on these connections. Must be called inside a tokio runtime.
    pub fn engine(&self, settings: &ClusterSettings, conductors: ConductorProfiles) -> Engine {
        Engine::new(self.parts(settings, conductors), options(settings))
    }

    /// The ports of every process.
    pub fn parts(&self, settings: &ClusterSettings, conductors: ConductorProfiles) -> Parts {
        Parts {
            store: Arc::new(self.store.clone()),
            queue: self.queue.clone(),
            live: self.live.clone(),
            conductors,
            clock: self.clock(),
            ids: Arc::new(CellIds(settings.cell)),
            pool: Arc::clone(&self.workers.pool),
            traces: self.traces.clone(),
        }
    }

    /// The same connections, for an engine that records ended runs there.
    #[must_use]
    pub fn with_traces(self, traces: Option<Arc<dyn RunTraces>>) -> Self {
        Self { traces, ..self }
    }

    /// The ports of an executor; `None` in other processes.
    pub fn call_parts(&self) -> Option<CallParts> {
        let cache = self.cache.clone().map(|cache| Arc::new(cache) as Arc<dyn StepCache>);
        Some(CallParts { limiter: self.limiter()?, cache, vendors: Arc::clone(&self.workers.vendors) })
    }

    /// The state that the health listener reports.
    pub(crate) fn readiness(&self, engine: &Engine) -> Readiness {
        Readiness { engine: engine.clone(), limiter: self.limiter.clone() }
    }

    /// Returns permits, sends what is buffered, and disconnects.
    pub async fn close(mut self) {
        self.background.stop.cancel();
        while self.background.tasks.join_next().await.is_some() {}
        self.live.flush().await;
        self.queue.close().await;
        self.store.close().await;
    }
}

fn http_vendors(pool: &Pool) -> Result<HttpVendors, ClusterError> {
    HttpVendors::new(pool, &EnvironmentKeys).map_err(|e| ClusterError::Vendors(Box::new(e)))
}

/// Logs the workers that cannot be called.
fn warn_about_workers(vendors: &HttpVendors, pool: &Pool, clock: &dyn Clock) {
    for missing in vendors.missing_secrets() {
        warn!("{missing}");
    }
    for worker in pool.unpriced_at(clock.now()) {
        warn!("worker `{}` has no price list that is valid yet: it cannot be called", worker.id);
    }
}

/// The name that distinguishes this process from others of its program, in claims, metrics and logs.
pub fn instance() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}-{}", std::process::id())
}

/// The engine's options.
pub fn options(settings: &ClusterSettings) -> Options {
    Options {
        executor: instance(),
        lease: settings.lease,
        plan_slots: settings.plan_slots,
        step_slots: settings.step_slots,
        runs_kept: settings.runs_kept,
        drain: settings.drain,
        // Postgres lets the commits of several connections share one write to its disk.
        batches_max: 2,
        ..Options::default()
    }
}

/// How long a message may stay unacked. A process acks it once it has claimed the task, which takes milliseconds. If the process
/// dies before that, the message is delivered again after this time; if it dies later, a sweeper publishes the task at the end of
/// its lease.
fn ack_wait(lease: Duration) -> Duration {
    lease + Options::default().sweep_every
}

/// Room for the text of every run that this process can write concurrently, for late subscribers.
fn live_options(settings: &ClusterSettings) -> LiveOptions {
    let texts_max = Lane::steps(&settings.pool).len() * settings.step_slots;
    let defaults = LiveOptions::default();
    LiveOptions { runs_max: texts_max.max(defaults.runs_max), ..defaults }
}

/// The options of the connection to NATS and of the queue.
pub(crate) fn nats_options(
    cluster: &ClusterSettings,
) -> Result<(ConnectionOptions, QueueOptions), ClusterError> {
    let settings: &NatsSettings = &cluster.nats;
    let client = settings.certificates.client.as_ref();
    let connection = ConnectionOptions {
        servers: settings.servers.clone(),
        sign_in: sign_in(&settings.user)?,
        root_certificates: settings.certificates.root.clone(),
        client_certificate: client.map(|client| (client.certificate.clone(), client.key.clone())),
        at_start: AtStart::Retry,
        ..ConnectionOptions::new("")
    };
    let options = QueueOptions {
        replicas: settings.replicas,
        storage: settings.storage,
        lane_messages_max: settings.lane_messages_max,
        ack_wait: ack_wait(cluster.lease),
        ..QueueOptions::default()
    };
    Ok((connection, options))
}

async fn nats(cluster: &ClusterSettings) -> Result<(NatsQueue, NatsLive), ClusterError> {
    let unusable = |source| ClusterError::Server { server: "NATS", hint: "", source: Box::new(source) };
    let (connection, options) = nats_options(cluster)?;
    let queue = NatsQueue::connect(&connection, options).await.map_err(unusable)?;
    let live = NatsLive::connect(&connection, live_options(cluster)).await.map_err(unusable)?;
    Ok((queue, live))
}

fn sign_in(user: &NatsUser) -> Result<SignIn, ClusterError> {
    Ok(match user {
        NatsUser::Anybody => SignIn::Anonymous,
        NatsUser::Password { user, password } => {
            SignIn::Password { user: user.clone(), password: secret("nats_password", password)? }
        }
        NatsUser::Token(token) => SignIn::Token(secret("nats_token", token)?),
        NatsUser::NKey(seed) => SignIn::NKey(secret("nats_nkey", seed)?),
        NatsUser::Credentials(file) => SignIn::Credentials(file.clone()),
    })
}

/// The permits of a dead process expire together with its claims. If they expired later, a step that another process took over
/// would wait for the capacity of the call that it repeats.
fn limit_options(lease: Duration, away: RedisAway) -> LimitOptions {
    let defaults = LimitOptions::default();
    let lease_ttl = lease.min(defaults.lease_ttl);
    let extend_every = (lease_ttl / LEASE_EXTENSIONS).min(defaults.extend_every);
    LimitOptions { lease_ttl, extend_every, away, ..defaults }
}

/// The limiter on all servers of the limits.
fn limits(
    cluster: &ClusterSettings,
    clock: &Arc<AnchoredClock>,
    background: &mut Background,
) -> Result<SeveralRedisLimiters, ClusterError> {
    let mut open = |url: &String| {
        let limiter = redis(cluster, url, clock.clone(), background)?;
        Ok(Server { name: redis_name(url).to_owned(), limiter })
    };
    let (first, others) = match cluster.redis.limits.split_first() {
        Some((first, others)) => (first, others),
        None => (&cluster.redis.url, &[][..]),
    };
    let first = open(first)?;
    let others = others.iter().map(open).collect::<Result<Vec<_>, ClusterError>>()?;
    Ok(SeveralRedisLimiters::new(first, others))
}

fn redis(
    cluster: &ClusterSettings,
    url: &str,
    clock: Arc<dyn Clock>,
    background: &mut Background,
) -> Result<RedisLimiter, ClusterError> {
    let settings = &cluster.redis;
    let server = server_urls::redis(settings, url)?;
    let (name, stop) = (redis_name(url).to_owned(), background.stop.clone());
    background.tasks.spawn(redis_diagnostics::log_refusals(name, server.clone(), stop.clone()));
    let away = match settings.away {
        Away::Hold => RedisAway::Hold,
        Away::Local(share) => RedisAway::Local { share },
    };
    let options = limit_options(cluster.lease, away);
    let instance = *RandomIds.claim_id().as_uuid();
    let (limiter, extender) = RedisLimiter::open(server, options, instance, clock)
        .map_err(|source| ClusterError::Server { server: "Redis", hint: "", source: Box::new(source) })?;
    background.tasks.spawn(extender.run(stop));
    Ok(limiter)
}

fn cache(
    settings: &RedisSettings,
    clock: Arc<dyn Clock>,
    options: CacheOptions,
) -> Result<RedisCache, ClusterError> {
    RedisCache::open(server_urls::redis(settings, &settings.url)?, &RedisOptions::default(), options, clock)
        .map_err(|source| ClusterError::Server { server: "Redis", hint: "", source: Box::new(source) })
}
