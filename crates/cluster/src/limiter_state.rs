//! The state of the limiters, for readiness and as a metric.

use opentelemetry::{KeyValue, global};
use podium_domain::pool::Pool;
use podium_engine::PartState;
use podium_redis::limits::{Server, SeveralRedisLimiters, State};

/// The states, by their names in settings and metrics.
const STATES: [(&str, State); 3] =
    [("shared", State::Shared), ("local", State::Local), ("holding", State::Holding)];

/// The readiness of each server. A process without Redis is ready if the setting `redis_away` lets it call models, and one with
/// several servers as long as it may call the models of one of them.
pub(crate) fn parts(limiter: &SeveralRedisLimiters, pool: &Pool) -> Vec<PartState> {
    let servers = limiter.servers();
    let no_calls = servers.iter().all(|server| server.limiter.state() == State::Holding);
    let part = |server: &Server| {
        let state = server.limiter.state();
        let problem = match state {
            State::Shared => None,
            State::Local => Some("Redis is unreachable: this process keeps to its own share of each limit"),
            State::Holding if no_calls => {
                Some("the limiter does not answer: Redis is unreachable, and no worker is called")
            }
            State::Holding => Some(
                "the limiter does not answer: Redis is unreachable, and no worker of these vendors is called",
            ),
        };
        let is_needed = match state {
            State::Shared => true,
            State::Local => false,
            State::Holding => no_calls,
        };
        let note = (servers.len() > 1).then(|| vendors_of(limiter, server, pool));
        PartState { part: "limiter", is_needed, problem: problem.map(str::to_owned), note }
    };
    servers.iter().map(part).collect()
}

fn vendors_of(limiter: &SeveralRedisLimiters, server: &Server, pool: &Pool) -> String {
    let vendors = pool.vendors().iter().filter(|vendor| limiter.server_of(&vendor.id).name == server.name);
    let vendors: Vec<_> = vendors.map(|vendor| vendor.id.as_str()).collect();
    let vendors = if vendors.is_empty() { "none".to_owned() } else { vendors.join(", ") };
    format!("server {} with vendors: {vendors}", server.name)
}

/// Publishes the state of each server's limiter as a metric: 1 for its state, 0 for the others.
pub(crate) fn observe(limiter: &SeveralRedisLimiters) {
    let limiter = limiter.clone();
    let _ = global::meter("podium.cluster")
        .u64_observable_gauge("podium.limiter.state")
        .with_unit("{limiter}")
        .with_description(
            "1 for the state of the limiter: shared through Redis, local (this process' share of each limit), or holding (no calls)",
        )
        .with_callback(move |observer| {
            for Server { name: server, limiter } in limiter.servers() {
                let now = limiter.state();
                for (name, state) in STATES {
                    let server = KeyValue::new("server.address", server.clone());
                    observer.observe(u64::from(state == now), &[KeyValue::new("podium.state", name), server]);
                }
            }
        })
        .build();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use podium_harness::Redis;
    use podium_ports::clock::Ids as _;
    use podium_redis::limits::{Away, Options, RedisLimiter};
    use podium_setup::{RandomIds, SystemClock};
    use podium_testkit::metrics::{Meters, assert_described};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[tokio::test]
    async fn the_metric_shows_the_limiters_state_while_redis_restarts() {
        let meters = Meters::start();
        let mut redis = Redis::start().await.unwrap();
        let options = Options { away: Away::Local { share: Some(0.5) }, ..Options::default() };
        let instance = *RandomIds.claim_id().as_uuid();
        let (limiter, extender) =
            RedisLimiter::open(redis.url(), options, instance, Arc::new(SystemClock)).unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(extender.run(stop.clone()));
        let server = Server { name: "redis:6379".to_owned(), limiter: limiter.clone() };
        observe(&SeveralRedisLimiters::new(server, []));
        let seen = || {
            let state = &meters.read()["podium.limiter.state"];
            STATES.map(|(name, _)| state.value(&format!("podium.state={name},server.address=redis:6379")))
        };
        let until = async |state| {
            let mut states = limiter.watch_state();
            states.wait_for(|current| *current == state).await.unwrap();
        };
        until(State::Shared).await;
        assert_eq!(seen(), [1, 0, 0]);
        redis.kill().await;
        until(State::Local).await;
        assert_eq!(seen(), [0, 1, 0]);
        redis.start_again().await.unwrap();
        until(State::Shared).await;
        assert_eq!(seen(), [1, 0, 0]);
        assert_described(PAGE, "An executor of a cluster", &meters.read());
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
