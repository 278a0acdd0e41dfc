//! Runs the step cache's conformance suite on the one in memory.

use std::sync::Arc;

use podium_memory::MemoryCache;
use podium_ports::cache::StepCache;
use podium_testkit::TestClock;
use podium_testkit::step_cache::CacheFixture;

fn fixture() -> CacheFixture {
    let clock = Arc::new(TestClock::new());
    let its_clock = Arc::clone(&clock);
    let make = move |options| {
        let cache: Arc<dyn StepCache> = Arc::new(MemoryCache::new(its_clock.clone(), options));
        [Arc::clone(&cache), cache]
    };
    CacheFixture { make: Box::new(make), clock, keep: Box::new(()) }
}

podium_testkit::step_cache_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
