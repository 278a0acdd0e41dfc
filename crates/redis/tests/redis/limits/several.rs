//! Several servers: the requirements of every limiter, and one server that stops.

use std::sync::Arc;

use podium_domain::ids::{VendorId, WorkerId};
use podium_domain::pool::Worker;
use podium_harness::Redis;
use podium_ports::limiter::{Grant, Limiter as _};
use podium_redis::limits::{Server, SeveralRedisLimiters, State};
use podium_testkit::TestClock;
use podium_testkit::limiter::{Caller, LimiterFixture};

use super::support::{Onlooker, Process, a_worker, options};

/// Two servers.
struct Pair {
    servers: [Redis; 2],
}

impl Pair {
    async fn start() -> Self {
        Self { servers: [Redis::start().await.unwrap(), Redis::start().await.unwrap()] }
    }

    /// A process that shares its limits on both.
    async fn process(&self, number: u128) -> ([Process; 2], SeveralRedisLimiters) {
        let [first, second] = &self.servers;
        let processes =
            [Process::start(number, first, options()).await, Process::start(number, second, options()).await];
        let limiter = limiter(&processes, ["a:6379", "b:6379"]);
        (processes, limiter)
    }
}

fn limiter(processes: &[Process; 2], names: [&str; 2]) -> SeveralRedisLimiters {
    let server =
        |index: usize| Server { name: names[index].to_owned(), limiter: processes[index].limiter.clone() };
    SeveralRedisLimiters::new(server(0), [server(1)])
}

/// A worker with one concurrent call, of a vendor that is counted on that server.
fn worker_on(limiter: &SeveralRedisLimiters, server: &str) -> Worker {
    let vendors = (0..100).map(|number| VendorId::new(format!("vendor-{number}")).unwrap());
    let vendor = { vendors }.find(|vendor| limiter.server_of(vendor).name == server).unwrap();
    Worker { id: WorkerId::new(format!("on-{server}")).unwrap(), vendor, ..a_worker(1) }
}

async fn is_granted(limiter: &SeveralRedisLimiters, worker: &Worker) -> bool {
    matches!(limiter.acquire(&Caller::new(0).request(worker)).await.unwrap(), Grant::Permit(_))
}

async fn fixture() -> LimiterFixture {
    let pair = Pair::start().await;
    let (first, first_limiter) = pair.process(1).await;
    let (second, second_limiter) = pair.process(2).await;
    LimiterFixture {
        first: Arc::new(first_limiter),
        second: Arc::new(second_limiter),
        clock: Arc::new(TestClock::new()),
        ask_again_max: options().ask_again_max,
        keep: Box::new((first, second, pair.servers)),
    }
}

mod conformance {
    use super::fixture;

    podium_testkit::limiter_suite! { #[tokio::test(flavor = "multi_thread")] fixture() }
}

#[tokio::test]
async fn a_server_that_is_unreachable_concerns_its_own_vendors_only() {
    let mut pair = Pair::start().await;
    let (first, first_limiter) = pair.process(1).await;
    let (_second, second_limiter) = pair.process(2).await;
    let on_a = worker_on(&first_limiter, "a:6379");
    let on_b = worker_on(&first_limiter, "b:6379");
    pair.servers[0].kill().await;
    assert!(!is_granted(&first_limiter, &on_a).await, "without its server the process holds calls");
    first[0].wait_for(State::Holding).await;
    assert_eq!(first_limiter.server_of(&on_b.vendor).limiter.state(), State::Shared);

    // The limit of the other server's vendor still holds over both processes.
    let held = first_limiter.acquire(&Caller::new(0).request(&on_b)).await.unwrap();
    assert!(matches!(held, Grant::Permit(_)));
    assert!(!is_granted(&second_limiter, &on_b).await);

    pair.servers[0].start_again().await.unwrap();
    first[0].wait_for(State::Shared).await;
    assert!(is_granted(&first_limiter, &on_a).await);
}

#[tokio::test]
async fn a_vendor_has_the_same_server_in_any_order() {
    let pair = Pair::start().await;
    let (processes, limiter_ab) = pair.process(1).await;
    let limiter_ba = limiter(&processes, ["b:6379", "a:6379"]);
    for number in 0..200 {
        let vendor = VendorId::new(format!("vendor-{number}")).unwrap();
        assert_eq!(limiter_ab.server_of(&vendor).name, limiter_ba.server_of(&vendor).name);
    }
    // The other server has no data of the vendor.
    let worker = worker_on(&limiter_ab, "a:6379");
    let _held = limiter_ab.acquire(&Caller::new(0).request(&worker)).await.unwrap();
    let key = format!("EXISTS podium:limits:{{{}}}:{}:calls", worker.vendor, worker.id);
    let on = async |server| Onlooker::of(server).await.say::<u32>(&key).await;
    assert_eq!([on(&pair.servers[0]).await, on(&pair.servers[1]).await], [1, 0]);
}
