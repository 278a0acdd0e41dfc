//! What every process of a cluster stands on, connected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::pool::Pool;
use podium_engine::{Engine, Options, Parts, Readiness as EngineReadiness, Roles};
use podium_planning::Callees;
use podium_ports::accounts::Accounts;
use podium_ports::cache::{CacheOptions, StepCache};
use podium_ports::clock::{Clock, Ids as _};
use podium_ports::conductor::Conductors;
use podium_ports::limiter::{CallWish, Grant, Limiter, LimiterError, Why};
use podium_ports::queue::Lane;
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

use crate::address::{self, secret};
use crate::error::ClusterError;
use crate::postgres::{self, Store};
use crate::settings::urls::redis_name;
use crate::settings::{Away, ClusterSettings, NatsSettings, NatsUser, RedisSettings};
use crate::watch::{self, Answers};
use crate::{contact, limiter_state};

/// How long a process that grants no calls tells those who ask to wait. Nobody asks.
const NO_CALLS_WAIT: Duration = Duration::from_secs(1);

/// A lease of a permit is extended so often within its time.
const LEASE_EXTENSIONS: u32 = 4;

/// Postgres, NATS and, for those who call models, Redis.
pub struct Backbone {
    store: Store,
    queue: Arc<NatsQueue>,
    live: Arc<NatsLive>,
    /// Only of those who call workers, or a model that plans.
    limiter: Option<SeveralRedisLimiters>,
    /// Only of those who call workers.
    cache: Option<RedisCache>,
    vendors: Arc<dyn Vendors>,
    pool: Arc<Pool>,
    /// The database's time.
    clock: Arc<AnchoredClock>,
    keepers: JoinSet<()>,
    stop: CancellationToken,
}

/// Whether a process can do its job.
#[derive(Clone)]
pub(crate) struct Readiness {
    engine: Engine,
    limiter: Option<SeveralRedisLimiters>,
    pool: Arc<Pool>,
}

impl Readiness {
    /// What it stands on. Without Redis a process is ready if the setting `redis_away` lets it call models.
    pub(crate) async fn look(&self) -> EngineReadiness {
        let mut readiness = self.engine.readiness().await;
        if let Some(limiter) = &self.limiter {
            readiness.parts.extend(limiter_state::parts(limiter, &self.pool));
        }
        readiness
    }
}

impl Backbone {
    /// Connects. Only Postgres has to answer: NATS and Redis are tried for ever, and readiness says what is missing.
    pub async fn connect(settings: &ClusterSettings, roles: Roles) -> Result<Self, ClusterError> {
        let pool = Arc::clone(&settings.pool);
        let vendors =
            HttpVendors::new(&pool, &EnvironmentKeys).map_err(|e| ClusterError::Vendors(Box::new(e)))?;
        let store = postgres::connect(&settings.postgres, &options(settings)).await?;
        let clock = watch::clock_of(&store, settings.clock_skew_max).await.map_err(postgres::unusable)?;
        let (queue, live) =
            nats(&settings.nats, ack_wait(settings.lease), live_options(settings, &pool)).await?;
        if let Some(version) = queue.server_version() {
            info!(%version, "nats-server");
        }
        let (mut keepers, stop) = (JoinSet::new(), CancellationToken::new());
        if roles.execute {
            for missing in vendors.missing_secrets() {
                warn!("{missing}");
            }
            for worker in pool.unpriced_at(clock.now()) {
                warn!("worker `{}` has no price list that is valid yet: it cannot be called", worker.id);
            }
        }
        let calls = roles.execute || (roles.plan && settings.conductors.call_a_model());
        let clock = Arc::new(clock);
        let limiter = calls
            .then(|| limits(settings, &(Arc::clone(&clock) as Arc<dyn Clock>), (&mut keepers, &stop)))
            .transpose()?;
        if let Some(limiter) = &limiter {
            limiter_state::observe(limiter);
        }
        let remembered = settings.step_cache.filter(|_| roles.execute);
        let cache = remembered.map(|options| cache(&settings.redis, clock.clone(), options)).transpose()?;
        let (queue, answers) = (Arc::new(queue), Answers::default());
        watch::observe(&clock, &answers, limiter.as_ref());
        let watched = (store.clone(), Arc::clone(&queue));
        keepers.spawn(watch::look_after(watched, (*clock).clone(), answers, stop.clone()));
        Ok(Self {
            store,
            queue,
            live: Arc::new(live),
            limiter,
            cache,
            vendors: Arc::new(vendors),
            pool,
            clock,
            keepers,
            stop,
        })
    }

    /// The time that runs are recorded by: the database's.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Waits until something that runs in the background panics.
    pub async fn broke_down(&mut self) -> ClusterError {
        while let Some(ended) = self.keepers.join_next().await {
            if let Err(panic) = ended {
                return ClusterError::BrokeDown(panic.into());
            }
        }
        std::future::pending().await
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
        self.engine_with(settings, conductors, std::convert::identity)
    }

    /// An engine on it, some parts of which are replaced.
    pub(crate) fn engine_with(
        &self,
        settings: &ClusterSettings,
        conductors: Conductors,
        replaced: fn(Parts) -> Parts,
    ) -> Engine {
        let parts = Parts {
            store: Arc::new(self.store.clone()),
            queue: self.queue.clone(),
            live: self.live.clone(),
            limiter: self.limiter(),
            cache: self.cache.clone().map(|cache| Arc::new(cache) as Arc<dyn StepCache>),
            vendors: Arc::clone(&self.vendors),
            conductors,
            clock: self.clock(),
            ids: Arc::new(CellIds(settings.cell)),
            pool: Arc::clone(&self.pool),
        };
        Engine::new(replaced(parts), options(settings))
    }

    /// What the health server reports of the process.
    pub(crate) fn readiness(&self, engine: &Engine) -> Readiness {
        Readiness { engine: engine.clone(), limiter: self.limiter.clone(), pool: Arc::clone(&self.pool) }
    }

    /// Gives back what is held, and lets go.
    pub async fn close(mut self) {
        self.stop.cancel();
        while self.keepers.join_next().await.is_some() {}
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

/// How long a message may stay unacked. A process acks it when it has claimed the task, which takes milliseconds. If the process
/// dies before, the message is delivered again after this time; if it dies later, the sweepers publish the task at the end of its
/// lease.
fn ack_wait(lease: Duration) -> Duration {
    lease + Options::default().sweep_every
}

/// The text of every run that this process can write at the same time is held for those who come late.
fn live_options(settings: &ClusterSettings, pool: &Pool) -> LiveOptions {
    let texts_max = Lane::steps(pool).len() * settings.step_slots;
    let defaults = LiveOptions::default();
    LiveOptions { runs_max: texts_max.max(defaults.runs_max), ..defaults }
}

async fn nats(
    settings: &NatsSettings,
    ack_wait: Duration,
    live_options: LiveOptions,
) -> Result<(NatsQueue, NatsLive), ClusterError> {
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
        storage: settings.storage,
        lane_messages_max: settings.lane_messages_max,
        ack_wait,
        ..QueueOptions::default()
    };
    let queue = NatsQueue::connect(&connection, options).await.map_err(unusable)?;
    let live = NatsLive::connect(&connection, live_options).await.map_err(unusable)?;
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

/// The permits of a process that died come back together with its steps. Later, and a step that was taken over would wait for
/// the room of the call that it repeats.
fn limit_options(lease: Duration, away: RedisAway) -> LimitOptions {
    let defaults = LimitOptions::default();
    let lease_ttl = lease.min(defaults.lease_ttl);
    let extend_every = (lease_ttl / LEASE_EXTENSIONS).min(defaults.extend_every);
    LimitOptions { lease_ttl, extend_every, away, ..defaults }
}

/// The limiter on all servers of the limits.
fn limits(
    cluster: &ClusterSettings,
    clock: &Arc<dyn Clock>,
    (keepers, stop): (&mut JoinSet<()>, &CancellationToken),
) -> Result<SeveralRedisLimiters, ClusterError> {
    let mut open = |url: &String| {
        let limiter = redis(cluster, url, Arc::clone(clock), (&mut *keepers, stop))?;
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
    (keepers, stop): (&mut JoinSet<()>, &CancellationToken),
) -> Result<RedisLimiter, ClusterError> {
    let settings = &cluster.redis;
    let server = address::redis(settings, url)?;
    keepers.spawn(contact::log_refusals(redis_name(url).to_owned(), server.clone(), stop.clone()));
    let away = match settings.away {
        Away::Hold => RedisAway::Hold,
        Away::Local(share) => RedisAway::Local { share },
    };
    let options = limit_options(cluster.lease, away);
    let instance = *RandomIds.claim_id().as_uuid();
    let (limiter, extender) = RedisLimiter::open(server, options, instance, clock)
        .map_err(|source| ClusterError::Server { server: "Redis", advice: "", source: Box::new(source) })?;
    keepers.spawn(extender.run(stop.clone()));
    Ok(limiter)
}

fn cache(
    settings: &RedisSettings,
    clock: Arc<dyn Clock>,
    options: CacheOptions,
) -> Result<RedisCache, ClusterError> {
    RedisCache::open(address::redis(settings, &settings.url)?, &RedisOptions::default(), options, clock)
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
