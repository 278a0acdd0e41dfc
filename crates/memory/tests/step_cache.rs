//! The step cache of one process, held to what every step cache must do.

use std::sync::Arc;
use std::time::Duration;

use podium_memory::MemoryCache;
use podium_ports::cache::{CacheKey, CacheOptions, Look, StepCache};
use podium_ports::clock::{Clock, Ids};
use podium_testkit::step_cache::CacheFixture;
use podium_testkit::{SeededIds, TestClock};

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

#[tokio::test(start_paused = true)]
async fn a_lead_holds_for_as_long_as_it_is_extended() {
    let (clock, options) = (Arc::new(TestClock::new()), CacheOptions::default());
    let cache = MemoryCache::new(clock.clone(), options);
    let (key, ids) = (CacheKey::from_bytes([1; 32]), SeededIds::new(1));
    let lead = ids.claim_id();
    assert_eq!(cache.lead(&key, lead).await.unwrap(), Look::Nothing);
    for _ in 0..10 {
        clock.sleep(cache.extend_every()).await;
        cache.extend(&key, lead).await.unwrap();
    }
    let Look::UnderWay { since } = cache.look_up(&key).await.unwrap() else { unreachable!("it is led") };
    assert!(since > options.lead_ttl * 3, "{since:?}");
    clock.sleep(options.lead_ttl.saturating_sub(Duration::from_millis(1))).await;
    assert!(matches!(cache.look_up(&key).await.unwrap(), Look::UnderWay { .. }));
    clock.sleep(Duration::from_millis(1)).await;
    assert_eq!(cache.look_up(&key).await.unwrap(), Look::Nothing);
}
