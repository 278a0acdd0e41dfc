//! The step cache on a real Redis: the requirements of every step cache, and behaviour when Redis loses data or stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use podium_harness::Redis;
use podium_ports::cache::{CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;
use podium_redis::cache::{OpenError, RedisCache, RedisOptions};
use podium_testkit::TestClock;
use podium_testkit::step_cache::CacheFixture;

/// Longest wait for an expected event on a busy machine.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// A long limit for answers and a short pause after failures.
fn with_long_limits() -> RedisOptions {
    let (answer_max, away_for) = (Duration::from_secs(5), Duration::from_millis(20));
    RedisOptions { answer_max, away_for, ..RedisOptions::default() }
}

fn open(url: &str, redis: &RedisOptions, options: CacheOptions) -> RedisCache {
    RedisCache::open(url, redis, options, Arc::new(TestClock::new())).unwrap()
}

async fn fixture() -> CacheFixture {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let make = move |options| {
        let handle = || Arc::new(open(&url, &with_long_limits(), options)) as Arc<dyn StepCache>;
        [handle(), handle()]
    };
    CacheFixture { make: Box::new(make), clock: Arc::new(TestClock::new()), keep: Box::new(redis) }
}

podium_testkit::step_cache_suite! { #[tokio::test(flavor = "multi_thread")] fixture() }

const KEY: CacheKey = CacheKey::from_bytes([1; 32]);

fn output() -> CachedOutput {
    CachedOutput {
        output: "blue".to_owned(),
        finish: FinishReason::Stop,
        stop_sequence: None,
        usage: Usage::NONE,
    }
}

/// Looks the key up until Redis answers.
async fn look_until_answered(cache: &RedisCache) -> Option<CachedOutput> {
    let (clock, begun) = (TestClock::new(), Instant::now());
    loop {
        match cache.look_up(&KEY).await {
            Ok(look) => return look,
            Err(_) => clock.sleep(Duration::from_millis(10)).await,
        }
        assert!(begun.elapsed() < ANSWER_WAIT_MAX, "Redis does not become reachable");
    }
}

async fn command(redis: &Redis, words: &[&str]) -> i64 {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn everything_in_redis_expires() {
    let redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &with_long_limits(), CacheOptions::default());
    cache.keep(&KEY, &output()).await.unwrap();
    assert_eq!(command(&redis, &["DBSIZE"]).await, 2);
    let keys = [format!("1:{KEY}"), "1:index".to_owned()];
    for key in keys {
        assert!(command(&redis, &["PTTL", &format!("{{podium:cache}}:{key}")]).await > 0, "{key}");
    }
}

#[tokio::test]
async fn the_cache_recovers_when_redis_returns() {
    let mut redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &with_long_limits(), CacheOptions::default());
    cache.keep(&KEY, &output()).await.unwrap();
    redis.kill().await;
    cache.look_up(&KEY).await.unwrap_err();
    cache.keep(&KEY, &output()).await.unwrap_err();
    redis.start_again().await.unwrap();
    assert_eq!(look_until_answered(&cache).await, None);
    cache.keep(&KEY, &output()).await.unwrap();
    redis.flush().await.unwrap();
    assert_eq!(look_until_answered(&cache).await, None);
}

#[tokio::test]
async fn a_hanging_redis_is_skipped_after_one_timeout() {
    let redis = Redis::start().await.unwrap();
    let answer_max = Duration::from_millis(100);
    let slow = RedisOptions { answer_max, away_for: Duration::from_hours(1), ..RedisOptions::default() };
    let cache = open(&redis.url(), &slow, CacheOptions::default());
    redis.freeze();
    let error = cache.look_up(&KEY).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("Redis did not answer within") || source.contains("unreachable"), "{source}");
    for _ in 0..1000 {
        let error = cache.look_up(&KEY).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "Redis failed recently and is not called");
    }
    redis.thaw();
}

#[tokio::test]
async fn an_invalid_entry_is_an_error_and_is_replaced() {
    let redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &with_long_limits(), CacheOptions::default());
    let key = format!("{{podium:cache}}:1:{KEY}");
    assert_eq!(command(&redis, &["APPEND", &key, "nonsense"]).await, 8);
    let error = cache.look_up(&KEY).await.unwrap_err();
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "a cached output in Redis cannot be decoded"
    );
    cache.keep(&KEY, &output()).await.unwrap();
    assert_eq!(cache.look_up(&KEY).await.unwrap(), Some(output()));
}

#[tokio::test]
async fn invalid_options_are_rejected_without_showing_passwords() {
    let refused = |url: &str, prefix: &str| {
        let options = RedisOptions { prefix: prefix.to_owned(), ..RedisOptions::default() };
        RedisCache::open(url, &options, CacheOptions::default(), Arc::new(TestClock::new())).err()
    };
    assert_eq!(refused("redis://127.0.0.1", "a{b}"), Some(OpenError::Prefix));
    assert_eq!(refused("http://:hunter2@127.0.0.1", "a"), Some(OpenError::Url));
    let cache = open("redis://:hunter2@127.0.0.1:1", &with_long_limits(), CacheOptions::default());
    let error = cache.look_up(&KEY).await.unwrap_err();
    let shown = format!("{cache:?} {error:?} {error}");
    assert!(!shown.contains("hunter2"), "{shown}");
}
