//! Invalid options and data, and errors that show no password.

use std::error::Error;
use std::sync::Arc;

use podium_harness::Redis;
use podium_redis::limits::{OpenError, RedisLimiter, State};
use podium_testkit::{TestClock, a_pool};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::timeout;
use uuid::Uuid;

use super::support::{KEY, Onlooker, PATIENCE, Process, a_worker, open, options};

#[tokio::test]
async fn a_key_of_another_type_fails_its_worker_only() {
    let redis = Redis::start().await.unwrap();
    let process = Process::start(1, &redis, options()).await;
    let mut onlooker = Onlooker::of(&redis).await;
    let () = onlooker.say(&format!("SET {KEY} damaged")).await;
    let error = process.ask(&a_worker(1)).await.err().unwrap();
    assert_eq!(error.to_string(), "the limiter failed");
    assert_eq!(error.source().unwrap().to_string(), "Redis refused the request with `WRONGTYPE`");

    let _held = process.must_grant(&a_pool().workers()[1]).await;
    assert_eq!(process.limiter.state(), State::Shared);
    let () = onlooker.say(&format!("SET {KEY} damaged")).await;
    let _: u32 = onlooker.say(&format!("DEL {KEY}")).await;
    let _held = process.must_grant(&a_worker(1)).await;
}

#[tokio::test]
async fn an_invalid_url_is_not_repeated() {
    let clock = Arc::new(TestClock::new());
    for url in ["", "hunter2", "http://:hunter2@127.0.0.1", "redis://:hunter2@:x", "redis://:hunter2@0.0.0.0"]
    {
        let opened = RedisLimiter::open(url, options(), Uuid::from_u128(1), clock.clone());
        let error = opened.err().unwrap();
        assert_eq!(error, OpenError::Url, "{url}");
        assert!(error.source().is_none());
    }
}

#[tokio::test]
async fn a_limiter_does_not_show_its_password() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url().replace("://", "://somebody:hunter2@");
    let process = Process::launch(1, &url, options());
    let shown = format!("{:?}", process.limiter);
    assert!(
        shown.contains("Holding") && !shown.contains("hunter2") && !shown.contains("somebody"),
        "{shown}"
    );
}

#[tokio::test]
async fn rediss_speaks_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://localhost:{}", listener.local_addr().unwrap().port());
    let _process = Process::launch(1, &url, options());
    let first_bytes = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        [stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap()]
    };
    // The beginning of a TLS record with a handshake.
    assert_eq!(timeout(PATIENCE, first_bytes).await.unwrap(), [22, 3]);
}

#[tokio::test]
async fn a_limiter_without_its_extender_does_not_call_redis() {
    let redis = Redis::start().await.unwrap();
    let (limiter, extender) = open(1, &redis.url(), options());
    assert_eq!(limiter.state(), State::Holding);
    drop(extender);
    assert_eq!(limiter.state(), State::Holding);
}
