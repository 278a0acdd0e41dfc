//! Calls of one worker that are requested before Redis has answered the previous ones.

use std::pin::Pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{LocalBoxFuture, join, join_all};
use podium_domain::pool::Worker;
use podium_harness::Redis;
use podium_ports::limiter::{LimiterError, Permit};
use podium_redis::limits::Options;
use podium_testkit::a_pool;

use super::support::{KEY, Onlooker, Process, a_worker, options};

type Asked<'a> = LocalBoxFuture<'a, Result<Option<Box<dyn Permit>>, LimiterError>>;

/// The limiter sends only the requests of the test.
fn quiet() -> Options {
    Options { extend_every: Duration::from_mins(1), ..options() }
}

/// Requests a call without waiting for the answer.
fn begin<'a>(process: &'a Process, worker: &'a Worker) -> Asked<'a> {
    let mut asked: Asked<'a> = Box::pin(process.ask(worker));
    assert!(Pin::new(&mut asked).now_or_never().is_none());
    asked
}

async fn scripts_run(onlooker: &mut Onlooker) -> u32 {
    let stats: String = onlooker.say("INFO commandstats").await;
    let evalsha = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    evalsha.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

async fn granted(asked: Vec<Asked<'_>>) -> Vec<Option<Box<dyn Permit>>> {
    join_all(asked).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn waiting_calls_are_decided_together_and_in_order() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, quiet()).await, a_worker(10));
    let mut onlooker = Onlooker::of(&redis).await;
    let _held = process.must_grant(&worker).await;
    let before = scripts_run(&mut onlooker).await;
    let answers = granted((0..20).map(|_| begin(&process, &worker)).collect()).await;
    assert_eq!(
        scripts_run(&mut onlooker).await - before,
        2,
        "the first call, and those that arrived meanwhile"
    );
    assert_eq!(answers.iter().position(Option::is_none), Some(9));
    assert_eq!(answers.iter().flatten().count(), 9);
    assert_eq!(onlooker.leases().await, 10);
}

#[tokio::test]
async fn a_batch_is_bounded_and_the_next_one_has_the_rest() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, quiet()).await, a_worker(150));
    let mut onlooker = Onlooker::of(&redis).await;
    drop(process.must_grant(&worker).await);
    onlooker.wait_for_leases(0).await;
    let before = scripts_run(&mut onlooker).await;
    let answers = granted((0..200).map(|_| begin(&process, &worker)).collect()).await;
    assert_eq!(scripts_run(&mut onlooker).await - before, 1 + 4, "64 each");
    assert_eq!(answers.iter().position(Option::is_none), Some(150));
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_no_capacity() {
    let redis = Redis::start().await.unwrap();
    let (process, worker) = (Process::start(1, &redis, quiet()).await, a_worker(2));
    let mut onlooker = Onlooker::of(&redis).await;
    let sent = begin(&process, &worker);
    let waiting: Vec<_> = (0..3).map(|_| begin(&process, &worker)).collect();
    let [first, second, third] = <[Asked<'_>; 3]>::try_from(waiting).ok().unwrap();
    drop((sent, first, third));
    let _held = second.await.unwrap().expect("the calls that were given up were not requested");
    onlooker.wait_for_leases(1).await;
}

#[tokio::test]
async fn calls_with_other_limits_are_decided_by_their_own() {
    let redis = Redis::start().await.unwrap();
    let process = Process::start(1, &redis, quiet()).await;
    let (narrow, wide) = (a_worker(1), a_worker(3));
    let workers = [&narrow, &narrow, &wide, &narrow, &wide, &wide];
    let answers = granted(workers.map(|worker| begin(&process, worker)).into()).await;
    let granted: Vec<_> = answers.iter().map(Option::is_some).collect();
    assert_eq!(granted, [true, false, true, false, true, false]);
}

#[tokio::test]
async fn a_damaged_worker_fails_alone() {
    let redis = Redis::start().await.unwrap();
    let process = Process::start(1, &redis, quiet()).await;
    let () = Onlooker::of(&redis).await.say(&format!("SET {KEY} damaged")).await;
    let (damaged, well) = (a_worker(5), a_pool().workers()[1].clone());
    let asked = (0..3).map(|_| begin(&process, &damaged)).collect::<Vec<_>>();
    let (damaged, well) = join(join_all(asked), begin(&process, &well)).await;
    assert!(damaged.iter().all(Result::is_err));
    assert!(well.unwrap().is_some());
}
