//! Tests the real processes of a cluster: races, graceful stops, unreachable servers, and kills of everything under load.

#[cfg(test)]
mod budgets;
#[cfg(test)]
mod cells;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod client;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod compose;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod fan_in;
#[cfg(all(test, feature = "llama"))]
mod gpu;
#[cfg(test)]
mod graceful_stop;
#[cfg(test)]
mod http;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod load;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod nats_unreachable;
#[cfg(test)]
mod one_call;
#[cfg(test)]
mod one_run;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod pool_change;
#[cfg(test)]
mod readiness;
#[cfg(test)]
mod redis_unreachable;
#[cfg(test)]
mod restored;
#[cfg(test)]
mod script;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod shared_account;
#[cfg(test)]
mod texts;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod two_conductors;
#[cfg(test)]
mod versions;
#[cfg(test)]
mod workflow;

use std::path::Path;
use std::time::Duration;

use podium_local_cluster::{Cluster, Shape};

/// Lets time pass: these tests observe real processes from outside, and cannot wait for everything that they do.
#[expect(clippy::disallowed_methods, reason = "the moment of a fault is a time, not a value to wait for")]
async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Polls until there is an answer.
#[cfg(test)]
async fn until<T>(what: &str, wait_max: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    const ASK_EVERY: Duration = Duration::from_millis(20);
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            pause(ASK_EVERY).await;
        }
    };
    let answer = tokio::time::timeout(wait_max, asking).await;
    answer.unwrap_or_else(|_| panic!("not within {wait_max:?}: {what}"))
}

#[cfg(test)]
async fn start(shape: &Shape) -> Cluster {
    Cluster::start(Path::new(env!("CARGO_BIN_EXE_podium-local-cluster")), shape).await.unwrap()
}
