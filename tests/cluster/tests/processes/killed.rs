//! The permits of a killed executor are free again once its leases expire.

use std::time::{Duration, Instant};

use podium_local_cluster::Shape;
use podium_vendor_sim::{Behaviour, Fault, Milliseconds, ScriptedFault};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::workflow::{BRANCHES, diamond, wrong};

/// Longer than leases and a start of an executor take on a busy machine, but less than 25 s, after which any permit expires.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(18);
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_executors_permit_is_soon_free() {
    let (conductor, _workflow) = diamond();
    // One call at a time: the repeated call needs the permit of the first one.
    let shape = Shape { calls_max: Some(1), ..Shape::new(1, 1, 2, conductor) };
    let mut cluster = crate::start(&shape).await;
    let hangs = ScriptedFault { fault: Fault::Hang, next_calls: 1, probability: 0.0 };
    let behaviour = Behaviour {
        first_token_ms: Milliseconds { min: 1, max: 1 },
        faults: vec![hangs],
        ..Behaviour::default()
    };
    cluster.workers.set_behaviour(BRANCHES, behaviour).unwrap();
    let client = Client::new(vec![cluster.gateways[0].address(1)], 7);
    let mut asked = JoinSet::new();
    asked.spawn(client.ask());
    let calls = async |count: usize| {
        let there = async || (cluster.workers.calls().len() >= count).then_some(());
        crate::until("the workers are called", PATIENCE, there).await;
    };
    calls(1).await;
    for executor in &mut cluster.executors {
        executor.kill().await.unwrap();
    }
    let killed_at = Instant::now();
    for executor in &mut cluster.executors {
        executor.start_again().await.unwrap();
    }
    calls(2).await;
    let took = killed_at.elapsed();
    assert!(took < TAKEN_OVER_WITHIN, "the next call began after {took:?}");
    let answer = asked.join_next().await.unwrap().unwrap().answer.unwrap();
    assert_eq!(wrong(7, &answer), None);
    cluster.stop().await.unwrap();
}
