//! Time and ids from outside. All other code takes `now` and ids as arguments, so that tests are exact.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::{ClaimId, ProcessId, RunId};
use podium_domain::time::Timestamp;

/// The clock skew above which a process reports it, unless its maximum is smaller.
const NOTABLE: Duration = Duration::from_secs(1);

/// The time that runs are recorded by: the database's clock in a cluster, the machine's in an embedded engine.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits for `span` of this clock's time.
    async fn sleep(&self, span: Duration);

    /// The distance of the machine's wall clock from this clock; `None` if this clock is the machine's.
    fn skew(&self) -> Option<Skew> {
        None
    }
}

/// The distance of a machine's wall clock from the clock that runs are recorded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Milliseconds by which the wall clock is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// The largest distance at which the process may work.
    pub max: Duration,
}

impl Skew {
    /// Whether the process must stop work, because its clock is too far off.
    pub fn is_excessive(self) -> bool {
        u128::from(self.ahead_ms.unsigned_abs()) > self.max.as_millis()
    }

    /// Whether the process reports the distance to the operator.
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

/// Generates ids.
pub trait Ids: Send + Sync {
    /// A run id that sorts by time (UUID version 7).
    fn run_id(&self, now: Timestamp) -> RunId;

    /// A random claim id that cannot be guessed (UUID version 4).
    fn claim_id(&self) -> ClaimId;

    /// A random id for this start of the process, as unguessable as a claim's.
    fn process_id(&self) -> ProcessId {
        ProcessId::new(*self.claim_id().as_uuid())
    }
}
