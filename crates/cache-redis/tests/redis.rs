//! The step cache on a real Redis: what every step cache must do, and what happens when Redis forgets or goes.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use podium_cache_redis::{OpenError, RedisCache, RedisOptions};
use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use podium_harness::Redis;
use podium_ports::cache::{CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;
use podium_testkit::TestClock;
use podium_testkit::step_cache::CacheFixture;

/// How long what is due may take to come, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Patient with Redis' answers, and quick to look for it.
fn patient() -> RedisOptions {
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
        let handle = || Arc::new(open(&url, &patient(), options)) as Arc<dyn StepCache>;
        [handle(), handle()]
    };
    CacheFixture { make: Box::new(make), clock: Arc::new(TestClock::new()), keep: Box::new(redis) }
}

podium_testkit::step_cache_suite! { #[tokio::test(flavor = "multi_thread")] fixture() }

const KEY: CacheKey = CacheKey::from_bytes([1; 32]);

fn output() -> CachedOutput {
    CachedOutput { output: "blue".to_owned(), finish: FinishReason::Stop, usage: Usage::NONE }
}

/// Looks until there is an answer, whatever it is.
async fn look_until_answered(cache: &RedisCache) -> Option<CachedOutput> {
    let (clock, begun) = (TestClock::new(), Instant::now());
    loop {
        match cache.look_up(&KEY).await {
            Ok(look) => return look,
            Err(_) => clock.sleep(Duration::from_millis(10)).await,
        }
        assert!(begun.elapsed() < PATIENCE, "Redis does not come back");
    }
}

async fn say(redis: &Redis, words: &[&str]) -> i64 {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn everything_in_redis_runs_out() {
    let redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &patient(), CacheOptions::default());
    cache.keep(&KEY, &output()).await.unwrap();
    assert_eq!(say(&redis, &["DBSIZE"]).await, 2);
    let keys = [format!("1:{KEY}"), "1:index".to_owned()];
    for key in keys {
        assert!(say(&redis, &["PTTL", &format!("{{podium:cache}}:{key}")]).await > 0, "{key}");
    }
}

#[tokio::test]
async fn without_redis_there_is_no_cache_and_with_it_there_is_again() {
    let mut redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &patient(), CacheOptions::default());
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
async fn a_redis_that_hangs_is_waited_for_once_and_not_asked_for_a_while() {
    let redis = Redis::start().await.unwrap();
    let answer_max = Duration::from_millis(100);
    let slow = RedisOptions { answer_max, away_for: Duration::from_hours(1), ..RedisOptions::default() };
    let cache = open(&redis.url(), &slow, CacheOptions::default());
    redis.freeze();
    let error = cache.look_up(&KEY).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("Redis did not answer within") || source.contains("reached"), "{source}");
    for _ in 0..1000 {
        let error = cache.look_up(&KEY).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "Redis failed a moment ago and is not asked");
    }
    redis.thaw();
}

#[tokio::test]
async fn what_does_not_read_is_an_error_and_an_output_takes_its_place() {
    let redis = Redis::start().await.unwrap();
    let cache = open(&redis.url(), &patient(), CacheOptions::default());
    let key = format!("{{podium:cache}}:1:{KEY}");
    assert_eq!(say(&redis, &["APPEND", &key, "nonsense"]).await, 8);
    let error = cache.look_up(&KEY).await.unwrap_err();
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "what Redis holds of an output does not read"
    );
    cache.keep(&KEY, &output()).await.unwrap();
    assert_eq!(cache.look_up(&KEY).await.unwrap(), Some(output()));
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_and_no_password_is_shown() {
    let refused = |url: &str, prefix: &str| {
        let options = RedisOptions { prefix: prefix.to_owned(), ..RedisOptions::default() };
        RedisCache::open(url, &options, CacheOptions::default(), Arc::new(TestClock::new())).err()
    };
    assert_eq!(refused("redis://127.0.0.1", "a{b}"), Some(OpenError::Prefix));
    assert_eq!(refused("http://:hunter2@127.0.0.1", "a"), Some(OpenError::Url));
    let cache = open("redis://:hunter2@127.0.0.1:1", &patient(), CacheOptions::default());
    let error = cache.look_up(&KEY).await.unwrap_err();
    let shown = format!("{cache:?} {error:?} {error}");
    assert!(!shown.contains("hunter2"), "{shown}");
}
