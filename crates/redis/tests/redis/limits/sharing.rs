//! Limits that processes share, and the life of a lease.

use std::time::Duration;

use podium_harness::Redis;
use podium_redis::limits::Options;

use super::support::{KEY, Onlooker, Process, a_worker, options, wait_for};

/// Leases that expire soon enough for a test.
fn short_leases() -> Options {
    let lease_ttl = Duration::from_secs(2);
    Options { lease_ttl, member_ttl: lease_ttl, kept: lease_ttl, ..options() }
}

#[tokio::test]
async fn the_permits_of_a_dead_process_are_released_when_their_leases_expire() {
    let redis = Redis::start().await.unwrap();
    let (mut dead, worker) = (Process::start(1, &redis, short_leases()).await, a_worker(2));
    let other = Process::start(2, &redis, short_leases()).await;
    let lost = [dead.must_grant(&worker).await, dead.must_grant(&worker).await];
    dead.die().await;
    drop(lost);
    other.must_refuse(&worker).await;

    let _held = [other.wait_for_grant(&worker).await, other.wait_for_grant(&worker).await];
    other.must_refuse(&worker).await;
}

#[tokio::test]
async fn a_lease_that_is_held_is_extended_beyond_its_first_end() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, short_leases()).await, a_worker(1));
    let other = Process::start(2, &redis, short_leases()).await;
    let mut onlooker = Onlooker::of(&redis).await;
    let _held = process.must_grant(&worker).await;
    let lease_ttl_ms = 2_000;
    let first_end_ms = onlooker.first_runs_out_ms().await;
    wait_for(async || {
        other.must_refuse(&worker).await;
        (onlooker.first_runs_out_ms().await > first_end_ms + lease_ttl_ms).then_some(())
    })
    .await;
}

#[tokio::test]
async fn held_permits_are_restored_after_a_flush() {
    let mut redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(3));
    let other = Process::start(2, &redis, options()).await;
    let mut onlooker = Onlooker::of(&redis).await;
    let mut held = vec![process.must_grant(&worker).await, process.must_grant(&worker).await];
    held.push(other.must_grant(&worker).await);
    redis.flush().await.unwrap();

    onlooker.wait_for_leases(3).await;
    process.must_refuse(&worker).await;
    other.must_refuse(&worker).await;
    held.remove(0);
    held.push(other.wait_for_grant(&worker).await);
    process.must_refuse(&worker).await;
}

/// Simulates that another server took over without the last grants.
#[tokio::test]
async fn held_permits_that_redis_lost_are_restored() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(2));
    let mut onlooker = Onlooker::of(&redis).await;
    let _held = [process.must_grant(&worker).await, process.must_grant(&worker).await];
    let () = onlooker.say(&format!("DEL {KEY}")).await;
    onlooker.wait_for_leases(2).await;
}

/// Calls take seconds, so this decides what a call costs.
#[tokio::test]
async fn permits_that_are_held_are_seldom_written_again() {
    const PERMITS: u64 = 100;
    const BEATS: u64 = 60;
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(100));
    let mut onlooker = Onlooker::of(&redis).await;
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        held.push(process.must_grant(&worker).await);
    }
    let () = onlooker.say("CONFIG RESETSTAT").await;
    // A beat has one of these, and one member is written.
    wait_for(async || (onlooker.calls("pexpire").await >= 2 * BEATS).then_some(())).await;
    let written = onlooker.calls("zadd").await;
    assert!(written < PERMITS * BEATS / 4, "{written} entries written in {BEATS} beats");
}

#[tokio::test]
async fn scripts_that_redis_forgot_are_loaded_again() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(1));
    let mut onlooker = Onlooker::of(&redis).await;
    for _ in 0..3 {
        let () = onlooker.say("SCRIPT FLUSH").await;
        let held = process.wait_for_grant(&worker).await;
        let () = onlooker.say("SCRIPT FLUSH").await;
        drop(held);
        onlooker.wait_for_leases(0).await;
    }
}

#[tokio::test]
async fn a_worker_that_is_not_used_leaves_nothing_in_redis() {
    let redis = Redis::start().await.unwrap();
    let (mut process, worker) = (Process::start(1, &redis, short_leases()).await, a_worker(2));
    let mut onlooker = Onlooker::of(&redis).await;
    let held = process.must_grant(&worker).await;
    process.die().await;
    drop(held);
    // Nothing removes it but its expiry.
    wait_for(async || (onlooker.say::<u32>("DBSIZE").await == 0).then_some(())).await;
}

#[tokio::test]
async fn permits_dropped_before_a_stop_are_released_by_its_end() {
    let redis = Redis::start().await.unwrap();
    let slow = Options { extend_every: Duration::from_mins(1), ..options() };
    let (mut process, worker) = (Process::start(1, &redis, slow).await, a_worker(8));
    let mut onlooker = Onlooker::of(&redis).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(process.must_grant(&worker).await);
    }
    assert_eq!(onlooker.leases().await, 8);
    drop(held);
    process.stop().await;
    assert_eq!(onlooker.leases().await, 0);
    process.must_refuse(&worker).await;
}
