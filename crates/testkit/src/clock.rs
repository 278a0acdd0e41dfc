//! A clock that a test moves.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use tokio::time::Instant;

/// Follows Tokio's time. Under `#[tokio::test(start_paused = true)]` that time stands still while anything can go on, and
/// jumps to the next sleeper's hour when nothing can: nobody waits for real.
///
/// Paused time also jumps while another thread works for the test, as a database's does. A test that has one pauses nothing.
#[derive(Clone, Copy, Debug)]
pub struct TestClock {
    origin: Instant,
}

impl TestClock {
    /// What every test clock shows at first: 2026-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp::from_unix_ms(1_767_225_600_000);

    /// A clock that shows [`Self::START`].
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Moves paused time on by `span`; whoever sleeps less wakes.
    pub async fn advance(&self, span: Duration) {
        tokio::time::advance(span).await;
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Self::START.after(self.origin.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is a Clock")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleep_takes_the_clocks_time_and_no_other() {
        let clock = TestClock::new();
        let begun = std::time::Instant::now();
        clock.sleep(Duration::from_hours(1)).await;
        assert_eq!(clock.now().since(TestClock::START), Duration::from_hours(1));
        assert!(begun.elapsed() < Duration::from_mins(1));
        clock.advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now().since(TestClock::START), Duration::from_secs(3601));
    }
}
