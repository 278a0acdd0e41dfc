//! Time and ids from outside. Everything else takes `now` and ids as arguments, so that a test can be exact.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::time::Timestamp;

/// How far a wall clock may be from the reference before a process reports it, unless its bound is smaller.
const NOTABLE: Duration = Duration::from_secs(1);

/// The time that runs are recorded by: the database's in a cluster, the machine's in an embedded engine.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits for `span` of this clock's time.
    async fn sleep(&self, span: Duration);

    /// How far the machine's wall clock is from this clock; none if this clock is the machine's.
    fn skew(&self) -> Option<Skew> {
        None
    }
}

/// How far a machine's wall clock is from the clock that runs are recorded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Milliseconds that the wall clock is ahead; negative: behind.
    pub ahead_ms: i64,
    /// The largest distance at which the process works.
    pub max: Duration,
}

impl Skew {
    /// Whether the process must not work: its machine is not to be trusted with time.
    pub fn is_excessive(self) -> bool {
        u128::from(self.ahead_ms.unsigned_abs()) > self.max.as_millis()
    }

    /// Whether an operator should hear of it.
    pub fn is_notable(self) -> bool {
        u128::from(self.ahead_ms.unsigned_abs()) > self.max.min(NOTABLE).as_millis()
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.ahead_ms < 0 { "behind" } else { "ahead of" };
        write!(f, "the wall clock is {} ms {side} the database's", self.ahead_ms.unsigned_abs())
    }
}

/// New ids.
pub trait Ids: Send + Sync {
    /// A run id that sorts by time (UUID version 7).
    fn run_id(&self, now: Timestamp) -> RunId;

    /// A claim id that nobody can guess or repeat (UUID version 4).
    fn claim_id(&self) -> ClaimId;
}
