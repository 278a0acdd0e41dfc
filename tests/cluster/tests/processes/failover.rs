//! Failover of Postgres and NATS when the leader is killed, and a network that drops everything for a while.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use podium_harness::{Fsync, Nats, Postgres, Redis, Wire, nats_cluster};
use podium_local_cluster::{Cluster, Shape};
use podium_vendor_sim::{Behaviour, Milliseconds, Options};

use crate::client::Ended;
use crate::load::{Lives, Load, Tools};
use crate::workflow::{BRANCHES, diamond, wrong};

/// Enough clients that some runs are always under way.
const CLIENTS: usize = 12;
/// The number of runs that must end before a fault, and between two.
pub(crate) const BETWEEN: usize = 2 * CLIENTS;
/// Longest time until runs continue, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
const LEASE_MS: u64 = 3_000;

pub(crate) type Settings = Vec<(&'static str, String)>;

pub(crate) async fn start(mut settings: Settings) -> (Cluster, Load, tempfile::NamedTempFile) {
    let (conductor, workflow) = diamond();
    settings.extend([
        ("lease_ms", LEASE_MS.to_string()),
        ("plan_at_once", "false".to_owned()),
        ("postgres_connections", "8".to_owned()),
        ("log", "warn".to_owned()),
    ]);
    let workers = Options { generalist_accuracy: 1.0, ..Options::loopback(7) };
    let shape = Shape { settings, workers, calls_max: Some(128), ..Shape::new(2, 1, 2, conductor) };
    let cluster = crate::start(&shape).await;
    let behaviour = Behaviour { first_token_ms: Milliseconds { min: 200, max: 600 }, ..Behaviour::default() };
    cluster.workers.set_behaviour(BRANCHES, behaviour).unwrap();
    let gateways: Vec<_> = cluster.gateways.iter().map(|gateway| gateway.address(1)).collect();
    let load = Load::start(&gateways, CLIENTS, Tools::None);
    more_end(load.lives(), BETWEEN).await;
    (cluster, load, workflow)
}

/// The times until the first of several runs has ended, and until all have.
pub(crate) struct EndTimes {
    first: Duration,
    all: Duration,
}

/// Waits until `count` more runs have ended.
pub(crate) async fn more_end(lives: &Lives, count: usize) -> EndTimes {
    let (start, before) = (Instant::now(), lives.so_far().len());
    let ended = async |count| {
        let ended = async || (lives.so_far().len() >= before + count).then_some(());
        crate::until("runs end", PATIENCE, ended).await;
        start.elapsed()
    };
    EndTimes { first: ended(1).await, all: ended(count).await }
}

/// Checks that every submitted run has ended once with its answer, and that every process is alive.
pub(crate) async fn all_is_well(mut cluster: Cluster, load: Load) {
    let ended = load.stop().await;
    let slowest = ended.iter().map(|run| run.answered_at - run.asked_at).max().unwrap_or_default();
    let lost: Vec<_> = ended.iter().filter(|run| run.answer.is_none()).map(|run| run.number).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let wrong: Vec<_> = ended.iter().filter_map(|run| wrong(run.number, run.answer.as_ref()?)).collect();
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
    let faults: Vec<_> = ended.iter().flat_map(|run: &Ended| &run.faults).collect();
    assert!(faults.is_empty(), "clients saw faults: {faults:#?}");
    let ids: BTreeSet<_> = ended.iter().map(|run| &run.run_id).collect();
    assert_eq!(ids.len(), ended.len(), "two requests share a run");
    for service in cluster.services() {
        assert!(service.runs(), "a process ended by itself: {}", service.log_end());
    }
    eprintln!("{} runs, none lost, none wrong; {:.1} s for the slowest", ended.len(), slowest.as_secs_f64());
    cluster.stop().await.unwrap();
}

pub(crate) fn seconds(EndTimes { first, all }: EndTimes) -> String {
    format!(
        "some run ended {:.1} s later, {BETWEEN} had {:.1} s later",
        first.as_secs_f64(),
        all.as_secs_f64()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_standby_takes_over_without_losing_a_run() {
    let mut first = Postgres::start_with(Fsync::On).await.unwrap();
    let database = first.database().await.unwrap();
    let second = first.start_standby().await.unwrap();
    // Gateways and planners have one address, which moves; executors have the addresses of both servers.
    let wire = Wire::start(first.address()).await.unwrap();
    let at = |place: String| database.replace(&first.address().to_string(), &place);
    let both = at(format!("{},{}", first.address(), second.address()));
    let (mut cluster, load, _workflow) = start(vec![("postgres", at(wire.address().to_string()))]).await;
    for executor in &mut cluster.executors {
        executor.add_arguments(["--set".to_owned(), format!("postgres={both}")]);
        executor.start_again().await.unwrap();
    }
    more_end(load.lives(), BETWEEN).await;

    first.kill().await.unwrap();
    second.promote().await.unwrap();
    wire.lead_to(second.address());
    eprintln!("Postgres killed, its standby promoted: {}", seconds(more_end(load.lives(), BETWEEN).await));

    // The old leader restarts as a follower. Processes whose address leads to it cannot write until it leads back.
    first.follow(&second).await.unwrap();
    wire.lead_to(first.address());
    for gateway in &mut cluster.gateways {
        gateway.start_unready().await.unwrap();
        // A starting process has no store yet, so it reports that and ends.
        assert_eq!(gateway.ended().await.unwrap(), 1);
        assert!(gateway.log_end().contains("is a standby and takes no writes"), "{}", gateway.log_end());
    }
    wire.lead_to(second.address());
    for gateway in &mut cluster.gateways {
        gateway.start_again().await.unwrap();
    }
    eprintln!("led to a follower and back: {}", seconds(more_end(load.lives(), BETWEEN).await));

    // The same in the other direction, once the follower has all data.
    let mut second = second;
    second.kill().await.unwrap();
    first.promote().await.unwrap();
    wire.lead_to(first.address());
    eprintln!("and back to the old one: {}", seconds(more_end(load.lives(), BETWEEN).await));
    all_is_well(cluster, load).await;
}

/// The index of the server that leads one of the streams.
async fn leader(servers: &[Nats], but: Option<usize>) -> usize {
    let up: Vec<_> = servers.iter().enumerate().filter(|(index, _)| Some(*index) != but).collect();
    let found = async || {
        for (_, server) in &up {
            let Ok(client) = async_nats::connect(server.url()).await else { continue };
            let context = async_nats::jetstream::new(client);
            let mut streams = context.streams();
            while let Some(Ok(stream)) = futures::StreamExt::next(&mut streams).await {
                let name = stream.cluster.and_then(|cluster| cluster.leader);
                let number = name.and_then(|name| name.strip_prefix("nats-")?.parse::<usize>().ok());
                if let Some(number) = number.filter(|number| Some(number - 1) != but) {
                    return Some(number - 1);
                }
            }
        }
        None
    };
    crate::until("a stream has a leader", PATIENCE, found).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_continue_when_the_leader_of_a_stream_is_killed() {
    let mut servers = nats_cluster(3).await.unwrap();
    let urls: Vec<_> = servers.iter().map(Nats::url).collect();
    let settings = vec![("nats", urls.join(",")), ("nats_replicas", "3".to_owned())];
    let (cluster, load, _workflow) = start(settings).await;
    let leads = leader(&servers, None).await;
    let client = async_nats::connect(servers[leads].url()).await.unwrap();
    let mut streams = async_nats::jetstream::new(client).streams();
    while let Some(stream) = futures::StreamExt::next(&mut streams).await {
        assert_eq!(stream.unwrap().config.num_replicas, 3);
    }
    servers[leads].kill().await;
    eprintln!(
        "nats-server {}, the leader of a stream killed: {}",
        servers[leads].version(),
        seconds(more_end(load.lives(), BETWEEN).await)
    );
    servers[leads].start_again().await.unwrap();
    let next = leader(&servers, Some(leads)).await;
    servers[next].start_again().await.unwrap();
    eprintln!("the next one killed and started again: {}", seconds(more_end(load.lives(), BETWEEN).await));
    all_is_well(cluster, load).await;
}

/// How long the network holds everything.
fn held() -> Duration {
    let seconds = std::env::var("CHAOS_HELD_S").ok();
    Duration::from_secs(seconds.map_or(3, |seconds| seconds.parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_continue_after_a_network_dropped_everything() {
    let postgres = Postgres::start().await.unwrap();
    let database = postgres.database().await.unwrap();
    let (nats, redis) = (Nats::start().await.unwrap(), Redis::start().await.unwrap());
    let wire = async |to: SocketAddr| Wire::start(to).await.unwrap();
    let wires = [
        ("Postgres", wire(postgres.address()).await),
        ("NATS", wire(nats.address()).await),
        ("Redis", wire(redis.address()).await),
    ];
    let at = |index: usize| wires[index].1.address().to_string();
    let settings = vec![
        ("postgres", database.replace(&postgres.address().to_string(), &at(0))),
        ("nats", format!("nats://{}", at(1))),
        ("redis", format!("redis://{}", at(2))),
    ];
    let (cluster, load, _workflow) = start(settings).await;
    for (name, wire) in &wires {
        wire.hold();
        crate::pause(held()).await;
        wire.release();
        eprintln!("{name} unreachable for {:?}: {}", held(), seconds(more_end(load.lives(), BETWEEN).await));
    }
    all_is_well(cluster, load).await;
}
