//! Each server starts, answers, restarts, and ends with the test.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use podium_harness::{Fsync, Nats, Postgres, Redis};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

const TOLD_IN: &str = "PODIUM_HARNESS_TOLD_IN";
const FROZEN: Duration = Duration::from_millis(200);

/// `127.0.0.1:…` out of an address with a scheme.
fn address(url: &str) -> SocketAddr {
    let (_, rest) = url.split_once("://").unwrap();
    let host = rest.split('/').next().unwrap();
    host.rsplit('@').next().unwrap().parse().unwrap()
}

async fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

async fn ask_redis(address: SocketAddr, command: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(command.as_bytes()).await.unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

/// The answer of a Postgres to a request for encryption.
async fn ask_postgres(address: SocketAddr) -> u8 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
    stream.read_u8().await.unwrap()
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let mut asking = interval(Duration::from_millis(5));
    while !holds().await {
        asking.tick().await;
    }
}

#[tokio::test]
async fn postgres_makes_databases_restarts_and_ends_on_drop() {
    let mut postgres = Postgres::start().await.unwrap();
    let (first, second) = (postgres.database().await.unwrap(), postgres.database().await.unwrap());
    assert_ne!(first, second);
    let address = address(&first);
    assert_eq!(ask_postgres(address).await, b'N');
    postgres.restart().await.unwrap();
    assert_eq!(ask_postgres(address).await, b'N');
    postgres.database().await.unwrap();
    drop(postgres);
    assert!(!is_listening(address).await);
}

#[tokio::test]
async fn several_postgres_start_at_once() {
    let start = || Postgres::start_with(Fsync::Off);
    let (a, b) = tokio::join!(start(), start());
    let (a, b) = (a.unwrap().database().await.unwrap(), b.unwrap().database().await.unwrap());
    assert_ne!(address(&a), address(&b));
}

#[tokio::test]
async fn nats_restarts_and_ends_on_drop() {
    let mut nats = Nats::start().await.unwrap();
    assert!(nats.version().starts_with("2."), "{}", nats.version());
    let address = address(&nats.url());
    nats.kill().await;
    assert!(!is_listening(address).await);
    nats.start_again().await.unwrap();
    assert!(is_listening(address).await);
    nats.wipe().await.unwrap();
    assert!(is_listening(address).await);
    drop(nats);
    assert!(!is_listening(address).await);
}

#[tokio::test]
async fn redis_flushes_freezes_restarts_and_ends_on_drop() {
    let mut redis = Redis::start().await.unwrap();
    let address = address(&redis.url());
    assert_eq!(ask_redis(address, "SET key value\r\n").await, "+OK");
    redis.flush().await.unwrap();
    assert_eq!(ask_redis(address, "EXISTS key\r\n").await, ":0");

    redis.freeze();
    timeout(FROZEN, ask_redis(address, "PING\r\n")).await.unwrap_err();
    redis.thaw();
    assert_eq!(ask_redis(address, "SET key value\r\n").await, "+OK");

    redis.kill().await;
    assert!(!is_listening(address).await);
    redis.start_again().await.unwrap();
    assert_eq!(ask_redis(address, "EXISTS key\r\n").await, ":0");
    // A frozen server ends on drop too.
    redis.freeze();
    drop(redis);
    assert!(!is_listening(address).await);
}

/// The test runs itself, kills that process while it waits, and checks whether its servers still run.
#[tokio::test]
async fn servers_end_with_a_process_that_is_killed() {
    const NAME: &str = "servers_end_with_a_process_that_is_killed";
    if let Some(file) = env::var_os(TOLD_IN) {
        let (redis, postgres) = (Redis::start().await.unwrap(), Postgres::start().await.unwrap());
        let half_written = Path::new(&file).with_extension("half");
        fs::write(&half_written, format!("{} {}", redis.url(), postgres.database().await.unwrap())).unwrap();
        fs::rename(half_written, file).unwrap();
        return std::future::pending().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("told");
    let mut process = Command::new(env::current_exe().unwrap());
    process.args([NAME, "--exact"]).env(TOLD_IN, &file).env("TMPDIR", folder.path());
    let mut process = process.spawn().unwrap();
    until(async || file.exists()).await;
    let told = fs::read_to_string(&file).unwrap();
    for url in told.split(' ') {
        assert!(is_listening(address(url)).await);
    }
    process.kill().unwrap();
    process.wait().unwrap();
    for url in told.split(' ') {
        until(async || !is_listening(address(url)).await).await;
    }
    let left = || fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    let is_a_servers = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("podium-re");
    until(async || !left().any(|name| is_a_servers(&name))).await;
}
