//! What every [`StepCache`] must do. [`step_cache_suite!`](crate::step_cache_suite) makes a test of each requirement.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::ClaimId;
use podium_domain::run::FinishReason;
use podium_domain::usage::Usage;
use podium_ports::cache::{CacheKey, CacheOptions, CachedOutput, GivenUp, Look, StepCache};
use podium_ports::clock::Clock;
use uuid::Uuid;

/// Two handles on one cache.
pub type Handles = [Arc<dyn StepCache>; 2];

/// Makes a cache under test.
pub struct CacheFixture {
    /// A cache that knows nothing, with these options: two handles on it, as two processes would have them. A cache of one
    /// process gives the same twice. It is called once.
    pub make: Box<dyn Fn(CacheOptions) -> Handles + Send + Sync>,
    /// The clock to wait by.
    pub clock: Arc<dyn Clock>,
    /// What must live as long as the test, such as a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`CacheFixture`]; the attribute goes on every test.
/// The list of requirements is here and nowhere else.
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
            what_is_kept_is_known_to_all_under_its_key_alone
            an_output_is_forgotten_when_its_time_is_over
            an_output_that_is_too_long_is_not_kept_and_holds_nobody_up
            the_oldest_output_goes_when_there_are_too_many
            one_of_many_leads_and_the_others_see_it
            looking_up_takes_no_lead
            a_lead_that_is_not_extended_runs_out
            nobody_else_extends_or_ends_a_lead
            who_stops_leaves_the_lead_to_the_next
            after_a_failure_everybody_calls_for_themselves
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
/// Those written below are private, so that one which is missing in the list above is an unused function.
pub mod requirements {
    step_cache_suite! { @each requirements [] }
}

/// How long what is due may take to come, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);
/// As long as a test that does not wait for it.
const LONG: CacheOptions = CacheOptions {
    ttl: Duration::from_hours(1),
    entries_max: 100,
    entry_bytes_max: 1000,
    lead_ttl: Duration::from_hours(1),
};
/// What a test waits for.
const SHORT: Duration = Duration::from_millis(200);

fn key(number: u8) -> CacheKey {
    CacheKey::from_bytes([number; 32])
}

fn lead(number: u128) -> ClaimId {
    ClaimId::new(Uuid::from_u128(number))
}

fn output(text: &str) -> CachedOutput {
    let usage = Usage { prompt_tokens: 100, completion_tokens: 10, cached_tokens: 5, ..Usage::NONE };
    CachedOutput { output: text.to_owned(), finish: FinishReason::Length, usage }
}

impl CacheFixture {
    /// Waits until the cache says nothing.
    async fn until_nothing(&self, mut look: impl AsyncFnMut() -> Look) {
        let begun = self.clock.now();
        while look().await != Look::Nothing {
            assert!(self.clock.now().since(begun) < PATIENCE, "it is still there");
            self.clock.sleep(SHORT / 10).await;
        }
    }
}

mod written {
    use futures::future::join_all;

    use super::{
        Arc, CacheFixture, CacheOptions, Duration, GivenUp, LONG, Look, PATIENCE, SHORT, key, lead, output,
    };

    pub(super) async fn what_is_kept_is_known_to_all_under_its_key_alone(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        let tricky = output("blue \0 שלום \"}\r\n");
        first.keep(&key(1), lead(1), &tricky).await.unwrap();
        for handle in [&first, &second] {
            assert_eq!(handle.look_up(&key(1)).await.unwrap(), Look::Known(tricky.clone()));
            assert_eq!(handle.lead(&key(1), lead(2)).await.unwrap(), Look::Known(tricky.clone()));
            assert_eq!(handle.look_up(&key(2)).await.unwrap(), Look::Nothing);
        }
        second.keep(&key(1), lead(3), &output("newer")).await.unwrap();
        assert_eq!(first.look_up(&key(1)).await.unwrap(), Look::Known(output("newer")));
    }

    pub(super) async fn an_output_is_forgotten_when_its_time_is_over(cache: &CacheFixture) {
        let [first, second] = (cache.make)(CacheOptions { ttl: SHORT, ..LONG });
        first.keep(&key(1), lead(1), &output("blue")).await.unwrap();
        cache.until_nothing(async || second.look_up(&key(1)).await.unwrap()).await;
    }

    pub(super) async fn an_output_that_is_too_long_is_not_kept_and_holds_nobody_up(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        first.keep(&key(1), lead(1), &output(&"x".repeat(1000))).await.unwrap();
        assert!(matches!(second.look_up(&key(1)).await.unwrap(), Look::Known(_)));
        assert_eq!(first.lead(&key(2), lead(1)).await.unwrap(), Look::Nothing);
        first.keep(&key(2), lead(1), &output(&"x".repeat(1001))).await.unwrap();
        assert_eq!(second.lead(&key(2), lead(2)).await.unwrap(), Look::Nothing);
        assert_eq!(first.lead(&key(2), lead(3)).await.unwrap(), Look::Nothing);
    }

    pub(super) async fn the_oldest_output_goes_when_there_are_too_many(cache: &CacheFixture) {
        let [first, _] = (cache.make)(CacheOptions { entries_max: 2, ..LONG });
        // In milliseconds that differ, by which one of them is the oldest.
        let tick = Duration::from_millis(2);
        for number in 1..=3 {
            first.keep(&key(number), lead(1), &output("blue")).await.unwrap();
            cache.clock.sleep(tick).await;
        }
        assert_eq!(first.look_up(&key(1)).await.unwrap(), Look::Nothing);
        for number in 2..=3 {
            assert_eq!(first.look_up(&key(number)).await.unwrap(), Look::Known(output("blue")));
        }
    }

    pub(super) async fn one_of_many_leads_and_the_others_see_it(cache: &CacheFixture) {
        let handles = (cache.make)(LONG);
        let key = key(1);
        let asked = (0..20).map(|number| {
            let handle = Arc::clone(&handles[number % 2]);
            async move { handle.lead(&key, lead(number as u128)).await.unwrap() }
        });
        let looks = join_all(asked).await;
        let (leading, waiting): (Vec<_>, Vec<_>) = looks.iter().partition(|look| **look == Look::Nothing);
        assert_eq!((leading.len(), waiting.len()), (1, 19));
        assert!(waiting.iter().all(|look| matches!(look, Look::UnderWay { .. })), "{waiting:?}");
    }

    pub(super) async fn looking_up_takes_no_lead(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        assert_eq!(first.look_up(&key(1)).await.unwrap(), Look::Nothing);
        assert_eq!(second.lead(&key(1), lead(1)).await.unwrap(), Look::Nothing);
        assert!(matches!(first.look_up(&key(1)).await.unwrap(), Look::UnderWay { .. }));
    }

    pub(super) async fn a_lead_that_is_not_extended_runs_out(cache: &CacheFixture) {
        let [first, second] = (cache.make)(CacheOptions { lead_ttl: SHORT, ..LONG });
        assert_eq!(first.lead(&key(1), lead(1)).await.unwrap(), Look::Nothing);
        cache.until_nothing(async || second.look_up(&key(1)).await.unwrap()).await;
        // Whoever led before does not take it back by saying that it goes on.
        first.extend(&key(1), lead(1)).await.unwrap();
        assert_eq!(second.lead(&key(1), lead(2)).await.unwrap(), Look::Nothing);
    }

    pub(super) async fn nobody_else_extends_or_ends_a_lead(cache: &CacheFixture) {
        let [first, second] = (cache.make)(CacheOptions { lead_ttl: PATIENCE * 10, ..LONG });
        assert_eq!(first.lead(&key(1), lead(1)).await.unwrap(), Look::Nothing);
        second.extend(&key(1), lead(2)).await.unwrap();
        second.give_up(&key(1), lead(2), GivenUp::Stopped).await.unwrap();
        assert!(matches!(second.lead(&key(1), lead(3)).await.unwrap(), Look::UnderWay { .. }));
    }

    pub(super) async fn who_stops_leaves_the_lead_to_the_next(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        assert_eq!(first.lead(&key(1), lead(1)).await.unwrap(), Look::Nothing);
        first.extend(&key(1), lead(1)).await.unwrap();
        first.give_up(&key(1), lead(1), GivenUp::Stopped).await.unwrap();
        assert_eq!(second.lead(&key(1), lead(2)).await.unwrap(), Look::Nothing);
        assert!(matches!(first.lead(&key(1), lead(3)).await.unwrap(), Look::UnderWay { .. }));
        second.keep(&key(1), lead(2), &output("blue")).await.unwrap();
        assert_eq!(first.lead(&key(1), lead(4)).await.unwrap(), Look::Known(output("blue")));
    }

    pub(super) async fn after_a_failure_everybody_calls_for_themselves(cache: &CacheFixture) {
        let [first, second] = (cache.make)(LONG);
        assert_eq!(first.lead(&key(1), lead(1)).await.unwrap(), Look::Nothing);
        first.give_up(&key(1), lead(1), GivenUp::Failed).await.unwrap();
        for (handle, number) in [(&second, 2), (&first, 3), (&second, 4)] {
            assert_eq!(handle.lead(&key(1), lead(number)).await.unwrap(), Look::Nothing);
        }
        // Who succeeds by itself is of use to all.
        second.keep(&key(1), lead(2), &output("blue")).await.unwrap();
        assert_eq!(first.look_up(&key(1)).await.unwrap(), Look::Known(output("blue")));
    }
}
