//! The limiter in memory does what every limiter must.

use std::sync::Arc;
use std::time::Duration;

use podium_memory::MemoryLimiter;
use podium_ports::limiter::Limiter;
use podium_testkit::TestClock;
use podium_testkit::limiter::LimiterFixture;

fn fixture() -> LimiterFixture {
    let limiter: Arc<dyn Limiter> = Arc::new(MemoryLimiter::new());
    LimiterFixture {
        first: Arc::clone(&limiter),
        second: limiter,
        clock: Arc::new(TestClock::new()),
        ask_again_max: Duration::from_millis(50),
        keep: Box::new(()),
    }
}

podium_testkit::limiter_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
