//! Looking after what a process stands on: keeps its clock with the database's, and measures how far the machine's own clock is
//! from it and what answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

use crate::postgres::Store;

/// How often the database's clock is read, and it is looked what answers.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a look waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Readings before a process works: the fastest answer counts.
const FIRST_READINGS: u32 = 5;

/// What answered last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    postgres: Arc<AtomicBool>,
    nats: Arc<AtomicBool>,
}

/// A clock that shows the database's time. For a process that does not work while its wall clock is off by more than
/// `skew_max`.
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

/// Looks until `stop`.
pub(crate) async fn look_after(
    (store, queue): (Store, Arc<NatsQueue>),
    clock: AnchoredClock,
    answers: Answers,
    stop: CancellationToken,
) {
    let mut said = Said::Right;
    loop {
        said = said.say(&clock);
        let (postgres, nats) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            found = answering(&store, &queue, &clock) => found,
        };
        answers.postgres.store(postgres, Ordering::Relaxed);
        answers.nats.store(nats, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.sleep(LOOK_EVERY) => {}
        }
    }
}

async fn answering(store: &Store, queue: &NatsQueue, clock: &AnchoredClock) -> (bool, bool) {
    let (postgres, nats) =
        tokio::join!(timeout(ANSWER_MAX, read(store, clock)), timeout(ANSWER_MAX, queue.ping()));
    (matches!(postgres, Ok(Ok(()))), matches!(nats, Ok(Ok(()))))
}

/// What the log says of the wall clock. It is said again when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Right,
    Off,
    TooFar,
}

impl Said {
    fn say(self, clock: &AnchoredClock) -> Self {
        let Some(skew) = clock.skew() else { return self };
        let now = match (skew.is_excessive(), skew.is_notable()) {
            (true, _) => Self::TooFar,
            (false, true) => Self::Off,
            (false, false) => Self::Right,
        };
        if now != self {
            let max_ms = skew.max.as_millis();
            match now {
                Self::TooFar => warn!(
                    "{skew}, more than clock_skew_ms_max allows ({max_ms} ms): this process takes no work until the clock is \
                     set"
                ),
                Self::Off => warn!("{skew}: set it, by NTP; the database's time is used instead"),
                Self::Right => info!("{skew}: near enough"),
            }
        }
        now
    }
}

/// Shows the skew, and what answered last, as metrics.
pub(crate) fn observe(clock: &AnchoredClock, answers: &Answers, limiter: Option<&SeveralRedisLimiters>) {
    let meter = global::meter("podium.cluster");
    let clock = clock.clone();
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
    let (answers, limiter) = (answers.clone(), limiter.cloned());
    let _ = meter
        .u64_observable_gauge("podium.dependency.up")
        .with_unit("{dependency}")
        .with_description("1 while what the process stands on answers")
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
    async fn the_metrics_show_what_answers_and_the_clock_is_the_databases() {
        let meters = Meters::start();
        let postgres = Postgres::start_with(Fsync::Off).await.unwrap();
        let address = postgres.database().await.unwrap();
        let store = Store::open(&address, podium_store_postgres::Options::default()).await.unwrap();
        let mut nats = Nats::start().await.unwrap();
        let connection = ConnectionOptions { at_start: AtStart::Retry, ..ConnectionOptions::new(nats.url()) };
        let queue = Arc::new(NatsQueue::connect(&connection, QueueOptions::default()).await.unwrap());
        let clock = clock_of(&store, Duration::from_secs(30)).await.unwrap();
        let answers = Answers::default();
        observe(&clock, &answers, None);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(look_after((store, queue), clock.clone(), answers, stop.clone()));
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
        // The same machine.
        assert!(clock.skew().unwrap().ahead_ms.abs() < 100);
        assert_described(PAGE, "A process of a cluster", &meters.read());
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
