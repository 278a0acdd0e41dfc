//! The conformance suite of [`StepCache`]. [`step_cache_suite!`](crate::step_cache_suite) makes a test of each requirement.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use podium_ports::cache::{CacheKey, CacheOptions, CachedOutput, StepCache};
use podium_ports::clock::Clock;

/// Two handles on one cache.
pub type Handles = [Arc<dyn StepCache>; 2];

/// Makes a cache under test.
pub struct CacheFixture {
    /// Makes an empty cache with these options, once: two handles on it, as two processes would have them. A cache of one process
    /// returns the same one twice.
    pub make: Box<dyn Fn(CacheOptions) -> Handles + Send + Sync>,
    /// The clock that tests wait with.
    pub clock: Arc<dyn Clock>,
    /// Objects that must live as long as the test, such as a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`CacheFixture`]; the attribute is put on every test.
/// This is the only list of the requirements.
///
/// ```ignore
/// podium_testkit::step_cache_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
/// ```
#[macro_export]
macro_rules! step_cache_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::step_cache_suite! { @each tests [#[$attribute] $fixture] }
    };
    (@each $what:ident $arguments:tt) => {
        $crate::step_cache_suite! { @$what $arguments
            an_output_is_found_on_all_handles_by_its_key_only
            an_output_expires_after_its_lifetime
            an_output_that_is_too_long_is_not_stored
            the_oldest_output_is_dropped_beyond_the_limit
        }
    };
    (@tests [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::step_cache::requirements::$name($fixture.await).await;
        })+
    };
    (@requirements [] $($name:ident)+) => {
        $(#[expect(missing_docs, reason = "its name is the sentence")]
        pub async fn $name(cache: super::CacheFixture) {
            super::written::$name(&cache).await;
        })+
    };
}

/// The requirements, one function each.
///
/// The functions below are private, so a requirement that is missing in the list above is an unused function.
pub mod requirements {
    step_cache_suite! { @each requirements [] }
}

/// The longest wait for something that is due, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough that no test reaches it.
const LONG: CacheOptions =
    CacheOptions { ttl: Duration::from_hours(1), entries_max: 100, entry_bytes_max: 1000 };
/// Short enough that a test can wait for it.
const SHORT: Duration = Duration::from_millis(200);

fn key(number: u8) -> CacheKey {
    CacheKey::from_bytes([number; 32])
}

fn output(text: &str) -> CachedOutput {
    let usage = Usage { prompt_tokens: 100, completion_tokens: 10, cached_tokens: 5, ..Usage::NONE };
    CachedOutput {
        output: text.to_owned(),
        finish: FinishReason::Stop,
        stop_sequence: Some("END".to_owned()),
        usage,
    }
}

impl CacheFixture {
    /// Waits until the cache returns nothing.
    async fn until_nothing(&self, mut look: impl AsyncFnMut() -> Option<CachedOutput>) {
        let begun = self.clock.now();
        while look().await.is_some() {
            assert!(self.clock.now().since(begun) < PATIENCE, "it is still there");
            self.clock.sleep(SHORT / 10).await;
        }
    }
}

mod written {
    use super::{CacheFixture, CacheOptions, Duration, LONG, SHORT, key, output};

    pub(super) async fn an_output_is_found_on_all_handles_by_its_key_only(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        let tricky = output("blue \0 שלום \"}\r\n");
        first.keep(&key(1), &tricky).await.unwrap();
        for handle in [&first, &second] {
            assert_eq!(handle.look_up(&key(1)).await.unwrap(), Some(tricky.clone()));
            assert_eq!(handle.look_up(&key(2)).await.unwrap(), None);
        }
        second.keep(&key(1), &output("newer")).await.unwrap();
        assert_eq!(first.look_up(&key(1)).await.unwrap(), Some(output("newer")));
    }

    pub(super) async fn an_output_expires_after_its_lifetime(cache: &CacheFixture) {
        let [first, second] = (cache.make)(CacheOptions { ttl: SHORT, ..LONG });
        first.keep(&key(1), &output("blue")).await.unwrap();
        cache.until_nothing(async || second.look_up(&key(1)).await.unwrap()).await;
    }

    pub(super) async fn an_output_that_is_too_long_is_not_stored(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        first.keep(&key(1), &output(&"x".repeat(1000))).await.unwrap();
        assert!(second.look_up(&key(1)).await.unwrap().is_some());
        first.keep(&key(2), &output(&"x".repeat(1001))).await.unwrap();
        assert_eq!(second.look_up(&key(2)).await.unwrap(), None);
    }

    pub(super) async fn the_oldest_output_is_dropped_beyond_the_limit(cache: &CacheFixture) {
        let [first, _] = (cache.make)(CacheOptions { entries_max: 2, ..LONG });
        // In different milliseconds, which decide which one is the oldest.
        let tick = Duration::from_millis(2);
        for number in 1..=3 {
            first.keep(&key(number), &output("blue")).await.unwrap();
            cache.clock.sleep(tick).await;
        }
        assert_eq!(first.look_up(&key(1)).await.unwrap(), None);
        for number in 2..=3 {
            assert_eq!(first.look_up(&key(number)).await.unwrap(), Some(output("blue")));
        }
    }
}
