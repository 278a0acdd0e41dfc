//! Redis stops, hangs, and returns.

use std::time::{Duration, Instant};

use futures::future::join_all;
use podium_harness::Redis;
use podium_redis::limits::{Away, Options, State};
use redis::Value;

use super::support::{MEMBERS, Onlooker, PATIENCE, Process, a_worker, options, wait_for};

#[tokio::test]
async fn a_limiter_may_hold_all_calls_while_redis_is_unreachable() {
    let mut redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(2));
    let _held = process.must_grant(&worker).await;
    redis.kill().await;
    process.must_refuse(&worker).await;
    process.wait_for(State::Holding).await;
    process.must_refuse(&worker).await;

    redis.start_again().await.unwrap();
    process.wait_for(State::Shared).await;
    // The lease of the held permit was restored before anything else is granted.
    assert_eq!(Onlooker::of(&redis).await.leases().await, 1);
    let _another = process.must_grant(&worker).await;
    process.must_refuse(&worker).await;
}

#[tokio::test]
async fn a_limiter_may_grant_its_share_while_redis_is_unreachable() {
    let mut redis = Redis::start().await.unwrap();
    let local = Options { away: Away::Local { share: Some(0.5) }, ..options() };
    let (process, worker) = (Process::start(1, &redis, local).await, a_worker(5));
    let first = process.must_grant(&worker).await;
    redis.kill().await;
    // Half of five, rounded up, is three; one of them is held already.
    let second = process.must_grant(&worker).await;
    process.wait_for(State::Local).await;
    let third = process.must_grant(&worker).await;
    process.must_refuse(&worker).await;
    drop(first);
    let _fourth = process.must_grant(&worker).await;
    process.must_refuse(&worker).await;
    let least = process.must_grant(&podium_testkit::a_pool().workers()[1]).await;
    drop((third, least));

    redis.start_again().await.unwrap();
    process.wait_for(State::Shared).await;
    let mut onlooker = Onlooker::of(&redis).await;
    assert_eq!(onlooker.leases().await, 2, "permits that were granted without Redis count now");
    drop(second);
    onlooker.wait_for_leases(1).await;
}

fn by_number() -> Options {
    Options { away: Away::Local { share: None }, ..options() }
}

/// Waits until each process has registered in Redis several times, and so knows the others.
async fn wait_until_known(onlooker: &mut Onlooker, processes: usize) {
    let mut seen: Vec<(String, u64)> = Vec::new();
    for _ in 0..5 {
        seen = wait_for(async || {
            let now: Vec<(String, u64)> = onlooker.say(&format!("ZRANGE {MEMBERS} 0 -1 WITHSCORES")).await;
            let later = |(id, score): &(String, u64)| {
                now.iter().any(|(other, now_score)| other == id && now_score > score)
            };
            (now.len() == processes && seen.iter().all(later)).then_some(now)
        })
        .await;
    }
}

#[tokio::test]
async fn without_redis_processes_divide_the_limits_by_their_number() {
    let mut redis = Redis::start().await.unwrap();
    let mut processes = Vec::new();
    for number in 1..=3 {
        processes.push(Process::start(number, &redis, by_number()).await);
    }
    wait_until_known(&mut Onlooker::of(&redis).await, 3).await;
    redis.kill().await;
    let (worker, mut held) = (a_worker(7), Vec::new());
    for process in &processes {
        wait_for(async || {
            process.ask(&worker).await.unwrap();
            (process.limiter.state() == State::Local).then_some(())
        })
        .await;
    }
    for process in &processes {
        while let Some(permit) = process.ask(&worker).await.unwrap() {
            held.push(permit);
        }
    }
    assert_eq!(held.len(), 7, "all shares together are the limit");
}

#[tokio::test]
async fn a_process_that_stops_leaves_its_share_to_the_others() {
    let redis = Redis::start().await.unwrap();
    let (_stays, mut stops) =
        (Process::start(1, &redis, by_number()).await, Process::start(2, &redis, by_number()).await);
    let mut onlooker = Onlooker::of(&redis).await;
    wait_until_known(&mut onlooker, 2).await;
    stops.stop().await;
    assert_eq!(onlooker.say::<u32>(&format!("ZCARD {MEMBERS}")).await, 1);
}

#[tokio::test]
async fn a_process_that_starts_without_redis_grants_no_calls() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await;
    let process = Process::launch(1, &redis.url(), by_number());
    process.must_refuse(&a_worker(5)).await;
    assert_eq!(process.limiter.state(), State::Holding, "it cannot know the number of other processes");
}

#[tokio::test]
async fn a_limiter_starts_without_redis_and_finds_it_later() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await;
    let (process, worker) = (Process::launch(1, &redis.url(), options()), a_worker(1));
    process.must_refuse(&worker).await;
    assert_eq!(process.limiter.state(), State::Holding);
    redis.start_again().await.unwrap();
    process.wait_for(State::Shared).await;
    let _held = process.must_grant(&worker).await;
    process.must_refuse(&worker).await;
}

#[tokio::test]
async fn a_frozen_redis_delays_no_call_beyond_the_timeout_and_leaves_no_lease() {
    let redis = Redis::start().await.unwrap();
    let answer_max = Duration::from_millis(300);
    let impatient = Options { answer_max, ..options() };
    let (process, worker) = (Process::start(1, &redis, impatient).await, a_worker(4));
    let held = process.must_grant(&worker).await;
    redis.freeze();
    let frozen = Instant::now();
    let all = join_all((0..64).map(|_| process.ask(&worker))).await;
    assert!(all.into_iter().all(|asked| asked.unwrap().is_none()));
    let took = frozen.elapsed();
    assert!(took < answer_max + Duration::from_secs(2), "{took:?}");
    assert_eq!(process.limiter.state(), State::Holding);
    wait_for(async || {
        let asked = Instant::now();
        process.must_refuse(&worker).await;
        assert!(asked.elapsed() < answer_max, "no caller waits for a Redis that is known to be unreachable");
        (frozen.elapsed() > answer_max * 10).then_some(())
    })
    .await;

    redis.thaw();
    process.wait_for(State::Shared).await;
    // Redis has executed the requests of the time in which it was frozen. Their leases last for minutes unless they were
    // released.
    let _all = [
        held,
        process.wait_for_grant(&worker).await,
        process.wait_for_grant(&worker).await,
        process.wait_for_grant(&worker).await,
    ];
    process.must_refuse(&worker).await;
    assert!(frozen.elapsed() < PATIENCE);
}

/// A handshake that Redis rejects is not a failure of the connection, after which the manager would reconnect by itself.
#[tokio::test]
async fn a_refused_handshake_is_tried_again() {
    let redis = Redis::start().await.unwrap();
    let mut onlooker = Onlooker::of(&redis).await;
    let url = redis.url().replace("://", "://limiter:hunter2@");
    let (process, worker) = (Process::launch(1, &url, options()), a_worker(1));
    wait_for(async || (!onlooker.say::<Vec<Value>>("ACL LOG").await.is_empty()).then_some(())).await;
    process.must_refuse(&worker).await;
    let () = onlooker.say("ACL SETUSER limiter on >hunter2 ~* +@all").await;
    process.wait_for(State::Shared).await;
    let _held = process.must_grant(&worker).await;
}

#[tokio::test]
async fn a_redis_that_becomes_a_replica_counts_as_unreachable() {
    let redis = Redis::start().await.unwrap();
    let process = Process::start(1, &redis, options()).await;
    let mut onlooker = Onlooker::of(&redis).await;
    let () = onlooker.say("REPLICAOF 127.0.0.1 1").await;
    process.wait_for(State::Holding).await;
    process.must_refuse(&a_worker(1)).await;
    let () = onlooker.say("REPLICAOF NO ONE").await;
    process.wait_for(State::Shared).await;
}

/// A slow Redis would only be slower if every process named all its leases again after each late answer.
#[tokio::test]
async fn a_late_answer_does_not_name_all_leases_again() {
    const LEASES: u32 = 50;
    let redis = Redis::start().await.unwrap();
    let impatient =
        Options { answer_max: Duration::from_millis(300), extend_every: Duration::from_mins(1), ..options() };
    let (process, worker) = (Process::start(1, &redis, impatient).await, a_worker(LEASES + 1));
    let mut held = Vec::new();
    for _ in 0..LEASES {
        held.push(process.must_grant(&worker).await);
    }
    let mut onlooker = Onlooker::of(&redis).await;
    // The first time, Redis does not know yet that the process is alive.
    for _ in 0..2 {
        let () = onlooker.say("CONFIG RESETSTAT").await;
        redis.freeze();
        process.must_refuse(&worker).await;
        process.wait_for(State::Holding).await;
        redis.thaw();
        process.wait_for(State::Shared).await;
    }
    let named = onlooker.calls("zadd").await;
    assert!(named < u64::from(LEASES), "{named} updates for {LEASES} leases that Redis knows");
    assert_eq!(onlooker.leases().await, LEASES, "the call that was refused is settled");
}

#[tokio::test]
async fn all_leases_are_restored_if_redis_lost_its_data() {
    const LEASES: u32 = 1_300;
    let mut redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, options()).await, a_worker(LEASES + 1));
    let asked = join_all((0..LEASES).map(|_| process.ask(&worker))).await;
    let held: Vec<_> = asked.into_iter().filter_map(Result::unwrap).collect();
    redis.kill().await;
    process.wait_for(State::Holding).await;
    redis.start_again().await.unwrap();
    process.wait_for(State::Shared).await;
    assert_eq!(Onlooker::of(&redis).await.leases().await as usize, held.len(), "more than one portion");
    assert!(held.len() > 1_000);
}
