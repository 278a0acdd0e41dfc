//! Two executors end two branches at the same instant. The step that waits for both runs once.

use podium_local_cluster::Shape;
use podium_vendor_sim::{Behaviour, Call, Milliseconds, Options};

use crate::client::Client;
use crate::workflow::{BRANCHES, STEPS, diamond, joins, wrong};

const RUNS: u64 = 60;
/// The simulator's tick: both branches are called within one and end with it.
const TICK_MS: u64 = 250;
/// The duration of a branch: long enough for the other executor to claim the other one.
const BEGINS: Milliseconds = Milliseconds::fixed(60);
/// The "same instant" for the simulator: it sends both answers within this time.
const INSTANT_MS: u64 = 3;

/// One slot each, so that the two executors have one branch each.
fn overlap(branches: &[Call]) -> bool {
    let [one, two] = branches else { return false };
    Some(one.at_ms) < two.ended_at_ms && Some(two.at_ms) < one.ended_at_ms
}

fn end_together(branches: &[Call]) -> bool {
    let [one, two] = branches else { return false };
    let ends = one.ended_at_ms.zip(two.ended_at_ms);
    overlap(branches) && ends.is_some_and(|(one, two)| one.abs_diff(two) <= INSTANT_MS)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_runs_once_if_its_branches_end_at_the_same_instant() {
    let (conductor, _workflow) = diamond();
    let shape = Shape {
        settings: vec![("step_slots", "1".to_owned())],
        workers: Options { generalist_accuracy: 1.0, ..Options::loopback(7) },
        ..Shape::new(1, 1, 2, conductor)
    };
    let cluster = crate::start(&shape).await;
    let on_a_tick =
        Behaviour { first_token_ms: BEGINS, first_token_tick_ms: TICK_MS, ..Behaviour::default() };
    cluster.workers.set_behaviour(BRANCHES, on_a_tick).unwrap();
    let gateways = vec![cluster.gateways[0].address(1)];
    let mut together = 0;
    for number in 1..=RUNS {
        let before = cluster.workers.calls().len();
        let ended = Client::new(gateways.clone(), number).ask().await;
        assert_eq!(wrong(number, &ended.answer.unwrap()), None);
        assert_eq!(ended.faults, Vec::<String>::new());
        let calls = cluster.workers.calls().split_off(before);
        assert_eq!((joins(&calls), calls.len()), (1, STEPS), "run {number}: {calls:#?}");
        let branches: Vec<_> = calls.into_iter().filter(|call| call.model == BRANCHES).collect();
        together += u64::from(end_together(&branches));
    }
    eprintln!("{together} of {RUNS} runs had both branches end within {INSTANT_MS} ms in two executors");
    assert!(together >= RUNS / 2, "too few to prove anything");
    // A second call would follow the expiry of a lease or a message. The store shows that neither is left.
    assert_eq!(joins(&cluster.workers.calls()) as u64, RUNS);
    cluster.stop().await.unwrap();
}
