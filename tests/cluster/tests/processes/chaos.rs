//! Every process and server dies under load. No accepted run may be lost, no answer may be wrong, and no client may see a fault. The
//! report measures repeated calls and recovery times. A quarter of the clients offer a tool, so their runs are suspended and continue
//! with its results.
//!
//! `CHAOS_ROUNDS` (1): the number of times that each kind of fault happens with time to recover; from the second round on, each
//! also happens once more without that time. `CHAOS_CLIENTS` (100): concurrent runs. `CHAOS_SEED` (7): decides order and times.
//! `CHAOS_ONLY` (empty): only the kinds of fault whose names, as in the report, contain one of these texts, separated by commas.
//! `CHAOS_REDIS_AWAY_S` (5), `CHAOS_NATS_AWAY_S` (3): seconds for which Redis and NATS are unreachable. `CHAOS_POSTGRES_SLOW_S` (3):
//! seconds for which each answer of Postgres takes 50 ms longer. Filling disks requires root; otherwise the report says so.

mod recovery;
mod report;
mod troubles;

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use podium_harness::small_disks;
use podium_local_cluster::{Disks, Reach, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds, Options};

use crate::load::{Load, Tools};
use crate::workflow::{BRANCHES, JOIN, calling, diamond, with_tools};
use report::Report;
use troubles::{Kind, Plan, Troubles};

/// The duration of the branches: long enough to be killed.
const BRANCH: Milliseconds = Milliseconds { min: 1_000, max: 3_000 };
/// The joining step begins soon and then writes for a while.
const JOIN_BEGINS: Milliseconds = Milliseconds { min: 200, max: 600 };
const JOIN_TOKEN_MS: u64 = 60;
const STAMP_WORDS: u32 = 8;
const LEASE_MS: u64 = 3_000;
/// Connections of each process; all together stay below the limit of Postgres.
const POSTGRES_CONNECTIONS: u64 = 10;

/// The behaviour of each model between faults.
fn behaviours() -> [(&'static str, Behaviour); 2] {
    let branch = Behaviour { first_token_ms: BRANCH, ..calling() };
    let join = Behaviour {
        first_token_ms: JOIN_BEGINS,
        token_ms: JOIN_TOKEN_MS,
        stamp_words: STAMP_WORDS,
        ..Behaviour::default()
    };
    [(BRANCHES, branch), (JOIN, join)]
}

fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The kinds whose names contain one of the texts, which are separated by commas. Each text must be part of a name.
fn chosen(only: &str, possible: &[Kind]) -> Vec<Kind> {
    let texts: Vec<_> = only.split(',').map(str::trim).collect();
    for text in &texts {
        let is_known = Kind::ALL.iter().any(|kind| kind.name().contains(text));
        assert!(is_known, "CHAOS_ONLY: no kind of fault has `{text}` in its name");
    }
    let is_chosen = |kind: &&Kind| texts.iter().any(|text| kind.name().contains(text));
    possible.iter().filter(is_chosen).copied().collect()
}

#[test]
fn faults_are_chosen_by_parts_of_their_names() {
    let possible = Kind::possible(Disks::Machine);
    assert_eq!(chosen("", &possible), possible);
    assert_eq!(chosen("NATS killed, a planner", &possible), [Kind::PlannerKilled, Kind::NatsKilled]);
    // It needs a small disk, and its name is known.
    assert_eq!(chosen("NATS' disk", &possible), []);
}

#[test]
#[should_panic(expected = "CHAOS_ONLY: no kind of fault has `Nats` in its name")]
fn an_unknown_kind_of_fault_is_an_error() {
    chosen("NATS,Nats", &Kind::possible(Disks::Machine));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_lost_or_wrong_while_everything_dies() {
    let cannot = small_disks().err().map(|error| format!("{error:#}"));
    let disks = if cannot.is_none() { Disks::Small } else { Disks::Machine };
    let only: String = setting("CHAOS_ONLY", String::new());
    let plan = Plan {
        kinds: chosen(&only, &Kind::possible(disks)),
        left_out: cannot,
        rounds: setting("CHAOS_ROUNDS", 1),
        seed: setting("CHAOS_SEED", 7),
        redis_away: Duration::from_secs(setting("CHAOS_REDIS_AWAY_S", 5)),
        nats_away: Duration::from_secs(setting("CHAOS_NATS_AWAY_S", 3)),
        postgres_slow: Duration::from_secs(setting("CHAOS_POSTGRES_SLOW_S", 3)),
        frozen: Duration::from_millis(LEASE_MS * 5 / 3),
    };
    let (conductor, _workflow) = diamond();
    let usual = Shape::new(2, 2, 3, conductor);
    let shape = Shape {
        settings: vec![
            ("lease_ms", LEASE_MS.to_string()),
            // Otherwise the planners would have nothing to lose.
            ("plan_at_once", "false".to_owned()),
            ("postgres_connections", POSTGRES_CONNECTIONS.to_string()),
            ("step_slots", "64".to_owned()),
            ("log", "warn".to_owned()),
        ],
        workers: Options { generalist_accuracy: 1.0, ..Options::loopback(plan.seed) },
        calls_max: Some(128),
        postgres: Reach::ByProxy,
        disks,
        pool: with_tools(&usual.pool),
        ..usual
    };
    let cluster = crate::start(&shape).await;
    for (model, behaviour) in behaviours() {
        cluster.workers.set_behaviour(model, behaviour).unwrap();
    }
    let gateways: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(1)).collect();

    let load = Load::start(&gateways, setting("CHAOS_CLIENTS", 100), Tools::Some);
    let mut troubles = Troubles::new(cluster, plan, load.lives().clone());
    troubles.make_all().await.unwrap();
    let lives = load.lives().clone();
    let ended = load.stop().await;
    let (mut cluster, made) = troubles.end();
    let report =
        Report::new(cluster.nats.version(), &ended, &cluster.workers.calls(), &lives.so_far(), &made);
    eprintln!("{report}");
    report.check();
    for service in cluster.services() {
        assert!(service.runs(), "a process ended by itself: {}", service.log_end());
    }
    cluster.stop().await.unwrap();
}
