//! A clock that a test moves.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use tokio::time::Instant;

/// Follows Tokio's time. Under `#[tokio::test(start_paused = true)]`, time stands still while any task can run, and jumps to the
/// next timer when none can, so no test waits in real time.
///
/// Paused time also jumps while another thread, such as a database's, works for the test. A test with such a thread must not pause
/// time.
#[derive(Clone, Copy, Debug)]
pub struct TestClock {
    origin: Instant,
}

impl TestClock {
    /// The first time of every test clock: 2026-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp::from_unix_ms(1_767_225_600_000);

    /// A clock at [`Self::START`].
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Advances paused time by `span`; timers within it fire.
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
    async fn a_sleep_takes_virtual_time_only() {
        let clock = TestClock::new();
        let begun = std::time::Instant::now();
        clock.sleep(Duration::from_hours(1)).await;
        assert_eq!(clock.now().since(TestClock::START), Duration::from_hours(1));
        assert!(begun.elapsed() < Duration::from_mins(1));
        clock.advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now().since(TestClock::START), Duration::from_secs(3601));
    }
}
