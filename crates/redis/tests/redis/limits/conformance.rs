//! The requirements of every limiter, with two processes on one Redis.

use std::sync::Arc;

use podium_harness::Redis;
use podium_testkit::TestClock;
use podium_testkit::limiter::LimiterFixture;

use super::support::{Process, options};

async fn fixture() -> LimiterFixture {
    let redis = Redis::start().await.unwrap();
    let first = Process::start(1, &redis, options()).await;
    let second = Process::start(2, &redis, options()).await;
    LimiterFixture {
        first: Arc::new(first.limiter.clone()),
        second: Arc::new(second.limiter.clone()),
        clock: Arc::new(TestClock::new()),
        ask_again_max: options().ask_again_max,
        keep: Box::new((first, second, redis)),
    }
}

podium_testkit::limiter_suite! { #[tokio::test(flavor = "multi_thread")] fixture() }
