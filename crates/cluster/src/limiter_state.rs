//! By what the limiter of an executor grants, as a metric.

use opentelemetry::{KeyValue, global};
use podium_limits_redis::{RedisLimiter, State};

/// The states, by their names in settings and metrics.
const STATES: [(&str, State); 3] =
    [("shared", State::Shared), ("local", State::Local), ("holding", State::Holding)];

/// Shows the limiter's state from now on: 1 for the one that it is in, 0 for the others.
pub(crate) fn observe(limiter: &RedisLimiter) {
    let limiter = limiter.clone();
    let _ = global::meter("podium.cluster")
        .u64_observable_gauge("podium.limiter.state")
        .with_unit("{limiter}")
        .with_description(
            "1 for what the limiter grants by now: Redis, this process' share of each limit, or nothing",
        )
        .with_callback(move |observer| {
            let now = limiter.standing().state;
            for (name, state) in STATES {
                observer.observe(u64::from(state == now), &[KeyValue::new("podium.state", name)]);
            }
        })
        .build();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use podium_harness::Redis;
    use podium_limits_redis::{Away, Options};
    use podium_ports::clock::Ids as _;
    use podium_setup::{RandomIds, SystemClock};
    use podium_testkit::metrics::{Meters, assert_described};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[tokio::test]
    async fn the_limiters_state_is_seen_while_redis_goes_and_comes_back() {
        let meters = Meters::start();
        let mut redis = Redis::start().await.unwrap();
        let options = Options { away: Away::Local { share: Some(0.5) }, ..Options::default() };
        let instance = *RandomIds.claim_id().as_uuid();
        let (limiter, extender) =
            RedisLimiter::open(redis.url(), options, instance, Arc::new(SystemClock)).unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(extender.run(stop.clone()));
        observe(&limiter);
        let seen = || {
            let state = &meters.read()["podium.limiter.state"];
            STATES.map(|(name, _)| state.value(&format!("podium.state={name}")))
        };
        let until = async |state| {
            let mut standing = limiter.watch_standing();
            standing.wait_for(|standing| standing.state == state).await.unwrap();
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
