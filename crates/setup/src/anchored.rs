//! A clock that follows a reference such as a cluster's database, instead of the machine's wall clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::time::Timestamp;
use podium_ports::clock::{Clock, Skew};
use tokio::time::Instant;

use crate::SystemClock;

/// Assumed maximal drift of an oscillator: 1 / 5000, or 200 parts per million.
const DRIFT_PART: u32 = 5_000;

/// Adds the machine's monotonic time to the last reading of the reference. Steps of the wall clock and pauses of the process
/// have no effect. It never goes backwards: while it is ahead of its reference it runs at half speed.
///
/// Before the first [reading](Self::note) it shows the wall clock's time. Clones share their state.
#[derive(Clone)]
pub struct AnchoredClock {
    state: Arc<Mutex<State>>,
    wall: Arc<dyn Clock>,
    skew_max: Duration,
}

#[derive(Clone, Copy)]
struct State {
    /// The reference's time by the best reading.
    anchor: Reading,
    /// The last shown time.
    shown: Point,
}

/// A time since the Unix epoch, and the process's instant at that time.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    time: Duration,
}

/// The time of the reference, with the given maximal error.
#[derive(Clone, Copy, Debug)]
struct Reading {
    point: Point,
    error: Duration,
}

impl Point {
    fn at(self, at: Instant) -> Duration {
        self.time + at.saturating_duration_since(self.at)
    }
}

impl Reading {
    /// The maximal error at a later instant.
    fn error_at(self, at: Instant) -> Duration {
        self.error.saturating_add(at.saturating_duration_since(self.point.at) / DRIFT_PART)
    }
}

impl State {
    fn now(&mut self, at: Instant) -> Duration {
        let time = self.anchor.point.at(at);
        let gone = at.saturating_duration_since(self.shown.at);
        let time = if time >= self.shown.time { time } else { time.max(self.shown.time + gone / 2) };
        self.shown = Point { at: at.max(self.shown.at), time };
        time
    }

    /// Adopts a reading that is more precise, or one that contradicts the current one: then the reference was set or replaced.
    fn note(&mut self, reading: Reading) {
        let at = reading.point.at;
        if self.anchor.error == Duration::MAX {
            // The wall clock's time, shown before the first reading, does not limit the new time.
            self.shown = Point { at, time: Duration::ZERO };
        }
        let error = self.anchor.error_at(at);
        let apart = self.anchor.point.at(at).abs_diff(reading.point.time);
        if reading.error <= error || apart > error.saturating_add(reading.error) {
            self.anchor = reading;
        }
    }
}

impl AnchoredClock {
    /// Creates a clock for a process that stops working while its wall clock is off by more than `skew_max`.
    pub fn new(skew_max: Duration) -> Self {
        Self::with_wall_clock(Arc::new(SystemClock), skew_max)
    }

    fn with_wall_clock(wall: Arc<dyn Clock>, skew_max: Duration) -> Self {
        let point = Point { at: Instant::now(), time: Duration::from_millis(wall.now().unix_ms()) };
        // Any reading is better than this one.
        let anchor = Reading { point, error: Duration::MAX };
        Self {
            state: Arc::new(Mutex::new(State {
                anchor,
                shown: Point { at: point.at, time: Duration::ZERO },
            })),
            wall,
            skew_max,
        }
    }

    /// Records that the reference showed `shown` (since the Unix epoch) at some moment between the two instants.
    pub fn note(&self, asked_at: Instant, answered_at: Instant, shown: Duration) {
        let error = answered_at.saturating_duration_since(asked_at) / 2;
        let reading = Reading { point: Point { at: asked_at + error, time: shown }, error };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).note(reading);
    }
}

#[async_trait]
impl Clock for AnchoredClock {
    fn now(&self) -> Timestamp {
        let time = self.state.lock().unwrap_or_else(PoisonError::into_inner).now(Instant::now());
        Timestamp::from_unix_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    async fn sleep(&self, span: Duration) {
        SystemClock.sleep(span).await;
    }

    fn skew(&self) -> Option<Skew> {
        let (wall, now) = (self.wall.now().unix_ms(), self.now().unix_ms());
        let ahead_ms = i64::try_from(i128::from(wall) - i128::from(now)).unwrap_or(i64::MAX);
        Some(Skew { ahead_ms, max: self.skew_max })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MAX: Duration = Duration::from_secs(30);
    const HOUR_MS: u64 = 3_600_000;

    /// A wall clock that tests set.
    #[derive(Default)]
    struct Wall(AtomicU64);

    #[async_trait]
    impl Clock for Wall {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
        }

        async fn sleep(&self, _: Duration) {}
    }

    fn a_clock(wall_ms: u64) -> (AnchoredClock, Arc<Wall>) {
        let wall = Arc::new(Wall(wall_ms.into()));
        (AnchoredClock::with_wall_clock(wall.clone(), MAX), wall)
    }

    /// Reads the reference without delay.
    fn read(clock: &AnchoredClock, shown_ms: u64) {
        let now = Instant::now();
        clock.note(now, now, Duration::from_millis(shown_ms));
    }

    async fn pass(ms: u64) {
        tokio::time::advance(Duration::from_millis(ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_wrong_or_set_has_no_effect() {
        let (clock, wall) = a_clock(40 * 24 * HOUR_MS);
        read(&clock, HOUR_MS);
        assert_eq!(clock.now().unix_ms(), HOUR_MS);
        pass(1_000).await;
        wall.0.store(0, Ordering::SeqCst);
        assert_eq!(clock.now().unix_ms(), HOUR_MS + 1_000);
        wall.0.store(HOUR_MS, Ordering::SeqCst);
        assert_eq!(clock.skew().unwrap().ahead_ms, -1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_ahead_runs_at_half_speed_and_never_back() {
        let (clock, _) = a_clock(0);
        read(&clock, HOUR_MS);
        pass(10).await;
        assert_eq!(clock.now().unix_ms(), HOUR_MS + 10);
        // The database server's clock was set back by 90 ms.
        read(&clock, HOUR_MS - 90);
        let mut last = clock.now();
        for _ in 0..10 {
            pass(10).await;
            assert_eq!(clock.now().since(last), Duration::from_millis(5));
            last = clock.now();
        }
        pass(100).await;
        assert_eq!(clock.now().unix_ms(), HOUR_MS + 110, "the reference has caught up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_counts_only_if_it_contradicts() {
        let (clock, _) = a_clock(0);
        read(&clock, HOUR_MS);
        let asked_at = Instant::now();
        pass(1_000).await;
        // The answer took a second on its way back, so half of that is a wrong offset.
        clock.note(asked_at, Instant::now(), Duration::from_millis(HOUR_MS));
        assert_eq!(clock.now().unix_ms(), HOUR_MS + 1_000);
        let asked_at = Instant::now();
        pass(1_000).await;
        clock.note(asked_at, Instant::now(), Duration::from_millis(2 * HOUR_MS));
        assert_eq!(clock.now().unix_ms(), 2 * HOUR_MS + 500, "another server answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_skew_is_excessive_beyond_the_bound_on_both_sides() {
        let (clock, wall) = a_clock(0);
        read(&clock, HOUR_MS);
        for (wall_ms, is_notable, is_excessive) in [
            (HOUR_MS, false, false),
            (HOUR_MS + 1_001, true, false),
            (HOUR_MS - 30_000, true, false),
            (HOUR_MS - 30_001, true, true),
            (HOUR_MS + 30_001, true, true),
        ] {
            wall.0.store(wall_ms, Ordering::SeqCst);
            let skew = clock.skew().unwrap();
            assert_eq!((skew.is_notable(), skew.is_excessive()), (is_notable, is_excessive), "{skew}");
        }
    }
}
