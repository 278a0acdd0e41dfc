//! What every process of a cluster stands on, connected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_cache_redis::{RedisCache, RedisOptions};
use podium_domain::pool::Pool;
use podium_engine::{Engine, NotReady, Options, Parts, Roles};
use podium_limits_redis::{Away as RedisAway, Options as LimitOptions, RedisLimiter, State as LimiterState};
use podium_ports::accounts::Accounts;
use podium_ports::cache::{CacheOptions, StepCache};
use podium_ports::clock::{Clock, Ids as _};
use podium_ports::conductors::Conductors;
use podium_ports::limiter::{CallWish, Grant, Limiter, LimiterError, Why};
use podium_ports::vendor::Vendors;
use podium_queue_nats::{AtStart, ConnectionOptions, LiveOptions, NatsLive, NatsQueue, QueueOptions, SignIn};
use podium_setup::conductor::Callees;
use podium_setup::{RandomIds, SystemClock};
use podium_vendors::{EnvironmentKeys, HttpVendors};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::address::{self, secret};
use crate::error::ClusterError;
use crate::postgres::{self, Store};
use crate::settings::{Away, ClusterSettings, NatsSettings, NatsUser, RedisSettings};
use crate::{contact, limiter_state};

/// How long a process that grants no calls tells those who ask to wait. Nobody asks.
const NO_CALLS_WAIT: Duration = Duration::from_secs(1);

/// Postgres, NATS and, for those who call models, Redis.
pub struct Backbone {
    store: Store,
    queue: Arc<NatsQueue>,
    live: Arc<NatsLive>,
    /// Only of those who call workers, or a model that plans.
    limiter: Option<RedisLimiter>,
    /// Only of those who call workers.
    cache: Option<RedisCache>,
    vendors: Arc<dyn Vendors>,
    pool: Arc<Pool>,
    keepers: TaskTracker,
    stop: CancellationToken,
}

/// Why a process is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unready {
    /// The store or the queue does not answer.
    #[error(transparent)]
    Engine(#[from] NotReady),
    /// Redis is away, and the setting `redis_away` is `hold`.
    #[error("the limiter does not answer: Redis is away, and no worker is called meanwhile")]
    Holding,
    /// Redis is away, and the setting `redis_away` is a share.
    #[error(
        "the limiter does not answer: Redis is away, and this process keeps to its own share of each limit meanwhile"
    )]
    Local,
}

/// Whether a process has all that it stands on.
#[derive(Clone)]
pub(crate) struct Readiness {
    engine: Engine,
    limiter: Option<RedisLimiter>,
}

impl Readiness {
    /// The first part that is missing.
    pub(crate) async fn check(&self) -> Result<(), Unready> {
        self.engine.ready().await?;
        match self.limiter.as_ref().map(|limiter| limiter.standing().state) {
            None | Some(LimiterState::Shared) => Ok(()),
            Some(LimiterState::Local) => Err(Unready::Local),
            Some(LimiterState::Holding) => Err(Unready::Holding),
        }
    }
}

impl Backbone {
    /// Connects. Only Postgres has to answer: NATS and Redis are tried for ever, and readiness says what is missing.
    pub async fn connect(settings: &ClusterSettings, roles: Roles) -> Result<Self, ClusterError> {
        let pool = Arc::new(read_pool(settings)?);
        let vendors =
            HttpVendors::new(&pool, &EnvironmentKeys).map_err(|e| ClusterError::Vendors(Box::new(e)))?;
        let store = postgres::connect(&settings.postgres, &options(settings)).await?;
        let (queue, live) = nats(&settings.nats, ack_wait(settings.lease)).await?;
        if let Some(version) = queue.server_version() {
            info!(%version, "nats-server");
        }
        let (keepers, stop) = (TaskTracker::new(), CancellationToken::new());
        if roles.execute {
            for missing in vendors.missing_secrets() {
                warn!("{missing}");
            }
            for worker in pool.unpriced_at(SystemClock.now()) {
                warn!("worker `{}` has no price list that is valid yet: it cannot be called", worker.id);
            }
        }
        let calls = roles.execute || (roles.plan && settings.conductors.call_a_model());
        let limiter = calls.then(|| redis(&settings.redis, &keepers, &stop)).transpose()?;
        if let Some(limiter) = &limiter {
            limiter_state::observe(limiter);
        }
        let remembered = settings.step_cache.filter(|_| roles.execute);
        let cache = remembered.map(|options| cache(&settings.redis, options)).transpose()?;
        Ok(Self {
            store,
            queue: Arc::new(queue),
            live: Arc::new(live),
            limiter,
            cache,
            vendors: Arc::new(vendors),
            pool,
            keepers,
            stop,
        })
    }

    /// The same with workers that are served by others than the pool says, such as by this process itself.
    #[must_use]
    pub fn with_vendors(self, vendors: Arc<dyn Vendors>) -> Self {
        Self { vendors, ..self }
    }

    /// The keys and budgets.
    pub fn accounts(&self) -> Arc<dyn Accounts> {
        Arc::new(self.store.clone())
    }

    /// The workers.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What a conductor stands on that is a model elsewhere.
    pub fn callees(&self) -> Callees {
        Callees { vendors: Arc::clone(&self.vendors), limiter: self.limiter() }
    }

    fn limiter(&self) -> Arc<dyn Limiter> {
        match &self.limiter {
            Some(limiter) => Arc::new(limiter.clone()),
            None => Arc::new(NoCalls),
        }
    }

    /// An engine on it. Must be called inside a tokio runtime.
    pub fn engine(&self, settings: &ClusterSettings, conductors: Conductors) -> Engine {
        let parts = Parts {
            store: Arc::new(self.store.clone()),
            queue: self.queue.clone(),
            live: self.live.clone(),
            limiter: self.limiter(),
            cache: self.cache.clone().map(|cache| Arc::new(cache) as Arc<dyn StepCache>),
            vendors: Arc::clone(&self.vendors),
            conductors,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            pool: Arc::clone(&self.pool),
        };
        Engine::new(parts, options(settings))
    }

    /// What the health door says of the process.
    pub(crate) fn readiness(&self, engine: &Engine) -> Readiness {
        Readiness { engine: engine.clone(), limiter: self.limiter.clone() }
    }

    /// Gives back what is held, and lets go.
    pub async fn close(self) {
        self.stop.cancel();
        self.keepers.close();
        self.keepers.wait().await;
        self.live.flush().await;
        self.queue.close().await;
        self.store.close().await;
    }
}

/// What tells this process from others of its kind: in claims, and in what it measures.
pub fn instance() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}-{}", std::process::id())
}

fn options(settings: &ClusterSettings) -> Options {
    Options {
        executor: instance(),
        lease: settings.lease,
        plan_slots: settings.plan_slots,
        step_slots: settings.step_slots,
        runs_kept: settings.runs_kept,
        drain: settings.drain,
        // Postgres has the commits of several connections wait for its disk together.
        batches_max: 2,
        ..Options::default()
    }
}

fn read_pool(settings: &ClusterSettings) -> Result<Pool, ClusterError> {
    let path = &settings.pool;
    let text = std::fs::read_to_string(path)
        .map_err(|source| ClusterError::Unreadable { path: path.clone(), source })?;
    Pool::parse(&text).map_err(|source| ClusterError::Pool { path: path.clone(), source })
}

/// How long a message may stay unanswered. Whoever works on a task extends its lease and answers for its message every third
/// of a lease, each by its own beat. Of a process that died, the lease runs out first, so that whoever gets the message then
/// can claim the task; and not much later does the message come back.
fn ack_wait(lease: Duration) -> Duration {
    lease + lease / 3 + Duration::from_secs(1)
}

async fn nats(settings: &NatsSettings, ack_wait: Duration) -> Result<(NatsQueue, NatsLive), ClusterError> {
    let client = settings.certificates.client.as_ref();
    let connection = ConnectionOptions {
        servers: settings.servers.clone(),
        sign_in: sign_in(&settings.user)?,
        root_certificates: settings.certificates.root.clone(),
        client_certificate: client.map(|client| (client.certificate.clone(), client.key.clone())),
        at_start: AtStart::Retry,
        ..ConnectionOptions::new("")
    };
    let unusable = |source| ClusterError::Server { server: "NATS", advice: "", source: Box::new(source) };
    let options = QueueOptions {
        replicas: settings.replicas,
        lane_messages_max: settings.lane_messages_max,
        ack_wait,
        ..QueueOptions::default()
    };
    let queue = NatsQueue::connect(&connection, options).await.map_err(unusable)?;
    let live = NatsLive::connect(&connection, LiveOptions::default()).await.map_err(unusable)?;
    Ok((queue, live))
}

fn sign_in(user: &NatsUser) -> Result<SignIn, ClusterError> {
    Ok(match user {
        NatsUser::Anybody => SignIn::Nobody,
        NatsUser::Password { user, password } => {
            SignIn::Password { user: user.clone(), password: secret("nats_password", password)? }
        }
        NatsUser::Token(token) => SignIn::Token(secret("nats_token", token)?),
        NatsUser::NKey(seed) => SignIn::NKey(secret("nats_nkey", seed)?),
        NatsUser::Credentials(file) => SignIn::Credentials(file.clone()),
    })
}

fn redis(
    settings: &RedisSettings,
    keepers: &TaskTracker,
    stop: &CancellationToken,
) -> Result<RedisLimiter, ClusterError> {
    let server = address::redis(settings)?;
    keepers.spawn(contact::say_why_not(server.clone(), stop.clone()));
    let away = match settings.away {
        Away::Hold => RedisAway::Hold,
        Away::Local(share) => RedisAway::Local { share },
    };
    let options = LimitOptions { away, ..LimitOptions::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let instance = *RandomIds.claim_id().as_uuid();
    let (limiter, extender) = RedisLimiter::open(server, options, instance, clock)
        .map_err(|source| ClusterError::Server { server: "Redis", advice: "", source: Box::new(source) })?;
    keepers.spawn(extender.run(stop.clone()));
    Ok(limiter)
}

fn cache(settings: &RedisSettings, options: CacheOptions) -> Result<RedisCache, ClusterError> {
    RedisCache::open(address::redis(settings)?, &RedisOptions::default(), options, Arc::new(SystemClock))
        .map_err(|source| ClusterError::Server { server: "Redis", advice: "", source: Box::new(source) })
}

/// The limiter of a process that calls nobody.
struct NoCalls;

#[async_trait]
impl Limiter for NoCalls {
    async fn acquire(&self, _: &CallWish<'_>) -> Result<Grant, LimiterError> {
        Ok(Grant::AskAgain { after: NO_CALLS_WAIT, why: Why::Away })
    }
}
