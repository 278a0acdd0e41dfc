//! The cost of a permit and its settlement: CPU of the Redis server, and time until the permit is granted.
//!
//! One process with a worker that has capacity for all; with limits a minute and limits of the vendor's account, and without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use podium_domain::policy::Tier;
use podium_domain::pool::{AccountLimits, Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_harness::Redis;
use podium_ports::clock::{Clock, Ids};
use podium_ports::limiter::{Grant, Limiter, Outcome, Settlement};
use podium_redis::limits::{Options, RedisLimiter, State};
use podium_setup::{RandomIds, SystemClock};
use podium_testkit::a_pool;
use podium_testkit::limiter::Caller;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Permits of one turn.
const PERMITS: u32 = 4_000;
const ROUNDS: u32 = 5;
const IN_FLIGHT: [u32; 3] = [1, 16, 64];
/// A limit per minute that is high enough for all callers.
const PLENTY: u64 = 60_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Case {
    per_minute: bool,
    account: bool,
    in_flight: u32,
}

/// The results of one turn, in microseconds for each permit.
#[derive(Clone, Copy, Debug)]
struct Turn {
    cpu_us: f64,
    wait_us: f64,
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(crate) async fn run() -> Result<()> {
    let redis = Redis::start().await?;
    let mut connection = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let instance = *RandomIds.claim_id().as_uuid();
    let (limiter, extender) =
        RedisLimiter::open(redis.url(), Options::default(), instance, Arc::new(SystemClock))?;
    tasks.spawn(extender.run(stop.clone()));
    limiter.watch_state().wait_for(|state| *state == State::Shared).await?;
    let cases = IN_FLIGHT.into_iter().flat_map(|in_flight| {
        [(false, false), (true, false), (false, true), (true, true)].map(|(per_minute, account)| Case {
            per_minute,
            account,
            in_flight,
        })
    });
    let mut turns: Vec<(Case, Vec<Turn>)> = cases.map(|case| (case, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (case, seen) in &mut turns {
            seen.push(turn(&limiter, *case, &mut connection).await?);
        }
    }
    for (case, seen) in turns {
        let Case { per_minute, account, in_flight } = case;
        let line = json!({
            "limits_a_minute": per_minute, "limits_of_account": account, "in_flight": in_flight,
            "redis_cpu_us": median(seen.iter().map(|turn| turn.cpu_us)),
            "wait_us": median(seen.iter().map(|turn| turn.wait_us)),
        });
        println!("{line}");
    }
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.context("the extender panicked")?;
    }
    Ok(())
}

async fn turn(
    limiter: &RedisLimiter,
    case: Case,
    connection: &mut redis::aio::MultiplexedConnection,
) -> Result<Turn> {
    let worker = Arc::new(a_worker(case));
    // A new worker has capacity for one call only.
    permit(limiter, &worker, 0).await?;
    let before = cpu_us(connection).await?;
    let mut callers = JoinSet::new();
    for number in 0..case.in_flight {
        let (limiter, worker) = (limiter.clone(), Arc::clone(&worker));
        callers.spawn(async move {
            let mut waited = Duration::ZERO;
            for _ in 0..PERMITS / case.in_flight {
                waited += permit(&limiter, &worker, number.into()).await?;
            }
            anyhow::Ok(waited)
        });
    }
    let mut waited = Duration::ZERO;
    while let Some(caller) = callers.join_next().await {
        waited += caller.context("a caller panicked")??;
    }
    let permits = f64::from(PERMITS / case.in_flight * case.in_flight);
    let cpu_us = cpu_us(connection).await? - before;
    Ok(Turn { cpu_us: cpu_us / permits, wait_us: waited.as_secs_f64() * 1e6 / permits })
}

fn a_worker(case: Case) -> Worker {
    let worker = a_pool().workers()[0].clone();
    let rates = if case.per_minute {
        Rates { requests_per_minute: Some(PLENTY), tokens_per_minute: Some(PLENTY), ..Rates::default() }
    } else {
        Rates::default()
    };
    let account = if case.account {
        AccountLimits { in_flight_max: Some(10_000), rates }
    } else {
        AccountLimits::default()
    };
    Worker { limits: Limits { in_flight_max: 10_000, rates, account, ..worker.limits }, ..worker }
}

/// Takes a permit and settles it. How long it took to come.
async fn permit(limiter: &RedisLimiter, worker: &Worker, number: u128) -> Result<Duration> {
    let caller = Caller { tier: Tier::Mini, ..Caller::new(number).taking(100, 500) };
    let began = Instant::now();
    loop {
        match limiter.acquire(&caller.request(worker)).await? {
            Grant::Permit(permit) => {
                let waited = began.elapsed();
                let usage = Usage { prompt_tokens: 90, completion_tokens: 200, ..Usage::default() };
                let first_token = Some(Duration::from_millis(300));
                let answered = Settlement::of(Outcome::Answered);
                permit.settle(Settlement { usage: Some(usage), first_token, ..answered });
                return Ok(waited);
            }
            Grant::AskAgain { after, .. } => SystemClock.sleep(after).await,
        }
    }
}

/// CPU time of the server so far.
async fn cpu_us(connection: &mut redis::aio::MultiplexedConnection) -> Result<f64> {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(connection).await?;
    let times = ["used_cpu_sys:", "used_cpu_user:"].map(|name| {
        let seconds =
            info.lines().find_map(|line| line.strip_prefix(name)).context("INFO has no CPU time")?;
        Ok::<f64, anyhow::Error>(seconds.trim().parse::<f64>()? * 1e6)
    });
    let [system, user] = times;
    Ok(system? + user?)
}

fn median(seen: impl Iterator<Item = f64>) -> f64 {
    let mut seen: Vec<f64> = seen.collect();
    seen.sort_by(f64::total_cmp);
    (seen[seen.len() / 2] * 10.0).round() / 10.0
}
