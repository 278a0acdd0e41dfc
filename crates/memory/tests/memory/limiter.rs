//! Runs the limiter's conformance suite on the limiter in memory.

use std::sync::Arc;
use std::time::Duration;

use podium_memory::MemoryLimiter;
use podium_ports::limiter::Limiter;
use podium_testkit::TestClock;
use podium_testkit::limiter::LimiterFixture;

fn fixture() -> LimiterFixture {
    let (clock, ask_again_max) = (Arc::new(TestClock::new()), Duration::from_millis(50));
    let limiter: Arc<dyn Limiter> =
        Arc::new(MemoryLimiter::asking_again_within(clock.clone(), ask_again_max));
    LimiterFixture { first: Arc::clone(&limiter), second: limiter, clock, ask_again_max, keep: Box::new(()) }
}

podium_testkit::limiter_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
