//! Time and ids from outside. Everything else takes `now` and ids as arguments, so that a test can be exact.

use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::time::Timestamp;

/// The wall clock.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits for `span` of this clock's time.
    async fn sleep(&self, span: Duration);
}

/// New ids.
pub trait Ids: Send + Sync {
    /// A run id that sorts by time (UUID version 7).
    fn run_id(&self, now: Timestamp) -> RunId;

    /// A claim id that nobody can guess or repeat (UUID version 4).
    fn claim_id(&self) -> ClaimId;
}
