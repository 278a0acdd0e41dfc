//! Monitors the connections: keeps the process's clock with the database's, measures how far the machine's own clock is off, and
//! which servers answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::metrics::Meter;
use opentelemetry::{KeyValue, global};
use podium_ports::clock::Clock as _;
use podium_ports::queue::StepQueue as _;
use podium_ports::store::StoreError;
use podium_queue_nats::NatsQueue;
use podium_redis::limits::{Server, SeveralRedisLimiters, State as LimiterState};
use podium_setup::AnchoredClock;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::open_store::Store;

/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Most time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Readings of the clock before a process works. The fastest answer counts.
const FIRST_READINGS: u32 = 5;

/// Checks the servers of a process.
pub(crate) struct Monitor {
    store: Store,
    queue: Arc<NatsQueue>,
    clock: AnchoredClock,
    answers: Answers,
}

/// Which servers answered the last check.
#[derive(Clone, Debug, Default)]
struct Answers {
    postgres: Arc<AtomicBool>,
    nats: Arc<AtomicBool>,
}

/// A clock that shows the database's time, for a process that does not work while its wall clock is off by more than `skew_max`.
pub(crate) async fn clock_of(store: &Store, skew_max: Duration) -> Result<AnchoredClock, StoreError> {
    let clock = AnchoredClock::new(skew_max);
    for _ in 0..FIRST_READINGS {
        read(store, &clock).await?;
    }
    Ok(clock)
}

async fn read(store: &Store, clock: &AnchoredClock) -> Result<(), StoreError> {
    let reading = store.read_clock().await?;
    clock.note(reading.asked_at, reading.answered_at, reading.shown);
    Ok(())
}

impl Monitor {
    pub(crate) fn new(store: Store, queue: Arc<NatsQueue>, clock: AnchoredClock) -> Self {
        Self { store, queue, clock, answers: Answers::default() }
    }

    /// Checks until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut logged = Skew::Small;
        loop {
            logged = logged.log_change(&self.clock);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.check() => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.clock.sleep(CHECK_EVERY) => {}
            }
        }
    }

    async fn check(&self) {
        let (postgres, nats) = tokio::join!(
            timeout(ANSWER_MAX, read(&self.store, &self.clock)),
            timeout(ANSWER_MAX, self.queue.ping())
        );
        self.answers.postgres.store(matches!(postgres, Ok(Ok(()))), Ordering::Relaxed);
        self.answers.nats.store(matches!(nats, Ok(Ok(()))), Ordering::Relaxed);
    }

    /// Publishes the skew and the last answers as metrics.
    pub(crate) fn observe(&self, limiter: Option<&SeveralRedisLimiters>) {
        let meter = global::meter("podium.cluster");
        observe_skew(&meter, self.clock.clone());
        observe_connections(&meter, self.store.clone());
        let (answers, limiter) = (self.answers.clone(), limiter.cloned());
        let _ = meter
            .u64_observable_gauge("podium.dependency.up")
            .with_unit("{dependency}")
            .with_description("1 while the server answers")
            .with_callback(move |observer| {
                let show =
                    |name, up| observer.observe(u64::from(up), &[KeyValue::new("podium.dependency", name)]);
                show("postgres", answers.postgres.load(Ordering::Relaxed));
                show("nats", answers.nats.load(Ordering::Relaxed));
                if let Some(limiter) = &limiter {
                    let is_up = |server: &Server| server.limiter.state() == LimiterState::Shared;
                    show("redis", limiter.servers().iter().all(is_up));
                }
            })
            .build();
    }
}

fn observe_connections(meter: &Meter, store: Store) {
    let _ = meter
        .u64_observable_gauge("podium.postgres.connections")
        .with_unit("{connection}")
        .with_description("Connections to Postgres that this process may have")
        .with_callback(move |observer| {
            let (in_use, free) = store.connections_in_use_and_free();
            for (state, count) in [("in_use", in_use), ("free", free)] {
                observer.observe(count as u64, &[KeyValue::new("podium.state", state)]);
            }
        })
        .build();
}

fn observe_skew(meter: &Meter, clock: AnchoredClock) {
    let _ = meter
        .i64_observable_gauge("podium.clock.skew")
        .with_unit("ms")
        .with_description("How far the machine's wall clock is ahead of the database's")
        .with_callback(move |observer| {
            if let Some(skew) = clock.skew() {
                observer.observe(skew.ahead_ms, &[]);
            }
        })
        .build();
}

/// The skew of the wall clock that was logged last. A change is logged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skew {
    Small,
    Notable,
    Excessive,
}

impl Skew {
    fn log_change(self, clock: &AnchoredClock) -> Self {
        let Some(skew) = clock.skew() else { return self };
        let now = match (skew.is_excessive(), skew.is_notable()) {
            (true, _) => Self::Excessive,
            (false, true) => Self::Notable,
            (false, false) => Self::Small,
        };
        if now != self {
            let max_ms = skew.max.as_millis();
            match now {
                Self::Excessive => warn!(
                    "{skew}, more than clock_skew_ms_max allows ({max_ms} ms): this process takes no work until the clock is \
                     set"
                ),
                Self::Notable => warn!("{skew}: set it, by NTP; the database's time is used instead"),
                Self::Small => info!("{skew}: near enough"),
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use podium_harness::{Fsync, Nats, Postgres};
    use podium_queue_nats::{AtStart, ConnectionOptions, QueueOptions};
    use podium_setup::SystemClock;
    use podium_testkit::metrics::{Meters, assert_described};
    use tokio_util::task::TaskTracker;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    #[tokio::test]
    async fn the_metrics_show_which_servers_answer_and_the_databases_clock() {
        let meters = Meters::start();
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, podium_store_postgres::Options::default()).await.unwrap();
        let mut nats = Nats::start().await.unwrap();
        let connection = ConnectionOptions { at_start: AtStart::Retry, ..ConnectionOptions::new(nats.url()) };
        let queue = Arc::new(NatsQueue::connect(&connection, QueueOptions::default()).await.unwrap());
        let clock = clock_of(&store, Duration::from_secs(30)).await.unwrap();
        let monitor = Monitor::new(store, queue, clock.clone());
        monitor.observe(None);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(monitor.run(stop.clone()));
        let seen = || {
            let up = &meters.read()["podium.dependency.up"];
            ["postgres", "nats"].map(|name| up.value(&format!("podium.dependency={name}")))
        };
        let until = async |wanted: [u64; 2]| {
            while seen() != wanted {
                SystemClock.sleep(Duration::from_millis(20)).await;
            }
        };
        until([1, 1]).await;
        nats.kill().await;
        until([1, 0]).await;
        nats.start_again().await.unwrap();
        until([1, 1]).await;
        let connections = meters.read()["podium.postgres.connections"].total();
        assert_eq!(connections, u64::from(podium_store_postgres::Options::default().connections_max));
        // The same machine.
        assert!(clock.skew().unwrap().ahead_ms.abs() < 100);
        assert_described(PAGE, "A process of a cluster", &meters.read());
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
