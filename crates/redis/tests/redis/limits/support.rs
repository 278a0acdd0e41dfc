//! A Redis server and processes that share it.

use std::sync::Arc;
use std::time::Duration;

use podium_domain::pool::{Limits, Worker};
use podium_harness::Redis;
use podium_ports::clock::Clock;
use podium_ports::limiter::{Grant, Limiter, LimiterError, Permit};
use podium_redis::limits::{Extender, Options, RedisLimiter, State};
use podium_testkit::limiter::Caller;
use podium_testkit::{TestClock, a_pool};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Longest wait for an expected event on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Frequent extensions and probes, and a long time limit.
pub(crate) fn options() -> Options {
    Options {
        lease_ttl: Duration::from_mins(5),
        extend_every: Duration::from_millis(50),
        probe_every: Duration::from_millis(20),
        answer_max: Duration::from_secs(5),
        ask_again_max: Duration::from_millis(40),
        ..Options::default()
    }
}

pub(crate) fn a_worker(in_flight_max: u32) -> Worker {
    let worker = a_pool().workers()[0].clone();
    Worker { limits: Limits { in_flight_max, ..worker.limits }, ..worker }
}

/// The key with the leases of [`a_worker`].
pub(crate) const KEY: &str = "podium:limits:{north}:quick:calls";

/// The key with the processes that share the limits.
pub(crate) const MEMBERS: &str = "podium:limits:members";

/// A process that asks for permits.
pub(crate) struct Process {
    pub(crate) limiter: RedisLimiter,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Process {
    /// Starts process `number`, which may not have reached Redis yet.
    pub(crate) fn launch(number: u128, url: &str, options: Options) -> Self {
        let (limiter, extender) = open(number, url, options);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(extender.run(stop.clone()));
        Self { limiter, stop, tasks }
    }

    /// Starts process `number` and waits until it shares its limits.
    pub(crate) async fn start(number: u128, redis: &Redis, options: Options) -> Self {
        let process = Self::launch(number, &redis.url(), options);
        process.wait_for(State::Shared).await;
        process
    }

    pub(crate) async fn wait_for(&self, state: State) {
        let mut states = self.limiter.watch_state();
        let reached = states.wait_for(|current| *current == state);
        timeout(PATIENCE, reached).await.expect("the limiter reaches the state in time").unwrap();
    }

    /// Ends it as `kill -9` does: permits that are dropped later are not settled in Redis.
    pub(crate) async fn die(&mut self) {
        self.tasks.shutdown().await;
    }

    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }

    pub(crate) async fn ask(&self, worker: &Worker) -> Result<Option<Box<dyn Permit>>, LimiterError> {
        match self.limiter.acquire(&Caller::new(0).request(worker)).await? {
            Grant::Permit(permit) => Ok(Some(permit)),
            Grant::AskAgain { after, .. } => {
                assert!(after > Duration::ZERO && after <= options().ask_again_max);
                Ok(None)
            }
        }
    }

    pub(crate) async fn must_grant(&self, worker: &Worker) -> Box<dyn Permit> {
        self.ask(worker).await.unwrap().expect("there is capacity")
    }

    pub(crate) async fn must_refuse(&self, worker: &Worker) {
        assert!(self.ask(worker).await.unwrap().is_none(), "there is no capacity");
    }

    pub(crate) async fn wait_for_grant(&self, worker: &Worker) -> Box<dyn Permit> {
        wait_for(async || self.ask(worker).await.unwrap()).await
    }
}

pub(crate) fn open(number: u128, url: &str, options: Options) -> (RedisLimiter, Extender) {
    let clock = Arc::new(TestClock::new());
    RedisLimiter::open(url, options, Uuid::from_u128(number), clock).unwrap()
}

/// Repeats `look` until it returns a value.
pub(crate) async fn wait_for<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = TestClock::new();
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looking).await.expect("the value arrives in time")
}

/// A connection to Redis next to the limiter.
pub(crate) struct Onlooker(MultiplexedConnection);

impl Onlooker {
    pub(crate) async fn of(redis: &Redis) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        // No time limit: the machine may be busy.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        Self(client.get_multiplexed_async_connection_with_config(&patient).await.unwrap())
    }

    /// Sends a command, written as words.
    pub(crate) async fn say<T: FromRedisValue>(&mut self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut self.0).await.unwrap()
    }

    /// The number of leases of [`a_worker`].
    pub(crate) async fn leases(&mut self) -> u32 {
        self.say(&format!("ZCARD {KEY}")).await
    }

    /// How often Redis carried out a command since its statistics were reset.
    pub(crate) async fn calls(&mut self, command: &str) -> u64 {
        let stats: String = self.say("INFO commandstats").await;
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    pub(crate) async fn wait_for_leases(&mut self, count: u32) {
        wait_for(async || (self.leases().await == count).then_some(())).await;
    }

    /// When the first lease of [`a_worker`] expires, in milliseconds of Redis's clock.
    pub(crate) async fn first_runs_out_ms(&mut self) -> u64 {
        let first: Vec<(String, u64)> = self.say(&format!("ZRANGE {KEY} 0 0 WITHSCORES")).await;
        first[0].1
    }
}
